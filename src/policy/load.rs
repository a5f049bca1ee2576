//! Loads a configuration from its path: reads the gateway file and the folder of policies, runs all steps of loading on
//! them, and reports all their mistakes at once. Loading changes no file and starts nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::context::LoadContext;
use super::decode::PolicyConfig;
use super::diagnostic::{Diagnostic, DiagnosticReport};
use super::filled_value::FilledValue;
use super::settings::{Endpoints, ProcessSettings, Ruleset};
use super::source::{DiskFiles, Files, FingerprintedFiles, MAX_POLICIES};
use super::tree::{self, MAX_FILE_BYTES, Node, SourceLocation};
use super::{check, compile, decode, expand, text};

/// Maximum size in bytes of all files together, which bounds the memory of loading.
const MAX_TOTAL_BYTES: usize = 32 * 1024 * 1024;

/// A configuration without mistakes.
#[derive(Debug)]
pub struct LoadedConfig {
    /// Settings that are fixed when the process starts.
    pub process: ProcessSettings,
    /// Settings that a reload may change.
    pub ruleset: Ruleset,
    /// Warnings, sorted by location.
    pub warnings: Vec<Diagnostic>,
    /// The values of the gateway file whose references were replaced.
    pub filled: Vec<FilledValue>,
    /// A hash of everything that was read, files of keys and certificates included.
    pub fingerprint: u64,
}

/// Loads the configuration whose gateway file is at `path`.
///
/// # Errors
///
/// Every mistake in all files: at most 50 for each file and 1,000 in all. The others are only counted.
pub fn load(path: &Path) -> Result<LoadedConfig, DiagnosticReport> {
    load_from(&DiskFiles, path)
}

/// Loads a configuration as [`load`] does, from another source than the disk.
///
/// # Errors
///
/// The same as of [`load`].
pub fn load_from(files: &dyn Files, path: &Path) -> Result<LoadedConfig, DiagnosticReport> {
    load_fingerprinted(&FingerprintedFiles::new(files), path)
}

/// Reads the addresses where operators reach a gateway that runs with this file: those of `admin`, or those of `listen`
/// if `admin` is off. Mistakes elsewhere in the file do not matter, because the gateway may still run with an earlier
/// version of the file.
///
/// # Errors
///
/// The file cannot be read as YAML or is empty, one of these two fields has a mistake, or the admin token cannot be read.
pub fn load_endpoints(path: &Path) -> Result<Endpoints, DiagnosticReport> {
    let mut cx = LoadContext::default();
    let base = path.parent().unwrap_or_else(|| Path::new(""));
    let root = read_tree(&mut cx, &DiskFiles, path, &mut 0);
    let endpoints = root.map(|(_, mut node)| {
        // Only these values are expanded, because others may refer to variables that only the gateway has.
        let fill_in =
            |cx: &mut LoadContext, node: &mut Node| expand::expand(cx, &DiskFiles, base, node);
        let gateway = decode::read_endpoints(&mut cx, &mut node, fill_in);
        compile::compile_endpoints(&mut cx, &DiskFiles, base, &gateway)
    });
    cx.finish()?;
    endpoints.ok_or_else(DiagnosticReport::default)
}

/// The fingerprint of all files of a configuration, and the folders that they are in. Mistakes in the files do not
/// matter.
pub(super) fn fingerprint_files(path: &Path) -> (u64, BTreeSet<PathBuf>) {
    let files = FingerprintedFiles::new(&DiskFiles);
    let _ = load_fingerprinted(&files, path);
    (files.fingerprint(), files.folders())
}

/// Runs all steps of loading, in the order of the list in `policy/mod.rs`.
fn load_fingerprinted(
    files: &FingerprintedFiles<'_>,
    path: &Path,
) -> Result<LoadedConfig, DiagnosticReport> {
    let mut cx = LoadContext::default();
    let mut total_bytes = 0;
    let base = path.parent().unwrap_or_else(|| Path::new(""));
    let gateway = read_tree(&mut cx, files, path, &mut total_bytes).map(|(_, mut node)| {
        expand::expand(&mut cx, files, base, &mut node);
        decode::read_gateway(&mut cx, &node)
    });
    let is_readable = gateway.is_some();
    let gateway = gateway.unwrap_or_default();
    let folder = gateway
        .policies
        .as_ref()
        .map_or("policies", |folder| folder.value.as_str());
    let folder = base.join(folder);
    let policy_folder = PolicyFolder {
        path: &folder,
        location: gateway
            .policies
            .as_ref()
            .map_or(SourceLocation::start_of(0), |folder| folder.location),
        must_have_policies: is_readable,
    };
    let policies = read_policies(&mut cx, files, &policy_folder, &mut total_bytes);
    if is_readable {
        check::check(&mut cx, &gateway, &policies);
    }
    let settings = compile::compile(&mut cx, files, base, &gateway, policies);
    let filled = std::mem::take(&mut cx.filled);
    let (sources, warnings) = cx.finish()?;
    // A step that returns no settings has reported an error, so this cannot happen; it must not panic all the same.
    let Some((process, mut ruleset)) = settings else {
        return Err(DiagnosticReport::default());
    };
    ruleset.files = sources.into_files();
    Ok(LoadedConfig {
        process,
        ruleset,
        warnings,
        filled,
        fingerprint: files.fingerprint(),
    })
}

/// Reads and parses one file, and returns its number and its tree. Adds its size to `total_bytes`.
fn read_tree(
    cx: &mut LoadContext,
    files: &dyn Files,
    path: &Path,
    total_bytes: &mut usize,
) -> Option<(u32, Node)> {
    let name = path.display().to_string();
    let bytes = match files.read(path, MAX_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(reason) => {
            let file = cx.sources.add(&name, String::new());
            cx.error(
                SourceLocation::start_of(file),
                format!("cannot read this file: {reason}"),
                None,
            );
            return None;
        }
    };
    *total_bytes = total_bytes.saturating_add(bytes.len());
    if *total_bytes > MAX_TOTAL_BYTES {
        let file = cx.sources.add(&name, String::new());
        let message =
            "all files together are larger than 32 MiB; this one and those behind it are not read";
        cx.error(SourceLocation::start_of(file), message, None);
        return None;
    }
    let text = match text::decode_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let file = cx.sources.add(&name, String::new());
            let location = SourceLocation {
                line: error.line,
                ..SourceLocation::start_of(file)
            };
            cx.error(location, error.message, Some(error.help.into()));
            return None;
        }
    };
    let file = cx.sources.add(&name, text);
    match tree::parse(file, cx.sources.text(file)) {
        Ok(node) if report_empty_file(cx, file, &node) => None,
        Ok(node) => Some((file, node)),
        Err(tree::SyntaxError {
            location,
            message,
            help,
        }) => {
            cx.error(location, message, help);
            None
        }
    }
}

/// Reports a file without content and returns whether it is one. Messages about missing fields would not help.
fn report_empty_file(cx: &mut LoadContext, file: u32, node: &Node) -> bool {
    let is_empty = matches!(node.value, tree::YamlValue::Null);
    if is_empty {
        let location = SourceLocation::start_of(file);
        let help = "write its fields, or remove the file";
        cx.error(location, "the file is empty", Some(help.into()));
    }
    is_empty
}

/// The folder of policies.
struct PolicyFolder<'a> {
    path: &'a Path,
    /// The location of its name in the gateway file.
    location: SourceLocation,
    /// Whether its absence is a mistake. It is none if the gateway file, which may name another folder, is unreadable.
    must_have_policies: bool,
}

fn read_policies(
    cx: &mut LoadContext,
    files: &dyn Files,
    folder: &PolicyFolder<'_>,
    total_bytes: &mut usize,
) -> Vec<PolicyConfig> {
    let names = match files.list(folder.path) {
        Ok(names) => names,
        Err(_) if !folder.must_have_policies => return Vec::new(),
        Err(reason) => {
            let message = format!(
                "cannot read the policies' folder `{}`: {reason}",
                folder.path.display()
            );
            let help = "make the folder and put a file for each route into it, or name it with `policies:`";
            cx.error(folder.location, message, Some(help.into()));
            return Vec::new();
        }
    };
    let mut policies = Vec::new();
    let mut policy_files = 0;
    for name in names {
        let Some(stem) = name.strip_suffix(".yaml") else {
            if name.ends_with(".yml") {
                let path = folder.path.join(&name);
                let message = format!("`{}` is not read", path.display());
                let help = "policies are files that end in `.yaml`";
                cx.warn(folder.location, message, Some(help.into()));
            }
            continue;
        };
        policy_files += 1;
        if policy_files > MAX_POLICIES {
            let message = format!("the policies' folder has more than {MAX_POLICIES} policies");
            cx.error(folder.location, message, None);
            break;
        }
        let path = folder.path.join(&name);
        let Some((file, node)) = read_tree(cx, files, &path, total_bytes) else {
            continue;
        };
        check_policy_name(cx, file, stem);
        policies.extend(decode::read_policy(cx, stem, &node));
    }
    if policy_files == 0 && folder.must_have_policies {
        let message = format!(
            "the policies' folder `{}` has no policies",
            folder.path.display()
        );
        let help = "put a file for each route into it, for instance `api.yaml`";
        cx.error(folder.location, message, Some(help.into()));
    }
    policies
}

/// Checks the name of a policy file, which becomes the name of its route in logs and metrics.
fn check_policy_name(cx: &mut LoadContext, file: u32, name: &str) {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_allowed) {
        let message = "the file's name is the route's name and has other characters than letters, digits, `-`, `_` and `.`, or too many";
        let help = "rename the file, for instance to `api.yaml`";
        cx.error(SourceLocation::start_of(file), message, Some(help.into()));
    }
}
