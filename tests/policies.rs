//! What the loader makes of files: the samples that ship, the contract's own, and broken ones whose
//! every message is written down.

// A test that cannot be set up has failed.
#![allow(clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};

use tollgate::policy::{self, Severity};

/// The directories under `tests/golden/broken`, sorted.
fn broken() -> Vec<PathBuf> {
    let folder = fs::read_dir("tests/golden/broken").expect("the folder is there");
    let mut cases: Vec<PathBuf> = folder.map(|entry| entry.expect("entry").path()).collect();
    cases.sort();
    cases
}

/// Messages as they are written down: with paths as if the case's folder were the current one.
fn messages(case: &Path) -> String {
    let report = match policy::load(&case.join("tollgate.yaml")) {
        Ok(_) => return String::from("no mistakes\n"),
        Err(report) => report.to_string(),
    };
    report.replace(&format!("{}/", case.display()), "")
}

/// `UPDATE_GOLDEN=1 cargo test --test policies` writes what is said now; look at the difference.
#[test]
fn broken_files_are_told_word_for_word() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let cases = broken();
    assert!(cases.len() >= 65, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let said = messages(case);
        let path = case.join("expected.txt");
        if update {
            fs::write(&path, &said).expect("written");
            continue;
        }
        if fs::read_to_string(&path).unwrap_or_default() != said {
            wrong.push(format!("=== {}\n{said}", case.display()));
        }
        assert!(
            !said.contains('\u{1b}'),
            "{}: no escape reaches the terminal",
            case.display()
        );
        assert!(said.contains("mistake"), "{} is broken", case.display());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What editors are given; `UPDATE_GOLDEN=1` writes it.
#[test]
fn schemas_are_as_published() {
    for (name, schema) in [
        ("gateway", policy::schema::gateway()),
        ("policy", policy::schema::policy()),
    ] {
        let text = format!("{schema:#}\n");
        let path = format!("tests/golden/schema/{name}.json");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &text).expect("written");
        }
        assert!(
            fs::read_to_string(&path).unwrap_or_default() == text,
            "{path} is not what is made"
        );
    }
}

#[test]
fn samples_run_as_they_are() {
    let loaded =
        policy::load(Path::new("tollgate.yaml")).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.notes, [], "the samples are above reproach");
    assert_eq!(loaded.ruleset.routes.len(), 9);
    let shared: Vec<_> = loaded
        .ruleset
        .rules
        .iter()
        .filter(|rule| rule.name.as_str() == "link-changes")
        .collect();
    assert_eq!(shared.len(), 1, "two routes share one counter");
    let said = policy::describe(&loaded);
    for route in &loaded.ruleset.routes {
        assert!(said.contains(&format!("\n{}: ", route.name)), "{said}");
    }
}

#[test]
fn the_contract_loads_as_written() {
    let path = Path::new("tests/golden/product/tollgate.yaml");
    let loaded = policy::inspect(path).unwrap_or_else(|report| panic!("{report}"));
    let unbuilt: Vec<_> = loaded
        .notes
        .iter()
        .filter(|note| note.severity == Severity::Unbuilt)
        .map(|note| note.message.as_str())
        .collect();
    assert_eq!(unbuilt.len(), 2, "elastic and tls: {unbuilt:?}");
    assert_eq!(loaded.ruleset.routes.len(), 3);
    assert_eq!(
        loaded.process.listen.len(),
        1,
        "nothing answers in plain text on the TLS port"
    );
    let refused = policy::load(path).expect_err("a run refuses what is not built");
    assert!(
        refused
            .to_string()
            .contains("TLS listeners are not built yet")
    );
}
