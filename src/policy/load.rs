//! Loads a configuration from its path: reads the gateway file and the folder of policies, and reports all their
//! mistakes at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::collect::Cx;
use super::diagnostic::{Diagnostic, DiagnosticReport};
use super::filled::Filled;
use super::model::{GatewayConfig, PolicyConfig};
use super::settings::{Endpoints, Process, Ruleset};
use super::source::{DiskFiles, Files, MAX_POLICIES, RecordingFiles};
use super::tree::{self, MAX_FILE, Node, SourcePlace};
use super::{check, compile, decode, expand, text};

/// Most bytes of all files together.
const MAX_TOTAL: usize = 32 * 1024 * 1024;

/// A configuration without mistakes.
#[derive(Debug)]
pub struct LoadedConfig {
    /// Settings that are fixed when the process starts.
    pub process: Process,
    /// Settings that a reload may change.
    pub ruleset: Ruleset,
    /// Warnings, sorted by place.
    pub notes: Vec<Diagnostic>,
    /// The values of the gateway file into which something was filled.
    pub filled: Vec<Filled>,
    /// A hash of everything that was read, also of the files of keys.
    pub fingerprint: u64,
}

/// Reads a configuration.
///
/// # Errors
///
/// Every mistake in all files.
pub fn load(path: &Path) -> Result<LoadedConfig, DiagnosticReport> {
    load_from(&DiskFiles, path)
}

/// [`load`] from somewhere else than the disk.
///
/// # Errors
///
/// As [`load`].
pub fn load_from(files: &dyn Files, path: &Path) -> Result<LoadedConfig, DiagnosticReport> {
    read_all(&RecordingFiles::new(files), path)
}

/// Reads the addresses of a gateway that runs with this file. Mistakes elsewhere in the file do not matter: the
/// gateway may still run with what the file said before.
///
/// # Errors
///
/// Every mistake in those addresses.
pub fn endpoints(path: &Path) -> Result<Endpoints, DiagnosticReport> {
    let mut cx = Cx::default();
    let base = path.parent().unwrap_or_else(|| Path::new(""));
    let read = read(&mut cx, &DiskFiles, path, &mut 0);
    let endpoints = read.map(|(_, mut node)| {
        // Other values may refer to variables that only the environment of the gateway has.
        let fill_in = |cx: &mut Cx, node: &mut Node| expand::expand(cx, &DiskFiles, base, node);
        let gateway = decode::endpoints(&mut cx, &mut node, fill_in);
        compile::endpoints(&mut cx, &DiskFiles, base, &gateway)
    });
    cx.finish()?;
    endpoints.ok_or_else(DiagnosticReport::default)
}

/// A hash of all that was read to load a configuration, and the folders it came from. Mistakes in it
/// do not matter.
pub(super) fn traces(path: &Path) -> (u64, BTreeSet<PathBuf>) {
    let files = RecordingFiles::new(&DiskFiles);
    let _ = read_all(&files, path);
    files.traces()
}

fn read_all(files: &RecordingFiles<'_>, path: &Path) -> Result<LoadedConfig, DiagnosticReport> {
    let mut cx = Cx::default();
    let mut total = 0;
    let base = path.parent().unwrap_or_else(|| Path::new(""));
    let gateway = read(&mut cx, files, path, &mut total).map(|(_, mut node)| {
        expand::expand(&mut cx, files, base, &mut node);
        decode::gateway(&mut cx, &node)
    });
    let known = gateway.is_some();
    let gateway = gateway.unwrap_or_default();
    let folder = gateway
        .policies
        .as_ref()
        .map_or("policies", |folder| folder.value.as_str());
    let folder = base.join(folder);
    let policies = read_policies(&mut cx, files, &folder, &gateway, known, &mut total);
    if known {
        check::check(&mut cx, &gateway, &policies);
    }
    let settings = compile::compile(&mut cx, files, base, &gateway, policies);
    let filled = std::mem::take(&mut cx.filled);
    let (sources, notes) = cx.finish()?;
    // Nothing is on record and yet there are no settings: cannot be, and must not panic.
    let Some((process, mut ruleset)) = settings else {
        return Err(DiagnosticReport::default());
    };
    ruleset.files = sources.into_files();
    let (fingerprint, _) = files.traces();
    Ok(LoadedConfig {
        process,
        ruleset,
        notes,
        filled,
        fingerprint,
    })
}

/// Reads and parses one file; what is wrong is on record.
fn read(cx: &mut Cx, files: &dyn Files, path: &Path, total: &mut usize) -> Option<(u32, Node)> {
    let name = path.display().to_string();
    let bytes = match files.read(path, MAX_FILE) {
        Ok(bytes) => bytes,
        Err(reason) => {
            let file = cx.sources.add(&name, String::new());
            cx.error(
                start_of(file),
                format!("cannot read this file: {reason}"),
                None,
            );
            return None;
        }
    };
    *total = total.saturating_add(bytes.len());
    if *total > MAX_TOTAL {
        let file = cx.sources.add(&name, String::new());
        let message =
            "all files together are larger than 32 MiB; this one and those behind it are not read";
        cx.error(start_of(file), message, None);
        return None;
    }
    let text = match text::text(bytes) {
        Ok(text) => text,
        Err(wrong) => {
            let file = cx.sources.add(&name, String::new());
            let place = SourcePlace {
                line: wrong.line,
                ..start_of(file)
            };
            cx.error(place, wrong.message, Some(wrong.help.into()));
            return None;
        }
    };
    let file = cx.sources.add(&name, text);
    match tree::parse(file, cx.sources.text(file)) {
        Ok(node) if report_empty(cx, file, &node) => None,
        Ok(node) => Some((file, node)),
        Err(tree::SyntaxError {
            place,
            message,
            help,
        }) => {
            cx.error(place, message, help);
            None
        }
    }
}

/// Reports a file without content as empty; messages about missing fields would not help.
fn report_empty(cx: &mut Cx, file: u32, node: &Node) -> bool {
    let empty = matches!(node.value, tree::YamlValue::Null);
    if empty {
        let help = "write its fields, or remove the file";
        cx.error(start_of(file), "the file is empty", Some(help.into()));
    }
    empty
}

fn start_of(file: u32) -> SourcePlace {
    SourcePlace {
        file,
        line: 1,
        column: 1,
        width: 1,
        more: 0,
    }
}

fn read_policies(
    cx: &mut Cx,
    files: &dyn Files,
    folder: &Path,
    gateway: &GatewayConfig,
    known: bool,
    total: &mut usize,
) -> Vec<PolicyConfig> {
    let place = gateway
        .policies
        .as_ref()
        .map_or(start_of(0), |folder| folder.place);
    let names = match files.list(folder) {
        Ok(names) => names,
        Err(_) if !known => return Vec::new(),
        Err(reason) => {
            let message = format!(
                "cannot read the policies' folder `{}`: {reason}",
                folder.display()
            );
            let help = "make the folder and put a file for each route into it, or name it with `policies:`";
            cx.error(place, message, Some(help.into()));
            return Vec::new();
        }
    };
    let mut policies = Vec::new();
    let mut found = 0;
    for name in names {
        let Some(stem) = name.strip_suffix(".yaml") else {
            if name.ends_with(".yml") {
                let message = format!("`{}` is not read", folder.join(&name).display());
                cx.warn(
                    place,
                    message,
                    Some("policies are files that end in `.yaml`".into()),
                );
            }
            continue;
        };
        found += 1;
        if found > MAX_POLICIES {
            let message = format!("the policies' folder has more than {MAX_POLICIES} policies");
            cx.error(place, message, None);
            break;
        }
        let Some((file, node)) = read(cx, files, &folder.join(&name), total) else {
            continue;
        };
        check_name(cx, file, stem);
        policies.extend(decode::policy(cx, stem, &node));
    }
    if found == 0 && known {
        let message = format!(
            "the policies' folder `{}` has no policies",
            folder.display()
        );
        let help = "put a file for each route into it, for instance `api.yaml`";
        cx.error(place, message, Some(help.into()));
    }
    policies
}

/// The file's name is the route's name in logs and metrics.
fn check_name(cx: &mut Cx, file: u32, stem: &str) {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if stem.is_empty() || stem.len() > 64 || !stem.bytes().all(plain) {
        let message = "the file's name is the route's name and has other characters than letters, digits, `-`, `_` and `.`, or too many";
        cx.error(
            start_of(file),
            message,
            Some("rename the file, for instance to `api.yaml`".into()),
        );
    }
}
