//! The limits that several routes may have: those of the gateway file, and those of `_defaults.yaml` in the folders of
//! policies. Finds the ones that hold on a route. Reports nothing.

use std::collections::HashMap;
use std::ops::Range;

use super::decode::{
    DEFAULTS_FILE, DefaultsConfig, GatewayConfig, LimitConfig, LimitUse, PolicyConfig,
};

/// All limits that several routes may have.
pub struct SharedLimits<'c> {
    /// The limits of the gateway file, then those of the folders, a folder before its sub-folders.
    all: Vec<SharedLimit<'c>>,
    /// The range of the gateway file's limits in `all`.
    of_gateway: Range<usize>,
    /// The limits of each folder that has a `_defaults.yaml`, by the folder's name.
    folders: HashMap<&'c str, FolderLimits<'c>>,
}

/// A limit that several routes may have.
#[derive(Clone, Copy)]
pub struct SharedLimit<'c> {
    /// The index among all shared limits.
    pub index: usize,
    /// The limit, as its file defines it.
    pub limit: &'c LimitConfig,
    /// The folder in and below which it may hold. `None` for a limit of the gateway file.
    pub folder: Option<&'c str>,
}

/// The `limits` of a `_defaults.yaml`.
struct FolderLimits<'c> {
    /// All its entries: limits that the file defines, shares, or switches off.
    uses: &'c [LimitUse],
    /// The range of the limits that the file defines.
    own: Range<usize>,
}

impl<'c> SharedLimits<'c> {
    /// Collects the limits of the gateway file and of all folders.
    pub fn new(gateway: &'c GatewayConfig, defaults: &'c [DefaultsConfig]) -> SharedLimits<'c> {
        let mut all = Vec::new();
        let mut add = |folder, limits: &mut dyn Iterator<Item = &'c LimitConfig>| {
            let start = all.len();
            for limit in limits {
                let index = all.len();
                all.push(SharedLimit {
                    index,
                    limit,
                    folder,
                });
            }
            start..all.len()
        };
        let of_gateway = add(None, &mut gateway.limits.iter());
        let folders = defaults.iter().map(|defaults| {
            let folder = defaults.name.value.as_str();
            let limits = FolderLimits {
                uses: &defaults.limits,
                own: add(Some(folder), &mut defaults.own_limits()),
            };
            (folder, limits)
        });
        let folders = folders.collect();
        SharedLimits {
            all,
            of_gateway,
            folders,
        }
    }

    /// All limits, by their index.
    pub fn all(&self) -> &[SharedLimit<'c>] {
        &self.all
    }

    /// The limits of the gateway file.
    pub fn of_gateway(&self) -> &[SharedLimit<'c>] {
        self.range(&self.of_gateway)
    }

    /// The limits that files above `name`, a policy or a folder with defaults, define: those of the gateway file first,
    /// those of the nearest folder last.
    pub fn above(&self, name: &str) -> impl Iterator<Item = SharedLimit<'c>> {
        let mut folders: Vec<_> = self.folders_above(name).collect();
        folders.reverse();
        let in_folders = folders
            .into_iter()
            .flat_map(|folder| self.range(&folder.own));
        self.of_gateway().iter().chain(in_folders).copied()
    }

    /// The limits that files above a policy define and that hold on its routes.
    pub fn of_policy(&self, policy: &PolicyConfig) -> impl Iterator<Item = SharedLimit<'c>> {
        let limits = self.above(&policy.name);
        limits.filter(|limit| match policy.domain {
            None => self.holds(&policy.name, &policy.limits, limit),
            // Limits of HTTP requests count by what descriptors do not have.
            Some(_) => policy.lists(limit.limit.name.value.as_str()),
        })
    }

    /// Whether a limit that is defined above `name` holds there, as far as the files above `name` decide.
    pub fn holds_above(&self, name: &str, limit: &SharedLimit<'_>) -> bool {
        self.holds(name, &[], limit)
    }

    /// Whether a limit that is defined above `name` holds there. `uses` are the `limits` of the file of `name`. The
    /// nearest file that shares the limit or switches it off decides; without one, the limit's field `routes` does.
    fn holds(&self, name: &str, uses: &[LimitUse], limit: &SharedLimit<'_>) -> bool {
        let limit_name = limit.limit.name.value.as_str();
        let mention = |uses: &[LimitUse]| {
            uses.iter().find_map(|used| match used {
                LimitUse::Shared(name) if name.value == limit_name => Some(true),
                LimitUse::Off(name) if name.value == limit_name => Some(false),
                LimitUse::Own(_) | LimitUse::Shared(_) | LimitUse::Off(_) => None,
            })
        };
        let mut above = self.folders_above(name);
        mention(uses)
            .or_else(|| above.find_map(|folder| mention(folder.uses)))
            .unwrap_or(!limit.limit.routes.is_only_listed())
    }

    fn range(&self, range: &Range<usize>) -> &[SharedLimit<'c>] {
        self.all.get(range.clone()).unwrap_or_default()
    }

    /// The folders above `name` that have defaults, the nearest first.
    fn folders_above(&self, name: &str) -> impl Iterator<Item = &FolderLimits<'c>> {
        let folders = std::iter::successors(parent_folder(name), |folder| parent_folder(folder));
        folders.filter_map(|folder| self.folders.get(folder))
    }
}

impl SharedLimit<'_> {
    /// The scope of the counts that all routes share, as in [`Rule::scope`](crate::limit::Rule::scope): the limit's name,
    /// after the path of the file of defaults that defines it.
    pub fn common_scope(&self) -> String {
        match self.folder {
            None => self.limit.name.value.as_str().to_owned(),
            Some(folder) => format!("{}/{}", defaults_file(folder), self.limit.name.value),
        }
    }

    /// The file that defines the limit, in messages.
    pub fn defining_file(&self) -> String {
        match self.folder {
            None => "the gateway file".into(),
            Some(folder) => format!("`{}`", defaults_file(folder)),
        }
    }
}

/// Whether a policy is in this folder or below it. Every policy is below the folder without a name.
pub fn is_in_folder(policy: &str, folder: &str) -> bool {
    folder.is_empty()
        || policy
            .strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with('/'))
}

/// The path of a folder's file of defaults, relative to the folder of policies.
fn defaults_file(folder: &str) -> String {
    match folder {
        "" => DEFAULTS_FILE.to_owned(),
        folder => format!("{folder}/{DEFAULTS_FILE}"),
    }
}

/// The folder that contains a policy or a folder. `None` for the folder of policies itself, whose name is empty.
fn parent_folder(name: &str) -> Option<&str> {
    let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
    (!name.is_empty()).then_some(parent)
}
