//! Collects findings about this machine, and locates the line of the gateway file that each one is about. Values that
//! were filled in for references are not shown, because they may be secrets.

use std::sync::Arc;

use crate::policy::diagnostic::{Diagnostic, Excerpt};
use crate::policy::{FilledValue, LoadedConfig, Severity};

/// The findings so far, and the gateway file that they are about.
pub struct Findings<'l> {
    /// The path of the gateway file.
    path: Arc<str>,
    /// The text of the gateway file, before references are filled in.
    text: &'l str,
    /// The references that were filled in.
    filled_values: &'l [FilledValue],
    /// The findings so far.
    pub diagnostics: Vec<Diagnostic>,
}

/// Where a finding is in the gateway file: a part of one line.
struct LineLocation<'l> {
    line: &'l str,
    /// The number of the line, from 1.
    number: u32,
    /// The number of characters before the part.
    chars_before: usize,
    /// The length of the part in characters.
    char_count: usize,
}

/// Locates the word of a line that contains `value`.
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

impl<'l> Findings<'l> {
    /// Makes an empty list. `config_path` is the path of the gateway file.
    pub fn new(loaded: &'l LoadedConfig, config_path: &str) -> Findings<'l> {
        let mut files = loaded.ruleset.files.iter();
        let text = files.find(|(path, _)| path == config_path);
        Findings {
            path: config_path.into(),
            text: text.map_or("", |(_, text)| text),
            filled_values: &loaded.filled,
            diagnostics: Vec::new(),
        }
    }

    /// Adds a finding about the value of a field of the gateway file, or about the default of that field.
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
        self.diagnostics.push(Diagnostic {
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

    /// Returns the lines of a field of the gateway file, with line numbers from 1.
    fn field_lines(&self, field: &str) -> Vec<(&'l str, u32)> {
        let lines = self.text.lines().zip(1..);
        let begins_field = |line: &str| {
            let after_name = line.trim_start_matches(['"', '\'']).strip_prefix(field);
            after_name.is_some_and(|text| text.trim_start_matches(['"', '\'']).starts_with(':'))
        };
        let mut lines = lines.skip_while(|(line, _)| !begins_field(line));
        let first = lines.next();
        // The next line that is not indented begins another field.
        let indented_lines =
            lines.take_while(|(line, _)| !line.starts_with(|c: char| c.is_alphanumeric()));
        first.into_iter().chain(indented_lines).collect()
    }

    /// Formats a value of a field for messages.
    ///
    /// A filled-in value may be a secret, so its reference in the file is shown instead. A value of which the file
    /// contains `part` was not filled in.
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
