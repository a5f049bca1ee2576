//! Reads the folder of policies and its sub-folders. A policy inherits fields that it does not have from files of
//! defaults: each from the nearest `_defaults.yaml` above it that has the field.
//!
//! Bounds: [`MAX_POLICIES`], [`MAX_FOLDERS`], [`MAX_FOLDER_DEPTH`], and those of each file.

use std::path::Path;

use super::config_file::read_tree;
use super::context::LoadContext;
use super::decode::{self, DEFAULTS_FILE, InheritedFields, PolicyFiles};
use super::source::{Files, FolderListing, MAX_POLICIES};
use super::tree::SourceLocation;

/// Maximum number of sub-folders, because each one is watched.
const MAX_FOLDERS: usize = 2_000;
/// Maximum nesting of sub-folders, which bounds the recursion and the names of routes.
const MAX_FOLDER_DEPTH: usize = 8;
/// Maximum length in bytes of each part of a route's name.
const MAX_NAME_BYTES: usize = 64;

/// The folder of policies.
pub struct PolicyFolder<'a> {
    /// The path of the folder.
    pub path: &'a Path,
    /// The location of the folder's name in the gateway file, or the start of that file.
    pub location: SourceLocation,
    /// Whether a missing or empty folder is a mistake. It is none if the gateway file is unreadable, because that file
    /// may name another folder.
    pub must_have_policies: bool,
}

/// Reads all policies and defaults, without those that are unreadable. Mistakes are reported to `cx`. Adds the sizes of
/// the files to `total_bytes`.
pub fn read_policies(
    cx: &mut LoadContext,
    files: &dyn Files,
    folder: &PolicyFolder<'_>,
    total_bytes: &mut usize,
) -> PolicyFiles {
    let listing = match files.list(folder.path) {
        Ok(listing) => listing,
        Err(_) if !folder.must_have_policies => return PolicyFiles::default(),
        Err(reason) => {
            let message = format!(
                "cannot read the policies' folder `{}`: {reason}",
                folder.path.display()
            );
            let help = "make the folder and put a file for each route into it, or name it with `policies:`";
            cx.error(folder.location, message, Some(help.into()));
            return PolicyFiles::default();
        }
    };
    let mut reader = FolderReader {
        cx,
        files,
        root: folder,
        total_bytes,
        policy_files: PolicyFiles::default(),
        policy_count: 0,
        folder_count: 0,
        inherited: Vec::new(),
    };
    reader.read_listing("", 0, &listing);
    let (policy_files, policy_count) = (reader.policy_files, reader.policy_count);
    if policy_count == 0 && folder.must_have_policies {
        let message = format!(
            "the policies' folder `{}` has no policies",
            folder.path.display()
        );
        let help = "put a file for each route into it, for instance `api.yaml`";
        cx.error(folder.location, message, Some(help.into()));
    }
    policy_files
}

/// Reads folders below one another, and counts policies and folders for the bounds.
struct FolderReader<'a> {
    cx: &'a mut LoadContext,
    files: &'a dyn Files,
    root: &'a PolicyFolder<'a>,
    total_bytes: &'a mut usize,
    /// The policies and defaults that were read so far.
    policy_files: PolicyFiles,
    /// The number of policies so far, those with mistakes included.
    policy_count: usize,
    /// The number of sub-folders so far.
    folder_count: usize,
    /// The defaults above the file that is read, the nearest last.
    inherited: Vec<InheritedFields>,
}

impl FolderReader<'_> {
    /// Reads a sub-folder, whose path below the folder of policies is `name`, at this depth of nesting.
    fn read_folder(&mut self, name: &str, depth: usize) {
        let path = self.root.path.join(name);
        let can_begin_route_name = name.split('/').all(is_name);
        let listing = match self.files.list(&path) {
            Ok(listing) => listing,
            // No policy can be in a folder of such a name, for instance in `lost+found`.
            Err(_) if !can_begin_route_name => return,
            Err(reason) => {
                let message = format!("cannot read the folder `{}`: {reason}", path.display());
                let help = "policies may be in it: make it readable, or move it elsewhere";
                self.cx
                    .error(self.root.location, message, Some(help.into()));
                return;
            }
        };
        let mut files = listing.files.iter();
        if !can_begin_route_name && files.any(|file| file.ends_with(".yaml")) {
            let message = format!(
                "the path of the folder `{}` begins the names of routes and has other characters than letters, digits, `-`, `_` and `.`, or too many",
                path.display()
            );
            let help = "rename the folder, for instance to `shop`";
            self.cx
                .error(self.root.location, message, Some(help.into()));
            return;
        }
        self.read_listing(name, depth, &listing);
    }

    /// Reads the files and the sub-folders of the folder `name`, which is empty for the folder of policies itself.
    fn read_listing(&mut self, name: &str, depth: usize, listing: &FolderListing) {
        let inherited_above = self.inherited.len();
        if listing.files.iter().any(|file| file == DEFAULTS_FILE) {
            self.read_defaults(name);
        }
        for file in listing.files.iter().filter(|file| *file != DEFAULTS_FILE) {
            if self.policy_count > MAX_POLICIES {
                break;
            } else if let Some(stem) = file.strip_suffix(".yaml") {
                self.read_policy(&join_name(name, stem), stem);
            } else if file.ends_with(".yml") {
                let path = self.root.path.join(name).join(file);
                let message = format!("`{}` is not read", path.display());
                let help = "policies are files that end in `.yaml`";
                match file.to_ascii_lowercase().starts_with("_default") {
                    // The limits of a whole folder would be gone.
                    true => self
                        .cx
                        .error(self.root.location, message, Some(help.into())),
                    false => self.cx.warn(self.root.location, message, Some(help.into())),
                }
            }
        }
        for folder in &listing.folders {
            if self.policy_count > MAX_POLICIES || self.folder_count > MAX_FOLDERS {
                break;
            }
            let name = join_name(name, folder);
            if self.may_read_folder(&name, depth + 1) {
                self.read_folder(&name, depth + 1);
            }
        }
        self.inherited.truncate(inherited_above);
    }

    /// Counts a sub-folder, and returns whether it is within the bounds. Reports one that is not.
    fn may_read_folder(&mut self, name: &str, depth: usize) -> bool {
        self.folder_count += 1;
        let path = self.root.path.join(name);
        let (message, help) = if depth > MAX_FOLDER_DEPTH {
            let message = format!(
                "`{}` is more than {MAX_FOLDER_DEPTH} folders below the policies' folder",
                path.display()
            );
            (message, "move it up")
        } else if self.folder_count > MAX_FOLDERS {
            let message = format!("the policies' folder has more than {MAX_FOLDERS} sub-folders");
            (message, "put more policies into one folder")
        } else {
            return true;
        };
        self.cx
            .error(self.root.location, message, Some(help.into()));
        false
    }

    /// Reads the defaults of `folder`, whose fields the policies inherit that are read next.
    fn read_defaults(&mut self, folder: &str) {
        let path = self.root.path.join(folder).join(DEFAULTS_FILE);
        let tree = read_tree(self.cx, self.files, &path, self.total_bytes);
        if let Some((file, node)) = tree
            && let Some((defaults, inherited)) = decode::read_defaults(self.cx, folder, file, node)
        {
            self.policy_files.defaults.push(defaults);
            self.inherited.push(inherited);
        }
    }

    /// Reads the policy of the route `name`, whose file is called `stem` without its end.
    fn read_policy(&mut self, name: &str, stem: &str) {
        self.policy_count += 1;
        if self.policy_count > MAX_POLICIES {
            let message = format!("the policies' folder has more than {MAX_POLICIES} policies");
            self.cx.error(self.root.location, message, None);
            return;
        }
        let path = self.root.path.join(format!("{name}.yaml"));
        let Some((file, mut node)) = read_tree(self.cx, self.files, &path, self.total_bytes) else {
            return;
        };
        self.check_policy_name(file, stem);
        decode::inherit_fields(&mut node, &self.inherited);
        let policy = decode::read_policy(self.cx, name, &node);
        self.policy_files.policies.extend(policy);
    }

    /// Checks the name of a policy file, which ends the name of its route in logs and metrics.
    fn check_policy_name(&mut self, file: u32, stem: &str) {
        let (message, help) = if !is_name(stem) {
            let message = "the file's name is the route's name and has other characters than letters, digits, `-`, `_` and `.`, or too many";
            (message, "rename the file, for instance to `api.yaml`")
        } else if stem.starts_with("_default") {
            // Names of counts begin with the name of the file of defaults, so no route may have it.
            let message = "a policy's name does not begin with `_default`";
            (
                message,
                "rename the file: to `_defaults.yaml` if it holds the defaults of this folder",
            )
        } else {
            return;
        };
        let location = SourceLocation::start_of(file);
        self.cx.error(location, message, Some(help.into()));
    }
}

/// Whether a name of a file or a folder may be a part of a route's name.
fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(is_allowed)
}

/// The path of `name`, a policy or a folder in `folder`, below the folder of policies.
fn join_name(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_owned(),
        folder => format!("{folder}/{name}"),
    }
}
