//! Sub-folders of policies and `_defaults.yaml`: what is read, what is warned of, and the sample of the guide.

use std::fs;
use std::path::Path;

use tollgate::policy::source::{DiskFiles, Files, MemoryFiles};
use tollgate::policy::{self, LoadedConfig};

const GATEWAY: &str = "listen: 127.0.0.1:0\nupstreams: { shop: http://127.0.0.1:9001 }\n";
const POLICY: &str = "match: /a\nupstream: shop\n";

fn load(files: &[(&str, &str)]) -> LoadedConfig {
    let files = MemoryFiles::new([("tollgate.yaml", GATEWAY)].iter().chain(files).copied());
    policy::load_from(&files, Path::new("tollgate.yaml"))
        .unwrap_or_else(|report| panic!("{report}"))
}

fn warnings(files: &[(&str, &str)]) -> Vec<String> {
    let warnings = load(files).warnings.into_iter();
    warnings
        .map(|warning| format!("{}: {}", warning.file, warning.message))
        .collect()
}

#[test]
fn defaults_without_policies_are_warned_of() {
    let nowhere = "no policy is in this folder or below: these defaults hold nowhere";
    let defaults = "headers: both\n";
    let files = [
        ("policies/_defaults.yaml", defaults),
        ("policies/a/b/_defaults.yaml", defaults),
        ("policies/a.yaml", POLICY),
        ("policies/a-b/b/c.yaml", "match: /b\nupstream: shop\n"),
        ("policies/a-b/_defaults.yaml", defaults),
        ("policies/.hidden/_defaults.yaml", "no: field\n"),
    ];
    let expected = format!("policies/a/b/_defaults.yaml: {nowhere}");
    assert_eq!(warnings(&files), [expected]);

    let listed = "limits:\n  rare: { key: ip, rate: 1/h, routes: listed }\n";
    let files = [
        ("policies/shop/_defaults.yaml", listed),
        ("policies/shop/notes.yml", listed),
        ("policies/shop/a.yaml", POLICY),
    ];
    let expected = [
        "policies/shop/_defaults.yaml: no policy lists the limit `rare`: it applies nowhere",
        "tollgate.yaml: `policies/shop/notes.yml` is not read",
    ];
    assert_eq!(warnings(&files), expected);
}

/// A mount of a ConfigMap with `items` in folders: each folder is a link into `..data`.
#[cfg(unix)]
#[test]
fn links_to_folders_are_followed_but_never_in_circles() {
    use std::os::unix::fs::symlink;

    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("policies");
    fs::create_dir_all(policies.join("..data/shop")).unwrap();
    fs::write(policies.join("..data/shop/items.yaml"), POLICY).unwrap();
    symlink("..data/shop", policies.join("shop")).unwrap();
    fs::write(folder.path().join("tollgate.yaml"), GATEWAY).unwrap();
    let config = folder.path().join("tollgate.yaml");
    let loaded = policy::load(&config).unwrap_or_else(|report| panic!("{report}"));
    let names = loaded.ruleset.routes.iter().map(|route| &*route.name);
    assert_eq!(names.collect::<Vec<_>>(), ["shop/items"]);
    let listing = DiskFiles.list(&policies).unwrap();
    assert_eq!(
        (listing.files.len(), listing.folders),
        (0, vec!["shop".to_owned()])
    );

    symlink("nowhere", policies.join("gone")).unwrap();
    let report = policy::load(&config).unwrap_err().to_string();
    let gone = "`gone` is a link that leads nowhere, or cannot be read; mend or remove it";
    assert!(report.contains(gone), "{report}");
    fs::remove_file(policies.join("gone")).unwrap();

    symlink("..", policies.join("..data/shop/round")).unwrap();
    let report = policy::load(&config).unwrap_err().to_string();
    assert!(
        report.contains("`round` is a link to a folder that it is in; remove it"),
        "{report}"
    );
}

/// A folder that cannot hold policies need not be readable.
#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_read_is_a_mistake_if_policies_may_be_in_it() {
    struct Unreadable(MemoryFiles);
    impl Files for Unreadable {
        fn read(&self, path: &Path, max_bytes: usize) -> Result<Vec<u8>, String> {
            self.0.read(path, max_bytes)
        }
        fn list(&self, folder: &Path) -> Result<policy::source::FolderListing, String> {
            match folder == Path::new("policies") {
                true => self.0.list(folder),
                false => Err("permission denied".into()),
            }
        }
    }
    let load = |name: &str| {
        let file = format!("policies/{name}/x");
        let files = [
            ("tollgate.yaml", GATEWAY),
            ("policies/a.yaml", POLICY),
            (&*file, ""),
        ];
        policy::load_from(
            &Unreadable(MemoryFiles::new(files)),
            Path::new("tollgate.yaml"),
        )
    };
    assert!(load("lost+found").is_ok());
    let report = load("shop").unwrap_err().to_string();
    let expected = "cannot read the folder `policies/shop`: permission denied";
    assert!(report.contains(expected), "{report}");
}

/// Nine files of a small gateway, which the guide shows line by line, say one limit and one upstream once.
#[test]
fn nine_policies_share_what_the_guide_says_once() {
    let page = fs::read_to_string("docs/limits.md").unwrap();
    let (_, sample) = page.split_once("```text\npolicies/").unwrap();
    let (sample, _) = sample.split_once("```").unwrap();
    let sample = format!("policies/{sample}");
    let mut files: Vec<(String, String)> = Vec::new();
    for line in sample.lines() {
        let (path, text) = line.split_once("  ").unwrap();
        match path.is_empty() {
            false => files.push((path.to_owned(), format!("{}\n", text.trim()))),
            true => files.last_mut().unwrap().1 += &format!("{}\n", &line[28..]),
        }
    }
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (&**path, &**text))
        .collect();
    let loaded = load(&files);
    assert_eq!(loaded.warnings, []);
    let ruleset = &loaded.ruleset;
    assert_eq!((files.len(), ruleset.routes.len()), (10, 9));
    let scopes: Vec<&str> = ruleset
        .rules
        .iter()
        .map(|rule| rule.scope.as_str())
        .collect();
    assert_eq!(scopes, ["_defaults.yaml/per-address", "login/guesses"]);
    for route in &ruleset.routes {
        assert_eq!(route.rules.first().unwrap().name.as_str(), "per-address");
    }
}
