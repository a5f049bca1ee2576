//! Files changed in every way that editors and mounts change them.

use std::fs;
use std::path::Path;
use std::sync::mpsc::channel;

use super::*;
use crate::policy::load;

const LONG: Duration = Duration::from_secs(20);
const GATEWAY: &str = "listen: 127.0.0.1:8080\nupstreams: { shop: http://127.0.0.1:9001 }\n";

fn policy(rate: &str) -> String {
    format!("match: /**\nupstream: shop\nlimits: {{ a: {{ key: ip, rate: {rate} }} }}\n")
}

/// A folder with a configuration, and its path.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("policies")).expect("a folder");
    let path = folder.path().join("tollgate.yaml");
    fs::write(&path, GATEWAY).expect("written");
    (folder, path)
}

/// Watches the configuration at `path`, and gives what arrives with each change.
fn watched(path: &Path) -> (ConfigWatch, std::sync::mpsc::Receiver<()>) {
    let loaded = load(path).unwrap_or_else(|report| panic!("{report}"));
    let (tell, told) = channel();
    let changed = move || tell.send(()).unwrap_or(());
    (
        watch(path.to_owned(), loaded.fingerprint, changed).expect("watching"),
        told,
    )
}

#[test]
fn tells_of_changes_and_of_nothing_else() {
    let (folder, path) = folder();
    let file = folder.path().join("policies/api.yaml");
    fs::write(&file, policy("1/s")).expect("written");
    let (_watch, told) = watched(&path);

    // Written again without a change, then with one: told once.
    fs::write(&file, policy("1/s")).expect("written");
    fs::write(&file, policy("2/s")).expect("written");
    assert_eq!(told.recv_timeout(LONG), Ok(()));

    // As editors do it.
    let fresh = folder.path().join("policies/.api.yaml.swp");
    fs::write(&fresh, policy("3/s")).expect("written");
    fs::rename(&fresh, &file).expect("renamed");
    assert_eq!(told.recv_timeout(LONG), Ok(()));

    // A mistake is a change too, and so is a new file, and one that goes.
    fs::write(&file, "match: [").expect("written");
    assert_eq!(told.recv_timeout(LONG), Ok(()));
    fs::write(folder.path().join("policies/b.yaml"), policy("1/s")).expect("written");
    assert_eq!(told.recv_timeout(LONG), Ok(()));
    fs::remove_file(&file).expect("removed");
    assert_eq!(told.recv_timeout(LONG), Ok(()));
    fs::write(&path, format!("{GATEWAY}workers: 3\n")).expect("written");
    assert_eq!(told.recv_timeout(LONG), Ok(()));
    assert!(told.try_recv().is_err(), "told once of each");
}

#[test]
fn sees_a_folder_that_was_made_anew() {
    let (folder, path) = folder();
    let policies = folder.path().join("policies");
    fs::write(policies.join("api.yaml"), policy("1/s")).expect("written");
    let (_watch, told) = watched(&path);
    fs::remove_dir_all(&policies).expect("removed");
    assert_eq!(told.recv_timeout(LONG), Ok(()));
    fs::create_dir(&policies).expect("a folder");
    fs::write(policies.join("api.yaml"), policy("2/s")).expect("written");
    assert_eq!(told.recv_timeout(LONG), Ok(()));
    fs::write(policies.join("api.yaml"), policy("3/s")).expect("written");
    assert_eq!(told.recv_timeout(LONG), Ok(()));
}

#[cfg(unix)]
#[test]
fn follows_the_swapped_links_of_a_config_map() {
    use std::os::unix::fs::symlink;

    let (folder, path) = folder();
    let policies = folder.path().join("policies");
    for (version, rate) in [("..one", "1/s"), ("..two", "2/s")] {
        fs::create_dir(policies.join(version)).expect("a folder");
        fs::write(policies.join(version).join("api.yaml"), policy(rate)).expect("written");
    }
    symlink("..one", policies.join("..data")).expect("linked");
    symlink("..data/api.yaml", policies.join("api.yaml")).expect("linked");
    let (_watch, told) = watched(&path);
    symlink("..two", policies.join("..data_tmp")).expect("linked");
    fs::rename(policies.join("..data_tmp"), policies.join("..data")).expect("renamed");
    assert_eq!(told.recv_timeout(LONG), Ok(()));
    let loaded = load(&path).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(
        loaded.ruleset.rules[0].limit.window(0).unwrap().to_string(),
        "2/s"
    );
}

#[test]
fn ends_when_it_is_dropped() {
    let (folder, path) = folder();
    fs::write(folder.path().join("policies/api.yaml"), policy("1/s")).expect("written");
    let (watch, told) = watched(&path);
    drop(watch);
    // The sender lives in the closure, which goes with the thread.
    assert_eq!(told.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_is_being_written_counts_when_it_is_closed() {
    use std::io::Write;

    let folder = tempfile::tempdir().expect("a folder");
    let mut log = fs::File::create(folder.path().join("refused.log")).expect("made");
    let (events, told) = channel();
    let mut folders = Folders::new(events);
    assert!(folders.follow([folder.path().to_owned()].into()));
    log.write_all(b"a line\n").expect("written");
    assert!(told.recv_timeout(QUIET).is_err());
    drop(log);
    assert!(matches!(told.recv_timeout(LONG), Ok(Signal::Event)));
}
