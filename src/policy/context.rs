//! The context of loading a configuration: the text of the files that were read, and all diagnostics about them. Every
//! step of loading reports its mistakes here and goes on, so that the user sees all of them at once.
//!
//! Bounds: [`MAX_DIAGNOSTICS_PER_FILE`] and [`MAX_DIAGNOSTICS`]. Excerpts and kept texts never show a hidden location.

use std::sync::Arc;

use super::diagnostic::{
    Diagnostic, DiagnosticReport, Excerpt, Severity, sanitize, sort_and_dedup,
};
use super::filled_value::FilledValue;
use super::tree::{Node, SourceLocation, YamlValue};
use crate::base::suggest::{list_words, nearest_word};

/// Maximum number of diagnostics of a file. Further errors are only counted, and further warnings are dropped.
const MAX_DIAGNOSTICS_PER_FILE: usize = 50;
/// Maximum number of diagnostics of all files together. Further errors are only counted, and further warnings are
/// dropped.
const MAX_DIAGNOSTICS: usize = 1_000;

/// The files that were read, in the order of their numbers.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
}

/// One file that was read.
#[derive(Debug)]
struct SourceFile {
    /// The path of the file, as messages show it.
    name: Arc<str>,
    /// The text, in which [`LoadContext::finish`] masks hidden locations; empty for a file of secrets.
    text: String,
    /// Whether the file holds secrets, so that its text is neither kept nor shown.
    is_secret: bool,
}

impl Sources {
    /// Adds a file and returns its number.
    pub fn add(&mut self, name: &str, text: String) -> u32 {
        self.add_file(SourceFile {
            name: name.into(),
            text,
            is_secret: false,
        })
    }

    /// Adds a file of secrets, whose text is neither kept nor shown, and returns its number.
    pub fn add_secret(&mut self, name: &str) -> u32 {
        self.add_file(SourceFile {
            name: name.into(),
            text: String::new(),
            is_secret: true,
        })
    }

    fn add_file(&mut self, source: SourceFile) -> u32 {
        self.files.push(source);
        u32::try_from(self.files.len() - 1).unwrap_or(u32::MAX)
    }

    /// The name of a file in messages; empty if there is no file of this number.
    pub fn name(&self, file: u32) -> Arc<str> {
        self.files
            .get(file as usize)
            .map_or_else(|| "".into(), |source| source.name.clone())
    }

    /// The text of a file; empty for a file of secrets.
    pub fn text(&self, file: u32) -> &str {
        self.files
            .get(file as usize)
            .map_or("", |source| &source.text)
    }

    /// Overwrites the characters at a location with asterisks, on its first line only.
    fn mask(&mut self, location: SourceLocation) {
        let Some(source) = self.files.get_mut(location.file as usize) else {
            return;
        };
        let masked_index = (location.line as usize).saturating_sub(1);
        let lines = source.text.split_inclusive('\n').enumerate();
        let lines = lines.map(|(index, line)| match index == masked_index {
            true => mask_line(line, location),
            false => line.to_owned(),
        });
        source.text = lines.collect();
    }

    /// A location as `file:line`.
    pub fn origin(&self, location: SourceLocation) -> String {
        format!("{}:{}", self.name(location.file), location.line)
    }

    /// The names and the texts of all files, without the files of secrets.
    pub fn into_files(self) -> Vec<(String, String)> {
        let public_files = self.files.into_iter().filter(|source| !source.is_secret);
        public_files
            .map(|source| (source.name.to_string(), source.text))
            .collect()
    }
}

/// Collects files and diagnostics while a configuration is loaded.
#[derive(Debug, Default)]
pub struct LoadContext {
    /// The files that were read so far.
    pub sources: Sources,
    /// The values of the gateway file whose references were replaced.
    pub filled: Vec<FilledValue>,
    diagnostics: Vec<(SourceLocation, Diagnostic)>,
    /// The number of diagnostics of each file, by the file's number.
    diagnostics_per_file: Vec<usize>,
    /// The number of errors above the bounds.
    unlisted_errors: usize,
    /// Locations that no excerpt may show.
    hidden_locations: Vec<SourceLocation>,
    /// Locations whose mistakes were reported before; later diagnostics there are dropped.
    muted_locations: Vec<SourceLocation>,
    /// Whether an error was reported.
    has_errors: bool,
    /// Whether all requests are served by proxies that ask, so that policies need no upstream.
    pub is_served_by_others: bool,
    /// Whether the policy that is checked now is about descriptors, whose entries are its identities.
    pub checks_descriptors: bool,
    /// Of the policy that is read now, the keys of entries with one value, by which no limit can count.
    pub fixed_entries: Vec<String>,
}

impl LoadContext {
    /// Reports a mistake, which prevents the use of the configuration.
    pub fn error(
        &mut self,
        location: SourceLocation,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        self.report(Severity::Error, location, message.into(), help);
    }

    /// Reports a name that is none of `plans`, the names of all plans.
    pub fn report_unknown_plan<'p>(
        &mut self,
        location: SourceLocation,
        name: &str,
        plans: impl Iterator<Item = &'p str> + Clone,
    ) {
        let help = match nearest_word(name, plans.clone()) {
            Some(plan) => format!("did you mean `{plan}`?"),
            None if plans.clone().next().is_none() => {
                format!("add for instance `plans: {{ {name}: {{ multiply: 1 }} }}`")
            }
            None => format!("the plans are {}", list_words(plans)),
        };
        self.error(location, format!("there is no plan `{name}`"), Some(help));
    }

    /// Reports a part that is valid but probably not what was meant.
    pub fn warn(
        &mut self,
        location: SourceLocation,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        self.report(Severity::Warning, location, message.into(), help);
    }

    /// Keeps a location out of every excerpt, also out of excerpts of earlier diagnostics.
    pub fn hide_location(&mut self, location: SourceLocation) {
        self.hidden_locations.push(SourceLocation {
            further_lines: 0,
            ..location
        });
        self.hidden_locations
            .extend(
                (1..=location.further_lines).map(|line_offset| SourceLocation {
                    line: location.line.saturating_add(line_offset),
                    column: 1,
                    width: u32::MAX,
                    further_lines: 0,
                    ..location
                }),
            );
    }

    /// Keeps a value and everything inside it out of every excerpt.
    pub fn hide_node(&mut self, node: &Node) {
        self.hide_location(node.location);
        match &node.value {
            YamlValue::List(list) => list.iter().for_each(|item| self.hide_node(item)),
            YamlValue::Map(entries) => {
                for (key, value) in entries {
                    self.hide_location(key.location);
                    self.hide_node(value);
                }
            }
            _ => {}
        }
    }

    /// Drops later diagnostics that begin inside a location, on its first line.
    pub fn mute_location(&mut self, location: SourceLocation) {
        self.muted_locations.push(location);
    }

    /// Reports a mistake in a filled-in value. The message shows neither the value nor what the parser made of it.
    pub fn report_unfit_value(
        &mut self,
        location: SourceLocation,
        unfilled_text: &str,
        expected: &str,
    ) {
        let message =
            format!("what is filled into `{unfilled_text}` does not fit: expected {expected}");
        self.add_diagnostic(Severity::Error, location, sanitize(&message), None);
    }

    /// Adds a diagnostic, in whose texts references take the place of filled-in values.
    fn report(
        &mut self,
        severity: Severity,
        location: SourceLocation,
        message: String,
        help: Option<String>,
    ) {
        let filled_value = self.filled.iter().find(|filled| filled.is_at(location));
        let to_shown_text = |text: &str| match filled_value {
            Some(filled) => sanitize(&filled.hide_in(text)),
            None => sanitize(text),
        };
        let shown_help = help.as_deref().map(to_shown_text);
        self.add_diagnostic(severity, location, to_shown_text(&message), shown_help);
    }

    /// Adds a diagnostic unless its location is muted, an equal one is there, or a bound is reached. Errors above a
    /// bound are counted.
    fn add_diagnostic(
        &mut self,
        severity: Severity,
        location: SourceLocation,
        message: String,
        help: Option<String>,
    ) {
        if self.is_muted(location) {
            return;
        }
        let is_error = severity == Severity::Error;
        self.has_errors |= is_error;
        // Policies inherit the values of a `_defaults.yaml`, so a mistake there is reported again for each policy.
        let is_same = |(earlier_location, earlier): &(SourceLocation, Diagnostic)| {
            *earlier_location == location
                && earlier.severity == severity
                && earlier.message == message
        };
        if self.diagnostics.iter().any(is_same) {
            return;
        }
        let file = location.file as usize;
        if self.diagnostics_per_file.len() <= file {
            self.diagnostics_per_file.resize(file + 1, 0);
        }
        if self.diagnostics_per_file[file] >= MAX_DIAGNOSTICS_PER_FILE
            || self.diagnostics.len() >= MAX_DIAGNOSTICS
        {
            self.unlisted_errors += usize::from(is_error);
            return;
        }
        self.diagnostics_per_file[file] += 1;
        let diagnostic = Diagnostic {
            severity,
            file: self.sources.name(location.file),
            line: location.line,
            column: location.column,
            message,
            help,
            excerpt: None,
        };
        self.diagnostics.push((location, diagnostic));
    }

    /// Whether a location begins inside a muted one, on its first line.
    fn is_muted(&self, location: SourceLocation) -> bool {
        self.muted_locations.iter().any(|muted| {
            let end = muted.column.saturating_add(muted.width);
            (muted.file, muted.line) == (location.file, location.line)
                && (muted.column..end).contains(&location.column)
        })
    }

    /// Cuts the excerpt of a line around a location, with asterisks over hidden locations. `None` if no text is kept
    /// for the line.
    fn excerpt(&self, location: SourceLocation) -> Option<Excerpt> {
        let line_number = usize::try_from(location.line).unwrap_or(usize::MAX);
        let mut lines = self.sources.text(location.file).lines();
        let line = lines.nth(line_number.saturating_sub(1))?;
        let is_on_line =
            |hidden: &&SourceLocation| (hidden.file, hidden.line) == (location.file, location.line);
        let mut hidden_parts = self.hidden_locations.iter().filter(is_on_line).peekable();
        if hidden_parts.peek().is_none() {
            return Some(Excerpt::cut(line, location.column, location.width));
        }
        let masked_line =
            hidden_parts.fold(line.to_owned(), |line, hidden| mask_line(&line, *hidden));
        Some(Excerpt::cut(&masked_line, location.column, location.width))
    }

    /// Whether an error was reported; warnings do not count.
    pub fn has_errors(&self) -> bool {
        self.has_errors
    }

    /// Ends the loading: returns the files, with hidden locations masked, and the listed warnings.
    ///
    /// # Errors
    ///
    /// All listed diagnostics and the number of unlisted errors, if an error was reported.
    pub fn finish(mut self) -> Result<(Sources, Vec<Diagnostic>), DiagnosticReport> {
        let diagnostics = std::mem::take(&mut self.diagnostics).into_iter();
        let mut diagnostics: Vec<Diagnostic> = diagnostics
            .map(|(location, diagnostic)| Diagnostic {
                excerpt: self.excerpt(location),
                ..diagnostic
            })
            .collect();
        sort_and_dedup(&mut diagnostics);
        for hidden in std::mem::take(&mut self.hidden_locations) {
            self.sources.mask(hidden);
        }
        if self.has_errors {
            Err(DiagnosticReport {
                diagnostics,
                unlisted_errors: self.unlisted_errors,
            })
        } else {
            Ok((self.sources, diagnostics))
        }
    }
}

/// Overwrites the characters at a location of a line with asterisks, and keeps the line end.
fn mask_line(line: &str, location: SourceLocation) -> String {
    let start = (location.column as usize).saturating_sub(1);
    let end = start.saturating_add(location.width as usize);
    let mask_char = |(index, c): (usize, char)| match (start..end).contains(&index) {
        true if !matches!(c, '\r' | '\n') => '*',
        _ => c,
    };
    line.chars().enumerate().map(mask_char).collect()
}
