//! The command itself: what it prints and writes, its exit codes, and that `tollgate check` takes what it has written.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const NGINX: &str = "tests/import/cases/nginx";

fn tollgate(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(arguments).output().expect("the binary runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

#[test]
fn a_folder_is_written_that_check_takes() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("new");
    let out = out.to_str().expect("UTF-8");
    // One that listens on a port that anybody may bind.
    let source = format!("{NGINX}/03-burst-delayed.conf");
    let output = tollgate(&["import", "nginx", &source, "--out", out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("taken   limit_req zone=api burst=12"),
        "{}",
        stderr(&output)
    );
    assert!(
        stdout(&output).starts_with("wrote 2 files to "),
        "{}",
        stdout(&output)
    );
    let gateway = Path::new(out).join("tollgate.yaml");
    let check = tollgate(&[
        "check",
        "--offline",
        "--config",
        gateway.to_str().expect("UTF-8"),
    ]);
    assert_eq!(check.status.code(), Some(0), "{}", stderr(&check));
    assert!(stdout(&check).contains("5/s"), "{}", stdout(&check));

    let again = tollgate(&["import", "nginx", &source, "--out", out]);
    assert_eq!(again.status.code(), Some(2));
    assert!(
        stderr(&again).contains("is not empty: it has "),
        "{}",
        stderr(&again)
    );
}

#[test]
fn files_are_printed_without_a_folder() {
    let output = tollgate(&["import", "nginx", &format!("{NGINX}/01-blog-example.conf")]);
    assert_eq!(output.status.code(), Some(0));
    let printed = stdout(&output);
    assert!(
        printed.starts_with("# --- tollgate.yaml\nversion: 1\n"),
        "{printed}"
    );
    assert!(
        printed.contains("\n# --- policies/login.yaml\n"),
        "{printed}"
    );
}

#[test]
fn limits_that_are_left_are_an_exit_code() {
    let source = format!("{NGINX}/24-jwt-without-keys.conf");
    let output = tollgate(&["import", "nginx", &source, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let lines = report["report"].as_array().expect("lines");
    let left = lines
        .iter()
        .filter(|line| line["fate"] == "left" && line["concern"] == "limits");
    assert!(left.count() > 3, "{report:#}");
    assert_eq!(report["files"][0]["path"], "tollgate.yaml");
}

#[test]
fn inputs_that_cannot_be_imported() {
    let folder = tempfile::tempdir().expect("a folder");
    let latin = folder.path().join("latin.conf");
    fs::write(&latin, b"# \xe9\n").expect("written");
    let large = folder.path().join("large.conf");
    fs::write(&large, "#".repeat((1 << 20) + 1)).expect("written");
    let (latin, large) = (
        latin.to_str().expect("UTF-8"),
        large.to_str().expect("UTF-8"),
    );
    let broken = format!("{NGINX}/broken-brace.conf");
    for (file, expected) in [
        (
            "no-such.conf",
            "cannot read no-such.conf: it does not exist",
        ),
        (latin, "is not UTF-8"),
        (large, "it is larger than 1024 KiB"),
        (NGINX, "it is a folder"),
        (
            &broken,
            "broken-brace.conf:1:7: the file ends within this block",
        ),
    ] {
        let output = tollgate(&["import", "nginx", file]);
        assert_eq!(output.status.code(), Some(2), "{file}");
        assert!(
            stderr(&output).contains(expected),
            "{file}: {}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "", "{file}");
    }
    let output = tollgate(&["import", "apache", "x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("nginx"), "{}", stderr(&output));
}
