//! What imports of other gateways' configurations write and report: cases as files, results word for word.
//!
//! A case is a file `tests/import/cases/FORMAT/NAME.EXT`, or a folder of several files. `NAME.golden` beside it has the
//! report, the files, and the warnings of a check. `UPDATE_GOLDEN=1 cargo test --test import` writes what is there now;
//! look at the difference.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "import/bounds.rs"]
mod bounds;
#[path = "import/command.rs"]
mod command;
mod common;
#[path = "import/equality.rs"]
mod equality;
#[path = "import/haproxy_counter.rs"]
mod haproxy_counter;
#[path = "import/hostile.rs"]
mod hostile;
#[path = "import/mangled.rs"]
mod mangled;
#[path = "import/never_looser.rs"]
mod never_looser;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use common::certificate::Certificate;
use tollgate::import::render::{render_files, render_report};
use tollgate::import::{self, Imported, InputFile, NeededKind, SourceFormat};
use tollgate::policy;
use tollgate::policy::source::MemoryFiles;

const CASES: &str = "tests/import/cases";

/// The cases of a format, sorted: files, and folders of files, without the golden files.
fn cases(format: SourceFormat) -> Vec<PathBuf> {
    let folder = Path::new(CASES).join(format.as_str());
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut cases: Vec<PathBuf> = entries.map(|entry| entry.expect("entry").path()).collect();
    cases.retain(|path| {
        path.extension()
            .is_none_or(|extension| extension != "golden")
    });
    cases.sort();
    cases
}

/// The files of a case, with paths as if its folder were the current one.
fn sources(case: &Path) -> Vec<InputFile> {
    let mut paths = vec![case.to_owned()];
    let mut base = case.parent().expect("a folder").to_owned();
    if case.is_dir() {
        base = case.to_owned();
        paths = fs::read_dir(case)
            .expect("a folder")
            .map(|entry| entry.expect("entry").path())
            .collect();
        paths.sort();
    }
    let source = |path: PathBuf| InputFile {
        path: path
            .strip_prefix(&base)
            .expect("below")
            .display()
            .to_string(),
        text: fs::read_to_string(&path).expect("a text"),
    };
    paths.into_iter().map(source).collect()
}

/// Loads what was written as the gateway would, with files in place of those that it needs, and lists the warnings.
fn check(imported: &Imported) -> String {
    let certificate = Certificate::of(&["example.com"]);
    let key_set = fs::read_to_string("examples/identity/jwks.json").expect("a key set");
    let needed = imported.needed_files.iter().map(|file| {
        let text = match file.kind {
            NeededKind::Certificate => &certificate.pem,
            NeededKind::PrivateKey => &certificate.key,
            NeededKind::KeySet => &key_set,
        };
        (file.path.as_str(), text.as_str())
    });
    let written = imported
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.text.as_str()));
    let files = MemoryFiles::new(written.chain(needed));
    match policy::load_from(&files, Path::new("tollgate.yaml")) {
        Err(report) => format!("REFUSED\n{report}"),
        Ok(loaded) => {
            let mut text = format!("{} routes\n", loaded.ruleset.routes.len());
            for warning in &loaded.warnings {
                let _ = writeln!(
                    text,
                    "{}:{}: {}",
                    warning.file, warning.line, warning.message
                );
            }
            text
        }
    }
}

fn result(format: SourceFormat, case: &Path) -> String {
    match import::import(format, &sources(case)) {
        Ok(imported) => format!(
            "{}\n{}\n# --- check\n{}",
            render_report(&imported),
            render_files(&imported),
            check(&imported)
        ),
        Err(error) => format!("{error}\n"),
    }
}

#[test]
fn cases_are_imported_word_for_word() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut wrong = Vec::new();
    for format in SourceFormat::ALL {
        for case in cases(format) {
            let result = result(format, &case);
            let golden = case.with_extension("golden");
            let is_refused = result.contains("REFUSED") || result.contains("a fault of the import");
            if is_refused {
                wrong.push(format!("=== {}\n{result}", golden.display()));
            } else if update {
                fs::write(&golden, &result).expect("written");
            } else if fs::read_to_string(&golden).unwrap_or_default() != result {
                wrong.push(format!("=== {}\n{result}", golden.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_format_has_cases() {
    for format in SourceFormat::ALL {
        assert!(!cases(format).is_empty(), "{}", format.as_str());
    }
}
