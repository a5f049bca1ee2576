//! Rules about one file: its length, its first line, what it must not call.

use crate::code::code_of;

/// The file when it has more than `most` lines.
pub fn longer_than(most: usize, text: &str, path: &str) -> Vec<String> {
    let lines = text.lines().count();
    let long = lines > most;
    long.then(|| format!("{path}: {lines} lines; {most} is the most"))
        .into_iter()
        .collect()
}

/// The file when it does not begin by saying what it is.
pub fn no_module_doc(text: &str, path: &str) -> Vec<String> {
    let said = text
        .strip_prefix("//! ")
        .is_some_and(|rest| !rest.trim_start().is_empty());
    (!said)
        .then(|| format!("{path}: the first line is not a `//!` comment"))
        .into_iter()
        .collect()
}

/// Lines that read a clock.
pub fn reads_time(text: &str, path: &str) -> Vec<String> {
    let why = "time comes in as a value; only src/base/clock.rs reads it";
    calls(&["Instant::now", "SystemTime::now"], why, text, path)
}

/// Lines that name a metric in place.
pub fn raw_metrics(text: &str, path: &str) -> Vec<String> {
    let why = "metrics are named in src/base/telemetry; use its handles";
    calls(&["counter!", "gauge!", "histogram!"], why, text, path)
}

/// Lines that stand for work not done, and tests that do not run.
pub fn left_undone(text: &str, path: &str) -> Vec<String> {
    calls(
        &["todo!", "unimplemented!", "#[ignore"],
        "finish it or leave it out",
        text,
        path,
    )
}

/// Lines whose code has one of `words`, not as the end of a longer word.
fn calls(words: &[&str], why: &str, text: &str, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in code_of(text).lines().enumerate() {
        let whole = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        for word in words {
            if line.match_indices(word).any(|(at, _)| whole(at)) {
                found.push(format!("{path}:{}: `{word}`: {why}", index + 1));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        assert!(longer_than(2, "a\nb\n", "x.rs").is_empty());
        assert_eq!(
            longer_than(2, "a\nb\nc", "x.rs"),
            ["x.rs: 3 lines; 2 is the most"]
        );
    }

    #[test]
    fn first_lines() {
        assert!(no_module_doc("//! What it is.\n", "x.rs").is_empty());
        for bad in ["", "use a;\n//! Late.", "// Plain.", "//! ", "//!"] {
            assert_eq!(no_module_doc(bad, "x.rs").len(), 1, "{bad:?}");
        }
    }

    #[test]
    fn clocks() {
        assert!(reads_time("// Instant::now()\nlet a = \"SystemTime::now\";", "x.rs").is_empty());
        assert!(reads_time("let a = MyInstant::now();", "x.rs").is_empty());
        let found = reads_time("let a = 1;\nlet b = std::time::Instant::now();", "x.rs");
        assert!(found[0].starts_with("x.rs:2: `Instant::now`"), "{found:?}");
        assert_eq!(reads_time("SystemTime::now()", "x.rs").len(), 1);
        assert_eq!(reads_time("map(Instant::now)", "x.rs").len(), 1);
    }

    #[test]
    fn metrics() {
        assert!(raw_metrics("encounter!(1); counter(2);", "x.rs").is_empty());
        assert_eq!(
            raw_metrics("metrics::counter!(\"a\"); gauge!(b);", "x.rs").len(),
            2
        );
        assert_eq!(raw_metrics("histogram!{a}", "x.rs").len(), 1);
    }

    #[test]
    fn undone() {
        assert!(left_undone("// todo!()\nlet ignore = 1;", "x.rs").is_empty());
        assert_eq!(
            left_undone("todo!()\nunimplemented!(\"a\")", "x.rs").len(),
            2
        );
        assert_eq!(
            left_undone("#[test]\n#[ignore = \"slow\"]\nfn f() {}", "x.rs").len(),
            1
        );
    }
}
