//! Collects diagnostics about this machine, and locates the line of the gateway file that each of them is about. Values
//! that were filled in for references are not shown, because they may be secrets.

use std::sync::Arc;

use crate::policy::diagnostic::{Diagnostic, Excerpt};
use crate::policy::{FilledValue, LoadedConfig, Severity};

/// The diagnostics so far, and the gateway file that they are about.
pub struct PreflightDiagnostics<'l> {
    /// The path of the gateway file.
    path: Arc<str>,
    /// The text of the gateway file, before references are filled in; empty if it was not loaded from `path`.
    text: &'l str,
    /// The references that were filled in.
    filled_values: &'l [FilledValue],
    /// The diagnostics so far.
    pub list: Vec<Diagnostic>,
}

/// Where a diagnostic is in the gateway file: a part of one line.
struct LineLocation<'l> {
    /// The text of the whole line.
    line: &'l str,
    /// The number of the line, from 1.
    number: u32,
    /// The number of characters before the part.
    chars_before: usize,
    /// The length of the part in characters.
    char_count: usize,
}

/// Locates the word of a line that contains the last occurrence of `value`; `None` if there is none, or if `value` is
/// empty.
fn locate_value<'l>(line: &'l str, number: u32, value: &str) -> Option<LineLocation<'l>> {
    // All delimiters are ASCII, so each is one byte.
    let is_delimiter = |c: char| c.is_ascii_whitespace() || "\"'[]{},".contains(c);
    let offset = line.rfind(value).filter(|_| !value.is_empty())?;
    let start = line[..offset]
        .rfind(is_delimiter)
        .map_or(0, |delimiter| delimiter + 1);
    let end = line[offset..]
        .find(is_delimiter)
        .map_or(line.len(), |length| offset + length);
    Some(LineLocation {
        line,
        number,
        chars_before: line[..start].chars().count(),
        char_count: line[start..end].chars().count(),
    })
}

impl<'l> PreflightDiagnostics<'l> {
    /// Creates an empty list. `config_path` is the path of the gateway file.
    pub fn new(loaded: &'l LoadedConfig, config_path: &str) -> PreflightDiagnostics<'l> {
        let mut files = loaded.ruleset.files.iter();
        let gateway_file = files.find(|(path, _)| path == config_path);
        PreflightDiagnostics {
            path: config_path.into(),
            text: gateway_file.map_or("", |(_, text)| text),
            filled_values: &loaded.filled,
            list: Vec::new(),
        }
    }

    /// Adds a diagnostic about the value of a top-level field of the gateway file, or about the default of that field.
    /// It is located at the value, else at the name of the field, else at the first line.
    fn add_diagnostic(
        &mut self,
        severity: Severity,
        (field, value): (&str, &str),
        message: String,
        help: &str,
    ) {
        let lines = self.field_lines(field);
        let field_location = lines.first().map(|(line, number)| LineLocation {
            line,
            number: *number,
            chars_before: 0,
            char_count: field.chars().count(),
        });
        let location = lines
            .into_iter()
            .find_map(|(line, number)| locate_value(line, number, value))
            .or(field_location);
        let to_u32 = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let column = to_u32(
            location
                .as_ref()
                .map_or(0, |location| location.chars_before),
        );
        let column = column.saturating_add(1);
        self.list.push(Diagnostic {
            severity,
            file: self.path.clone(),
            line: location.as_ref().map_or(1, |location| location.number),
            column,
            message,
            help: Some(help.to_owned()),
            excerpt: location
                .map(|location| Excerpt::cut(location.line, column, to_u32(location.char_count))),
        });
    }

    /// Returns the lines of a top-level field of the gateway file, with line numbers from 1; empty if the file lacks
    /// the field.
    fn field_lines(&self, field: &str) -> Vec<(&'l str, u32)> {
        let lines = self.text.lines().zip(1..);
        let begins_field = |line: &str| {
            let after_name = line.trim_start_matches(['"', '\'']).strip_prefix(field);
            after_name.is_some_and(|after_name| {
                after_name.trim_start_matches(['"', '\'']).starts_with(':')
            })
        };
        let mut lines = lines.skip_while(|(line, _)| !begins_field(line));
        let first_line = lines.next();
        // A letter or digit at the beginning of a line begins another field. Items of a list may begin with `-` there.
        let indented_lines =
            lines.take_while(|(line, _)| !line.starts_with(|c: char| c.is_alphanumeric()));
        first_line.into_iter().chain(indented_lines).collect()
    }

    /// Formats a value of a top-level field for messages. `part` is a piece of the value that the file has as it is,
    /// unless the value was filled in for a reference.
    ///
    /// A filled-in value may be a secret, so its reference is shown instead. If the reference cannot be determined, the
    /// text is "a value that is filled in". A value is shown as it is if the file contains it or `part`, or if no value
    /// of the field was filled in.
    pub fn display_value(&self, field: &str, value: &str, part: &str) -> String {
        let lines = self.field_lines(field);
        let is_in_file = |text: &str| lines.iter().any(|(line, _)| line.contains(text));
        let is_in_field =
            |line| lines.is_empty() || lines.iter().any(|(_, number)| *number == line);
        let filled_values = || {
            self.filled_values
                .iter()
                .filter(|filled| is_in_field(filled.line()))
        };
        if is_in_file(value) || filled_values().next().is_none() {
            return value.to_owned();
        }
        match filled_values().find_map(|filled| filled.unfill(value)) {
            Some(unfilled) => unfilled,
            None if is_in_file(part) => value.to_owned(),
            None => String::from("a value that is filled in"),
        }
    }

    /// Adds an error about a field and its value.
    pub fn add_error(&mut self, subject: (&str, &str), message: String, help: &str) {
        self.add_diagnostic(Severity::Error, subject, message, help);
    }

    /// Adds a warning about a field and its value.
    pub fn add_warning(&mut self, subject: (&str, &str), message: String, help: &str) {
        self.add_diagnostic(Severity::Warning, subject, message, help);
    }
}
