//! The repository checks its own style: what a reader may rely on is held here, not remembered.
//! Every check is a function from text to mistakes, with tests on text that has them.

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/code.rs"]
mod code;
#[path = "tidy/floors.rs"]
mod floors;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/pages.rs"]
mod pages;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/rules.rs"]
mod rules;

use std::fs;
use std::path::Path;

use floors::Floors;

/// One file, its path relative to the repository and with `/`.
#[derive(Clone)]
struct File {
    path: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// All files below a folder whose names end in `end`; none when there is no such folder.
fn files(folder: &str, end: &str) -> Vec<File> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(root().join(folder)) else {
        return found;
    };
    for entry in entries {
        let entry = entry.unwrap_or_else(|e| panic!("{folder}: {e}"));
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            found.extend(files(&path, end));
        } else if path.ends_with(end) {
            found.push(File {
                text: read(&path),
                path,
            });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Every Rust file that people read.
fn all_code() -> Vec<File> {
    let folders = ["src", "tests", "benches", "examples", "fuzz/fuzz_targets"];
    folders
        .iter()
        .flat_map(|folder| files(folder, ".rs"))
        .collect()
}

fn none(mistakes: Vec<String>) {
    assert!(mistakes.is_empty(), "\n{}\n", mistakes.join("\n"));
}

#[test]
fn imports_go_downward() {
    let floors = Floors::read(&read("src/lib.rs")).unwrap_or_else(|e| panic!("src/lib.rs: {e}"));
    none(floors.mistakes(&files("src", ".rs")));
}

#[test]
fn files_do_not_lead_back_to_each_other() {
    none(circles::circles(&files("src", ".rs")).unwrap_or_else(|e| panic!("{e}")));
}

/// Names that several types may share, and why.
const SHARED: [(&str, &str); 3] = [
    (
        "Arguments",
        "of each verb of the command line, named by its module",
    ),
    ("Error", "of each module that has one, named by its module"),
    (
        "Settings",
        "of each module that has some, named by its module",
    ),
];

#[test]
fn types_have_names_of_their_own() {
    let sources = files("src", ".rs");
    let mut shared = names::shared(&sources).unwrap_or_else(|e| panic!("{e}"));
    for (name, _) in SHARED {
        shared.remove(name);
    }
    let mistake = |(name, files): (_, Vec<_>)| format!("`{name}` is in {}", files.join(", "));
    none(shared.into_iter().map(mistake).collect());
}

#[test]
fn main_only_calls_the_library() {
    none(rules::longer_than(20, &read("src/main.rs"), "src/main.rs"));
}

#[test]
fn files_are_short() {
    none(
        all_code()
            .iter()
            .flat_map(|f| rules::longer_than(500, &f.text, &f.path))
            .collect(),
    );
}

#[test]
fn modules_say_what_they_are() {
    none(
        all_code()
            .iter()
            .flat_map(|f| rules::no_module_doc(&f.text, &f.path))
            .collect(),
    );
}

#[test]
fn only_the_clock_reads_time() {
    let others = files("src", ".rs")
        .into_iter()
        .filter(|f| f.path != "src/base/clock.rs");
    none(
        others
            .flat_map(|f| rules::reads_time(&f.text, &f.path))
            .collect(),
    );
}

#[test]
fn only_telemetry_names_metrics() {
    let others = files("src", ".rs")
        .into_iter()
        .filter(|f| !f.path.starts_with("src/base/telemetry"));
    none(
        others
            .flat_map(|f| rules::raw_metrics(&f.text, &f.path))
            .collect(),
    );
}

#[test]
fn nothing_is_left_undone() {
    none(
        all_code()
            .iter()
            .flat_map(|f| rules::left_undone(&f.text, &f.path))
            .collect(),
    );
}

#[test]
fn pages_name_every_policy_and_example() {
    let shipped = [
        files("policies", ".yaml"),
        files("examples", ""),
        files("packaging", ""),
    ];
    let shipped = shipped.concat();
    let paths: Vec<_> = shipped.iter().map(|file| file.path.as_str()).collect();
    let text: String = all_pages().into_iter().map(|page| page.text).collect();
    none(pages::unnamed(&paths, &text));
}

/// Every page that users read.
fn all_pages() -> Vec<File> {
    let beside = [
        "README.md",
        "CONTRIBUTING.md",
        "ARCHITECTURE.md",
        "SECURITY.md",
        "policies/README.md",
        "packaging/README.md",
    ];
    let beside = beside.map(|path| File {
        path: path.to_owned(),
        text: read(path),
    });
    [
        files("docs", ".md"),
        files("examples", ".md"),
        beside.into(),
    ]
    .concat()
}

#[test]
fn links_lead_somewhere() {
    let pages = all_pages();
    let anchors = |path: &str| {
        let page = pages.iter().find(|page| page.path == path);
        page.map(|page| pages::anchors(&page.text))
    };
    let is_there = |path: &str| root().join(path).exists();
    let broken = |page: &File| pages::broken_links(&page.text, &page.path, is_there, anchors);
    none(pages.iter().flat_map(broken).collect());
}

#[test]
fn the_readme_is_short_and_names_every_guide() {
    let readme = read("README.md");
    none(rules::longer_than(200, &readme, "README.md"));
    let guides = files("docs", ".md");
    let missing = guides
        .iter()
        .filter(|guide| !readme.contains(&format!("({})", guide.path)));
    none(
        missing
            .map(|guide| format!("README.md does not link {}", guide.path))
            .collect(),
    );
}

#[test]
fn readme_begins_with_its_commands() {
    let commands = ["cargo run --release -- demo", "make test"];
    none(pages::first_block_lacks(&commands, &read("README.md")));
}

#[test]
fn architecture_names_every_module() {
    let floors = Floors::read(&read("src/lib.rs")).unwrap_or_else(|e| panic!("src/lib.rs: {e}"));
    none(pages::modules_missing(
        &floors.names(),
        &read("ARCHITECTURE.md"),
    ));
}

#[test]
fn architecture_names_files_that_exist() {
    let page = read("ARCHITECTURE.md");
    none(pages::missing_files(&page, |path| {
        root().join(path).exists()
    }));
}

#[test]
fn sentences_are_short() {
    let code = files("src", ".rs");
    let in_code = code
        .iter()
        .flat_map(|f| prose::long_in_code(&f.text, &f.path));
    let pages = all_pages();
    let on_pages = pages
        .iter()
        .flat_map(|f| prose::long_on_page(&f.text, &f.path));
    none(in_code.chain(on_pages).collect());
}
