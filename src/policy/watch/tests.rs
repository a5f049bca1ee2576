//! Files changed in every way that editors and mounts change them.

use std::fs;
use std::path::Path;
use std::sync::mpsc::channel;

use super::*;
use crate::policy::load;

const TIMEOUT: Duration = Duration::from_secs(20);
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

/// Watches the configuration at `path`, and returns a channel that receives each change.
fn watched(path: &Path) -> (ConfigWatch, std::sync::mpsc::Receiver<()>) {
    let loaded = load(path).unwrap_or_else(|report| panic!("{report}"));
    let (sender, changes) = channel();
    let on_change = move || sender.send(()).unwrap_or(());
    (
        watch(path.to_owned(), loaded.fingerprint, on_change).expect("watching"),
        changes,
    )
}

#[test]
fn reports_changes_and_nothing_else() {
    let (folder, path) = folder();
    let file = folder.path().join("policies/api.yaml");
    fs::write(&file, policy("1/s")).expect("written");
    let (_watch, changes) = watched(&path);

    // Written again without a change, then with one: reported once.
    fs::write(&file, policy("1/s")).expect("written");
    fs::write(&file, policy("2/s")).expect("written");
    assert_eq!(changes.recv_timeout(TIMEOUT), Ok(()));

    // As editors do it.
    let fresh = folder.path().join("policies/.api.yaml.swp");
    fs::write(&fresh, policy("3/s")).expect("written");
    fs::rename(&fresh, &file).expect("renamed");
    assert_eq!(changes.recv_timeout(TIMEOUT), Ok(()));

    // A mistake is a change too, and so are a new file and a removed one.
    fs::write(&file, "match: [").expect("written");
    assert_eq!(changes.recv_timeout(TIMEOUT), Ok(()));
    fs::write(folder.path().join("policies/b.yaml"), policy("1/s")).expect("written");
    assert_eq!(changes.recv_timeout(TIMEOUT), Ok(()));
    fs::remove_file(&file).expect("removed");
    assert_eq!(changes.recv_timeout(TIMEOUT), Ok(()));
    fs::write(&path, format!("{GATEWAY}workers: 3\n")).expect("written");
    assert_eq!(changes.recv_timeout(TIMEOUT), Ok(()));
    assert!(changes.try_recv().is_err(), "reported once each");
}

#[test]
fn notices_a_folder_that_was_created_anew() {
    let (folder, path) = folder();
    let policies = folder.path().join("policies");
    fs::write(policies.join("api.yaml"), policy("1/s")).expect("written");
    let (_watch, changes) = watched(&path);
    fs::remove_dir_all(&policies).expect("removed");
    assert_eq!(changes.recv_timeout(TIMEOUT), Ok(()));
    fs::create_dir(&policies).expect("a folder");
    fs::write(policies.join("api.yaml"), policy("2/s")).expect("written");
    assert_eq!(changes.recv_timeout(TIMEOUT), Ok(()));
    fs::write(policies.join("api.yaml"), policy("3/s")).expect("written");
    assert_eq!(changes.recv_timeout(TIMEOUT), Ok(()));
}

#[test]
fn notices_changes_in_sub_folders() {
    let (folder, path) = folder();
    let policies = folder.path().join("policies");
    fs::write(policies.join("api.yaml"), policy("1/s")).expect("written");
    let (_watch, changes) = watched(&path);
    let expect_change = |what: &str| assert_eq!(changes.recv_timeout(TIMEOUT), Ok(()), "{what}");
    // Made elsewhere and moved, so that the folder and its file are one change.
    let shop = folder.path().join("shop");
    fs::create_dir_all(shop.join("admin")).expect("a folder");
    fs::write(shop.join("admin/users.yaml"), "match: /users\n").expect("written");
    fs::write(shop.join("_defaults.yaml"), "upstream: shop\n").expect("written");
    fs::rename(&shop, policies.join("shop")).expect("moved");
    expect_change("a new folder");
    let shop = policies.join("shop");
    fs::write(shop.join("admin/users.yaml"), "match: /others\n").expect("written");
    expect_change("a policy two folders below");
    fs::write(
        shop.join("_defaults.yaml"),
        "upstream: shop\nheaders: both\n",
    )
    .expect("written");
    expect_change("defaults");
    fs::write(shop.join("admin/_defaults.yaml"), "priority: low\n").expect("written");
    expect_change("new defaults");
    fs::remove_dir_all(shop.join("admin")).expect("removed");
    expect_change("a removed folder");
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
        let shop = policies.join(version).join("shop");
        fs::create_dir(&shop).expect("a folder");
        let items = format!(
            "match: /{}\nupstream: shop\n",
            version.trim_start_matches('.')
        );
        fs::write(shop.join("items.yaml"), items).expect("written");
    }
    symlink("..one", policies.join("..data")).expect("linked");
    symlink("..data/api.yaml", policies.join("api.yaml")).expect("linked");
    symlink("..data/shop", policies.join("shop")).expect("linked");
    let (_watch, changes) = watched(&path);
    symlink("..two", policies.join("..data_tmp")).expect("linked");
    fs::rename(policies.join("..data_tmp"), policies.join("..data")).expect("renamed");
    assert_eq!(changes.recv_timeout(TIMEOUT), Ok(()));
    let loaded = load(&path).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(
        loaded.ruleset.rules[0].limit.window(0).unwrap().to_string(),
        "2/s"
    );
    let routes = loaded.ruleset.routes.iter();
    let routes: Vec<String> = routes
        .map(|route| format!("{} {}", route.name, route.pattern))
        .collect();
    assert_eq!(routes, ["api /**", "shop/items /two"]);
}

#[test]
fn ends_when_it_is_dropped() {
    let (folder, path) = folder();
    fs::write(folder.path().join("policies/api.yaml"), policy("1/s")).expect("written");
    let (watch, changes) = watched(&path);
    drop(watch);
    // The sender lives in the closure, which is dropped when the thread ends.
    assert_eq!(
        changes.recv_timeout(TIMEOUT),
        Err(RecvTimeoutError::Disconnected)
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_is_being_written_counts_when_it_is_closed() {
    use std::io::Write;

    let folder = tempfile::tempdir().expect("a folder");
    let mut log = fs::File::create(folder.path().join("refused.log")).expect("made");
    let (events, signals) = channel();
    let mut folders = WatchedFolders::new(events);
    assert!(folders.replace_by([folder.path().to_owned()].into()));
    log.write_all(b"a line\n").expect("written");
    assert!(signals.recv_timeout(QUIET_TIME).is_err());
    drop(log);
    assert!(matches!(
        signals.recv_timeout(TIMEOUT),
        Ok(WatchSignal::FolderEvent)
    ));
}
