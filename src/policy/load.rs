//! Loads a configuration from its path: reads the gateway file and the folder of policies, runs all steps of loading on
//! them, and reports all their mistakes at once. Loading changes no file and starts nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::config_file::read_tree;
use super::context::LoadContext;
use super::diagnostic::{Diagnostic, DiagnosticReport};
use super::filled_value::FilledValue;
use super::policy_folder::{PolicyFolder, read_policies};
use super::settings::{Endpoints, ProcessSettings, Ruleset};
use super::shared_limits::SharedLimits;
use super::source::{DiskFiles, Files, FingerprintedFiles};
use super::tree::{Node, SourceLocation};
use super::{check, compile, decode, expand};

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
    let shared = SharedLimits::new(&gateway, &policies.defaults);
    if is_readable {
        check::check(&mut cx, &gateway, &policies, &shared);
    }
    let settings = compile::compile(&mut cx, files, base, &gateway, &policies, &shared);
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
