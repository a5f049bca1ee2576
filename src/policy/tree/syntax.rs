//! Messages about texts that are not YAML.

use super::place::{SourcePlace, place_of};

/// Why a text cannot be parsed.
#[derive(Clone, Debug)]
pub struct SyntaxError {
    /// Where reading stopped.
    pub place: SourcePlace,
    /// What is wrong there.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// What is wrong with a text that is no YAML, or costs too much.
pub(super) fn error(file: u32, text: &str, error: &serde_yaml::Error) -> SyntaxError {
    let start = SourcePlace {
        file,
        line: 1,
        column: 1,
        width: 1,
        more: 0,
    };
    let place = error.location().map_or(start, |at| place_of(file, &at));
    let full = error.to_string();
    // The place is told already.
    let said = full.split(" at line ").next().unwrap_or(&full);
    let costs = |what: &str| {
        Some((
            "the file costs too much to read",
            format!("{what}; split it"),
        ))
    };
    let known = if said.contains("Documents") {
        Some((
            "a file holds one document",
            String::from("put what stands behind `---` into a file of its own"),
        ))
    } else if said.contains("Depth") || said.contains("recursion limit") || said.contains("nest") {
        costs("lists and maps are too deep inside each other")
    } else if said.contains("Nodes")
        || said.contains("Events") && !said.contains("Anchor")
        || said.contains("too long")
    {
        costs("it has too many values")
    } else if said.contains("Anchor")
        || said.contains("Alias")
        || said.contains("alias replay")
        || said.contains("alias expansion")
    {
        costs("its aliases repeat too much")
    } else if said.starts_with("budget breached") {
        costs("it is too large")
    } else if said.contains("recursive references") {
        Some((
            "an alias stands inside its own anchor",
            String::from("write the value out"),
        ))
    } else if said.contains("expected string scalar") || said.contains("null into string") {
        Some(("a key is a plain word", String::from("write `name: value`")))
    } else {
        None
    };
    if let Some((message, help)) = known {
        return SyntaxError {
            place,
            message: message.into(),
            help: Some(help),
        };
    }
    let line = usize::try_from(place.line).unwrap_or(1).saturating_sub(1);
    let line = text.lines().nth(line).unwrap_or("");
    SyntaxError {
        place,
        message: format!("this is not YAML: {said}"),
        help: cure(said, line),
    }
}

/// What to do about the usual mistakes.
fn cure(said: &str, line: &str) -> Option<String> {
    let starts = |c: char| line.contains(&format!(": {c}")) || line.contains(&format!("- {c}"));
    let help = if line.contains("${") {
        "put a value that has `${` into quotes"
    } else if said.contains("tab") {
        "indent with spaces"
    } else if said.contains("unknown anchor") || starts('*') {
        "put a value that begins with `*` into quotes"
    } else if said.contains("unexpected character") && (starts('@') || starts('%') || starts('`')) {
        "put a value that begins with this character into quotes"
    } else if said.contains("quoted scalar") {
        "a quote is not closed, or not on the line where it should be"
    } else if said.contains("mapping values are not allowed") {
        "a `: ` inside a value needs quotes; else look at the indentation of this line"
    } else if said.contains("did not find expected") || said.contains("indent") {
        "look at the indentation: fields of one map begin in the same column"
    } else if said.contains("bracket") || said.contains("':' indicator") || said.contains("flow") {
        "each `[` needs its `]`, and each `{` its `}`"
    } else {
        return None;
    };
    Some(help.into())
}
