//! Checks that the gateway can write its files and folders. To try a folder, a check creates an empty folder in it and
//! removes it again.

use std::path::{Path, PathBuf};

use super::diagnostics::PreflightDiagnostics;
use crate::policy::settings::LogDestination;
use crate::policy::{CertificateSource, LoadedConfig};
use crate::serve::access as access_log;

/// The help about a folder that cannot be written.
const FOLDER_HELP: &str = "name a folder that the user who runs the gateway may write to, or make it and give it to this user";

/// Checks the access log and the folders of the record, of snapshots and of certificates.
pub fn check_files(diagnostics: &mut PreflightDiagnostics<'_>, loaded: &LoadedConfig) {
    let process = &loaded.process;
    if let LogDestination::File { path, rotation } = &process.access_log.destination {
        let log_check = access_log::check_log_path(path).map_err(|cause| (None, cause));
        let log_check = match rotation {
            // A rotation creates files beside the log.
            Some(_) => {
                log_check.and_then(|()| check_writable(path.parent().unwrap_or(Path::new(""))))
            }
            None => log_check,
        };
        if let Err(error) = log_check {
            let description = describe_path(diagnostics, "access_log", path, error);
            let message = format!("cannot write the access log {description}");
            let help =
                "name a file that can be written, in a folder that exists and can be written";
            diagnostics.add_error(("access_log", &file_name(path)), message, help);
        }
    }
    let record_folder = process
        .record
        .as_ref()
        .and_then(|record| record.folder.as_deref());
    if let Some(folder) = record_folder {
        check_folder(diagnostics, "record", "the record", folder);
    }
    if let Some(snapshots) = &process.snapshots {
        check_folder(diagnostics, "store", "snapshots", &snapshots.folder);
    }
    let mut checked_folders: Vec<&PathBuf> = Vec::new();
    let listeners = loaded.ruleset.listeners.iter();
    for source in listeners.flat_map(|listener| &listener.certificates) {
        if let CertificateSource::Acme(acme) = source
            && !checked_folders.contains(&&acme.folder)
        {
            checked_folders.push(&acme.folder);
            check_folder(diagnostics, "listen", "certificates", &acme.folder);
        }
    }
}

/// Checks a folder that the gateway creates if it is missing. `content` says for the message what the folder is for.
fn check_folder(
    diagnostics: &mut PreflightDiagnostics<'_>,
    field: &str,
    content: &str,
    folder: &Path,
) {
    if let Err(error) = check_creatable(folder) {
        let description = describe_path(diagnostics, field, folder, error);
        let message = format!("cannot write to the folder of {content} {description}");
        diagnostics.add_error((field, &file_name(folder)), message, FOLDER_HELP);
    }
}

/// The folder that cannot be written, and the reason. The folder is `None` if the path itself cannot be used.
type WriteError<'p> = (Option<&'p Path>, String);

/// Describes a path and why it cannot be written. If the path was filled in for a reference, the folder that cannot be
/// written is not named.
fn describe_path(
    diagnostics: &PreflightDiagnostics<'_>,
    field: &str,
    path: &Path,
    (folder, cause): WriteError<'_>,
) -> String {
    let path_text = path.display().to_string();
    let shown = diagnostics.display_value(field, &path_text, &file_name(path));
    match folder {
        Some(folder) if shown == path_text && folder != path => {
            format!("`{shown}`: `{}`: {cause}", folder.display())
        }
        _ => format!("`{shown}`: {cause}"),
    }
}

/// The last part of a path, by which diagnostics search the line of the gateway file.
fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Checks that a folder can be written or, if it does not exist, that its nearest existing ancestor can.
fn check_creatable(folder: &Path) -> Result<(), WriteError<'_>> {
    let mut existing_folder = folder;
    loop {
        match existing_folder.metadata() {
            Ok(_) => return check_writable(existing_folder),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err((None, error.to_string())),
        }
        existing_folder = existing_folder.parent().unwrap_or(Path::new(""));
        if existing_folder.as_os_str().is_empty() {
            return check_writable(Path::new("."));
        }
    }
}

/// Checks that this process may create files in a folder. An error has the folder.
pub fn check_writable(folder: &Path) -> Result<(), WriteError<'_>> {
    access_log::check_folder_writable(folder).map_err(|error| (Some(folder), error.to_string()))
}
