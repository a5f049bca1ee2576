//! The guide shows nothing but lines of programs that these tests build.

use std::fs;

use super::lean::{SERVICE, root};

#[test]
fn lines_of_the_guide_are_built() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let files = [
        "examples/axum.rs",
        "examples/hyper.rs",
        "examples/tonic/src/main.rs",
        "src/layer/builder.rs",
    ];
    let programs = files.map(read).join("\n") + SERVICE;
    let guide = read("docs/library.md");
    let blocks = guide.split("```rust\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap());
    let lines: Vec<_> = blocks.flat_map(str::lines).map(str::trim).collect();
    assert!(lines.len() > 20, "{lines:?}");
    for line in lines {
        assert!(programs.contains(line), "{line}");
    }
}
