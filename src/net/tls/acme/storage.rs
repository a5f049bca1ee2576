//! Accounts and certificates on the disk. Each directory has a folder of its own, so that certificates of a directory for
//! tests are never mistaken for real ones. Only the owner may read the files.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::Error;
use super::settings::Settings;
use crate::net::Certificate;

/// The stored certificate, if there is one. It may cover other names than the settings: for those that it covers, it is
/// better than none.
///
/// # Errors
///
/// The stored certificate has expired or cannot be read.
pub fn load(settings: &Settings, wall: Duration) -> Result<Option<Certificate>, Error> {
    match fs::read(certificate(settings)) {
        Ok(text) => read(&text, wall).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads a key and a chain in PEM.
///
/// # Errors
///
/// The text cannot be read, or the certificate has expired at `wall`.
pub fn read(text: &[u8], wall: Duration) -> Result<Certificate, Error> {
    let certificate = Certificate::from_pem(text, text)?;
    if certificate.until <= wall {
        return Err(Error::Expired);
    }
    Ok(certificate)
}

/// Whether the certificate covers all names of the settings.
pub fn covers(settings: &Settings, certificate: &Certificate) -> bool {
    let named = |name: &String| certificate.names.binary_search(name).is_ok();
    settings.names.iter().all(named)
}

/// Saves a key and its chain, both in one file so that they always belong together.
pub fn save(settings: &Settings, text: &[u8]) -> io::Result<()> {
    write(&certificate(settings), text)
}

/// The stored account, as JSON; nothing where there is none.
pub fn account(settings: &Settings) -> io::Result<Option<Vec<u8>>> {
    match fs::read(folder(settings).join(ACCOUNT)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Saves the account.
pub fn save_account(settings: &Settings, text: &[u8]) -> io::Result<()> {
    write(&folder(settings).join(ACCOUNT), text)
}

/// Fails where nothing can be saved.
pub fn probe(settings: &Settings) -> io::Result<()> {
    let probe = folder(settings).join("probe");
    write(&probe, b"")?;
    fs::remove_file(probe)
}

const ACCOUNT: &str = "account.json";

fn certificate(settings: &Settings) -> PathBuf {
    let name = settings.names.first().map_or("", String::as_str);
    folder(settings).join(format!("{name}.pem"))
}

fn folder(settings: &Settings) -> PathBuf {
    let directory = &settings.directory;
    let name = directory
        .split_once("://")
        .map_or(&**directory, |(_, rest)| rest);
    let plain = |char: char| char.is_ascii_alphanumeric() || char == '.' || char == '-';
    let name: String = name
        .chars()
        .map(|char| if plain(char) { char } else { '-' })
        .collect();
    settings.dir.join(name)
}

/// Replaces a file as a whole: a reader finds its former content or all of the new one.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let next = path.with_extension("new");
    // A process that was killed may have left one.
    match fs::remove_file(&next) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&next)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
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
            directory: "https://ca.example:14000/dir?a=../b".into(),
            roots: Roots::from_pem(made.cert.pem().as_bytes()).unwrap(),
            names: vec!["a.example".into()],
            contact: None,
            dir: folder.path().join("acme"),
            challenge: Challenge::Http01,
        };
        let now = Duration::from_secs(1_800_000_000);
        assert_eq!(load(&settings, now).unwrap(), None);
        probe(&settings).unwrap();
        // A file that a killed process has left does not hinder the next.
        let kept = certificate(&settings);
        assert_eq!(
            kept,
            settings
                .dir
                .join("ca.example-14000-dir-a-..-b/a.example.pem")
        );
        fs::write(kept.with_extension("new"), "half").unwrap();
        save(&settings, text.as_bytes()).unwrap();
        let loaded = load(&settings, now).unwrap().unwrap();
        assert!(covers(&settings, &loaded));
        assert_eq!(fs::read_dir(kept.parent().unwrap()).unwrap().count(), 1);

        assert!(matches!(load(&settings, loaded.until), Err(Error::Expired)));
        settings.names.push("b.example".into());
        assert!(!covers(&settings, &load(&settings, now).unwrap().unwrap()));
        settings.directory = "https://other.example/dir".into();
        assert_eq!(load(&settings, now).unwrap(), None);
    }
}
