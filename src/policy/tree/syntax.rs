//! Turns errors of the YAML parser into messages that say what is wrong and what to do. The parser's errors differ only
//! in their texts, so these functions search the texts for phrases.

use super::location::{SourceLocation, location_from_parser};

/// Why a text cannot be parsed.
#[derive(Clone, Debug)]
pub struct SyntaxError {
    /// The location where the parser stopped, or the start of the file if it is unknown.
    pub location: SourceLocation,
    /// What is wrong there.
    pub message: String,
    /// What the author of the file can do.
    pub help: Option<String>,
}

/// Describes the error of a text that is not YAML or exceeds a bound of the parser.
pub(super) fn syntax_error(file: u32, text: &str, error: &serde_yaml::Error) -> SyntaxError {
    let location = error
        .location()
        .map_or(SourceLocation::start_of(file), |position| {
            location_from_parser(file, &position)
        });
    let full_message = error.to_string();
    // The diagnostic has the location already.
    let parser_message = full_message
        .split(" at line ")
        .next()
        .unwrap_or(&full_message);
    let message_and_help =
        exceeded_bound(parser_message).or_else(|| unsupported_syntax(parser_message));
    if let Some((message, help)) = message_and_help {
        return SyntaxError {
            location,
            message: message.into(),
            help: Some(help),
        };
    }
    let line_index = usize::try_from(location.line)
        .unwrap_or(1)
        .saturating_sub(1);
    let line = text.lines().nth(line_index).unwrap_or("");
    SyntaxError {
        location,
        message: format!("this is not YAML: {parser_message}"),
        help: suggest_fix(parser_message, line),
    }
}

/// The message and the help if the text exceeds a bound of the parser; `None` for any other error. The order of the
/// tests matters, because the phrases overlap.
fn exceeded_bound(parser_message: &str) -> Option<(&'static str, String)> {
    let contains = |phrase: &str| parser_message.contains(phrase);
    let cause = if contains("Documents") {
        let help = "put what stands behind `---` into a file of its own";
        return Some(("a file holds one document", help.into()));
    } else if contains("Depth") || contains("recursion limit") || contains("nest") {
        "lists and maps are too deep inside each other"
    } else if contains("Nodes") || contains("Events") && !contains("Anchor") || contains("too long")
    {
        "it has too many values"
    } else if contains("Anchor")
        || contains("Alias")
        || contains("alias replay")
        || contains("alias expansion")
    {
        "its aliases repeat too much"
    } else if parser_message.starts_with("budget breached") {
        "it is too large"
    } else {
        return None;
    };
    Some((
        "the file costs too much to read",
        format!("{cause}; split it"),
    ))
}

/// The message and the help if the text is YAML of a kind that configuration files may not use; `None` for any other
/// error.
fn unsupported_syntax(parser_message: &str) -> Option<(&'static str, String)> {
    let contains = |phrase: &str| parser_message.contains(phrase);
    if contains("recursive references") {
        let help = "write the value out";
        Some(("an alias stands inside its own anchor", help.into()))
    } else if contains("expected string scalar") || contains("null into string") {
        Some(("a key is a plain word", "write `name: value`".into()))
    } else {
        None
    }
}

/// What to do about a common mistake, by the parser's message and the text of the line; `None` for other mistakes.
fn suggest_fix(parser_message: &str, line: &str) -> Option<String> {
    let has_value_starting_with =
        |c: char| line.contains(&format!(": {c}")) || line.contains(&format!("- {c}"));
    let help = if line.contains("${") {
        "put a value that has `${` into quotes"
    } else if parser_message.contains("tab") {
        "indent with spaces"
    } else if parser_message.contains("unknown anchor") || has_value_starting_with('*') {
        "put a value that begins with `*` into quotes"
    } else if parser_message.contains("unexpected character")
        && (has_value_starting_with('@')
            || has_value_starting_with('%')
            || has_value_starting_with('`'))
    {
        "put a value that begins with this character into quotes"
    } else if parser_message.contains("quoted scalar") {
        "a quote is not closed, or not on the line where it should be"
    } else if parser_message.contains("mapping values are not allowed") {
        "a `: ` inside a value needs quotes; else look at the indentation of this line"
    } else if parser_message.contains("did not find expected") || parser_message.contains("indent")
    {
        "look at the indentation: fields of one map begin in the same column"
    } else if parser_message.contains("bracket")
        || parser_message.contains("':' indicator")
        || parser_message.contains("flow")
    {
        "each `[` needs its `]`, and each `{` its `}`"
    } else {
        return None;
    };
    Some(help.into())
}
