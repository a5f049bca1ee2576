//! Reads and writes accounts and certificates on the disk. Only their owner may read the files.
//!
//! The folder of an ACME directory is named by the directory's URL. So certificates of a CA's test directory are not
//! mistaken for real ones. URLs that differ only in their scheme or in special characters share a folder, such as
//! `https://a:1/x` and `https://a-1/x`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::Error;
use super::settings::Settings;
use crate::net::Certificate;

/// Reads the stored certificate; returns `None` if there is none. A certificate that lacks some of the configured names
/// is returned too, because it still serves the others.
///
/// # Errors
///
/// Fails if the certificate has expired at `now`, a time since the Unix epoch, or cannot be read.
pub fn load_certificate(settings: &Settings, now: Duration) -> Result<Option<Certificate>, Error> {
    match fs::read(certificate_path(settings)) {
        Ok(pem) => parse_certificate(&pem, now).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Parses a key and a chain in PEM.
///
/// # Errors
///
/// Fails if the text cannot be parsed, or if the certificate has expired at `now`, a time since the Unix epoch.
pub fn parse_certificate(pem: &[u8], now: Duration) -> Result<Certificate, Error> {
    let certificate = Certificate::from_pem(pem, pem)?;
    if certificate.valid_until <= now {
        return Err(Error::Expired);
    }
    Ok(certificate)
}

/// Whether a certificate has all names of the settings. A wildcard in it stands only for itself.
pub fn covers_names(settings: &Settings, certificate: &Certificate) -> bool {
    let is_covered = |name: &String| certificate.names.binary_search(name).is_ok();
    settings.names.iter().all(is_covered)
}

/// Saves a key and its chain in PEM. Both are in one file, so that they always belong together.
pub fn save_certificate(settings: &Settings, pem: &[u8]) -> io::Result<()> {
    replace_file(&certificate_path(settings), pem)
}

/// Reads the stored account, as JSON; returns `None` if there is none.
pub fn load_account(settings: &Settings) -> io::Result<Option<Vec<u8>>> {
    match fs::read(directory_folder(settings).join(ACCOUNT_FILE)) {
        Ok(json) => Ok(Some(json)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Saves the account, as JSON.
pub fn save_account(settings: &Settings, json: &[u8]) -> io::Result<()> {
    replace_file(&directory_folder(settings).join(ACCOUNT_FILE), json)
}

/// Verifies that a file can be saved, by saving one and removing it.
///
/// # Errors
///
/// Fails if the folder cannot be written.
pub fn check_writable(settings: &Settings) -> io::Result<()> {
    let probe_path = directory_folder(settings).join("probe");
    replace_file(&probe_path, b"")?;
    fs::remove_file(probe_path)
}

/// The name of the account's file, in the folder of its directory.
const ACCOUNT_FILE: &str = "account.json";

/// The path of a certificate, which is named by the first of its host names.
fn certificate_path(settings: &Settings) -> PathBuf {
    let name = settings.names.first().map_or("", String::as_str);
    directory_folder(settings).join(format!("{name}.pem"))
}

/// The folder of a directory, which is named by its URL without the scheme. `-` replaces all characters but letters, digits
/// and `.`, so that the name has no `/`.
fn directory_folder(settings: &Settings) -> PathBuf {
    let url = &settings.directory_url;
    let without_scheme = url
        .split_once("://")
        .map_or(&**url, |(_, without_scheme)| without_scheme);
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || char == '.' || char == '-';
    let folder_name: String = without_scheme
        .chars()
        .map(|char| if is_allowed(char) { char } else { '-' })
        .collect();
    settings.folder.join(folder_name)
}

/// Replaces a file atomically: a reader gets either the former content or all of the new one. Creates the folder if it
/// is missing.
fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let new_path = path.with_extension("new");
    // A process that was killed may have left a half-written file.
    match fs::remove_file(&new_path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new_path)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new_path, path)?;
    // The renaming itself is on the disk only once the folder is.
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Roots;
    use crate::net::tls::acme::settings::Challenge;

    #[test]
    fn what_is_kept_comes_back_while_it_holds() {
        let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let text = [made.signing_key.serialize_pem(), made.cert.pem()].concat();
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings {
            directory_url: "https://ca.example:14000/dir?a=../b".into(),
            roots: Roots::from_pem(made.cert.pem().as_bytes()).unwrap(),
            names: vec!["a.example".into()],
            contact_email: None,
            folder: folder.path().join("acme"),
            challenge: Challenge::Http01,
        };
        let now = Duration::from_secs(1_800_000_000);
        assert_eq!(load_certificate(&settings, now).unwrap(), None);
        check_writable(&settings).unwrap();
        // A file that a killed process has left does not hinder the next.
        let kept = certificate_path(&settings);
        assert_eq!(
            kept,
            settings
                .folder
                .join("ca.example-14000-dir-a-..-b/a.example.pem")
        );
        fs::write(kept.with_extension("new"), "half").unwrap();
        save_certificate(&settings, text.as_bytes()).unwrap();
        let loaded = load_certificate(&settings, now).unwrap().unwrap();
        assert!(covers_names(&settings, &loaded));
        assert_eq!(fs::read_dir(kept.parent().unwrap()).unwrap().count(), 1);

        assert!(matches!(
            load_certificate(&settings, loaded.valid_until),
            Err(Error::Expired)
        ));
        settings.names.push("b.example".into());
        assert!(!covers_names(
            &settings,
            &load_certificate(&settings, now).unwrap().unwrap()
        ));
        settings.directory_url = "https://other.example/dir".into();
        assert_eq!(load_certificate(&settings, now).unwrap(), None);
    }
}
