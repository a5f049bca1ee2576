//! Collects all diagnostics about the files, so that all mistakes are reported at once.

use std::sync::Arc;

use super::diagnostic::{Diagnostic, DiagnosticReport, Excerpt, Severity, plain, sort};
use super::filled::Filled;
use super::tree::{Node, SourcePlace, YamlValue};

/// Most diagnostics of one file; the rest are counted.
const MOST_PER_FILE: usize = 50;
/// Most diagnostics of all files together; the rest are counted.
const MOST: usize = 1_000;

/// The files, in the order in which they were read.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
}

#[derive(Debug)]
struct SourceFile {
    name: Arc<str>,
    text: String,
    /// Holds secrets: its text is neither kept nor shown.
    hidden: bool,
}

impl Sources {
    /// Adds a file and gives its number.
    pub fn add(&mut self, name: &str, text: String) -> u32 {
        self.push(SourceFile {
            name: name.into(),
            text,
            hidden: false,
        })
    }

    /// Adds a file of secrets, whose text is neither kept nor shown, and gives its number.
    pub fn add_hidden(&mut self, name: &str) -> u32 {
        self.push(SourceFile {
            name: name.into(),
            text: String::new(),
            hidden: true,
        })
    }

    fn push(&mut self, source: SourceFile) -> u32 {
        self.files.push(source);
        u32::try_from(self.files.len() - 1).unwrap_or(u32::MAX)
    }

    /// A file's name as messages have it.
    pub fn name(&self, file: u32) -> Arc<str> {
        self.files
            .get(file as usize)
            .map_or_else(|| "".into(), |source| source.name.clone())
    }

    /// A file's text.
    pub fn text(&self, file: u32) -> &str {
        self.files
            .get(file as usize)
            .map_or("", |source| &source.text)
    }

    /// Puts asterisks over a place.
    fn mask(&mut self, place: SourcePlace) {
        let Some(source) = self.files.get_mut(place.file as usize) else {
            return;
        };
        let line = (place.line as usize).saturating_sub(1);
        let lines = source.text.split_inclusive('\n').enumerate();
        let lines = lines.map(|(number, text)| match number == line {
            true => masked(text, place),
            false => text.to_owned(),
        });
        source.text = lines.collect();
    }

    /// `file:line` of a place.
    pub fn origin(&self, place: SourcePlace) -> String {
        format!("{}:{}", self.name(place.file), place.line)
    }

    /// All files but those of secrets: name and text.
    pub fn into_files(self) -> Vec<(String, String)> {
        let shown = self.files.into_iter().filter(|source| !source.hidden);
        shown
            .map(|source| (source.name.to_string(), source.text))
            .collect()
    }
}

/// The context of reading: the files, and the diagnostics so far.
#[derive(Debug, Default)]
pub struct Cx {
    /// The files.
    pub sources: Sources,
    found: Vec<(SourcePlace, Diagnostic)>,
    /// Places that no excerpt may show.
    hidden: Vec<SourcePlace>,
    /// Values with references that were filled in.
    pub filled: Vec<Filled>,
    /// Places whose mistakes were already reported.
    muted: Vec<SourcePlace>,
    /// How many of each file.
    per_file: Vec<usize>,
    unlisted: usize,
    failed: bool,
}

impl Cx {
    /// Reports a mistake.
    pub fn error(&mut self, place: SourcePlace, message: impl Into<String>, help: Option<String>) {
        self.say(Severity::Error, place, message.into(), help);
    }

    /// Reports a part that is valid but probably not what was meant.
    pub fn warn(&mut self, place: SourcePlace, message: impl Into<String>, help: Option<String>) {
        self.say(Severity::Warning, place, message.into(), help);
    }

    /// Keeps this place out of every excerpt, also of mistakes that are already on record.
    pub fn hide(&mut self, place: SourcePlace) {
        self.hidden.push(SourcePlace { more: 0, ..place });
        self.hidden
            .extend((1..=place.more).map(|further| SourcePlace {
                line: place.line.saturating_add(further),
                column: 1,
                width: u32::MAX,
                more: 0,
                ..place
            }));
    }

    /// Keeps a whole value out of every excerpt.
    pub fn hide_value(&mut self, node: &Node) {
        self.hide(node.place);
        match &node.value {
            YamlValue::List(list) => list.iter().for_each(|node| self.hide_value(node)),
            YamlValue::Map(entries) => {
                for (key, node) in entries {
                    self.hide(key.place);
                    self.hide_value(node);
                }
            }
            _ => {}
        }
    }

    /// Drops further mistakes that begin in this place.
    pub fn mute(&mut self, place: SourcePlace) {
        self.muted.push(place);
    }

    /// Reports a mistake in a filled-in value. The message shows neither the value nor what it was read as.
    pub fn unfit(&mut self, place: SourcePlace, written: &str, expected: &str) {
        let message = format!("what is filled into `{written}` does not fit: expected {expected}");
        self.put(Severity::Error, place, plain(&message), None);
    }

    fn say(
        &mut self,
        severity: Severity,
        place: SourcePlace,
        message: String,
        help: Option<String>,
    ) {
        let here = self.filled.iter().find(|filled| filled.is_at(place));
        let shown = |text: &str| match here {
            Some(filled) => plain(&filled.hidden_in(text)),
            None => plain(text),
        };
        let (message, help) = (shown(&message), help.as_deref().map(shown));
        self.put(severity, place, message, help);
    }

    fn put(
        &mut self,
        severity: Severity,
        place: SourcePlace,
        message: String,
        help: Option<String>,
    ) {
        let inside = |muted: &SourcePlace| {
            let to = muted.column.saturating_add(muted.width);
            (muted.file, muted.line) == (place.file, place.line)
                && (muted.column..to).contains(&place.column)
        };
        if self.muted.iter().any(inside) {
            return;
        }
        self.failed |= severity == Severity::Error;
        let file = place.file as usize;
        if self.per_file.len() <= file {
            self.per_file.resize(file + 1, 0);
        }
        if self.per_file[file] >= MOST_PER_FILE || self.found.len() >= MOST {
            self.unlisted += usize::from(severity == Severity::Error);
            return;
        }
        self.per_file[file] += 1;
        let diagnostic = Diagnostic {
            severity,
            file: self.sources.name(place.file),
            line: place.line,
            column: place.column,
            message,
            help,
            excerpt: None,
        };
        self.found.push((place, diagnostic));
    }

    /// The part of a line around a mistake.
    fn excerpt(&self, place: SourcePlace) -> Option<Excerpt> {
        let line = usize::try_from(place.line).unwrap_or(usize::MAX);
        let mut lines = self.sources.text(place.file).lines();
        let line = lines.nth(line.saturating_sub(1))?;
        let here = |hidden: &&SourcePlace| (hidden.file, hidden.line) == (place.file, place.line);
        let mut hidden = self.hidden.iter().filter(here).peekable();
        if hidden.peek().is_none() {
            return Some(Excerpt::cut(line, place.column, place.width));
        }
        let shown = hidden.fold(line.to_owned(), |line, hidden| masked(&line, *hidden));
        Some(Excerpt::cut(&shown, place.column, place.width))
    }

    /// Whether a mistake was reported.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Everything that was reported: an error if there is a mistake, else the files and the warnings.
    pub fn finish(mut self) -> Result<(Sources, Vec<Diagnostic>), DiagnosticReport> {
        let found = std::mem::take(&mut self.found).into_iter();
        let mut diagnostics: Vec<Diagnostic> = found
            .map(|(place, diagnostic)| Diagnostic {
                excerpt: self.excerpt(place),
                ..diagnostic
            })
            .collect();
        sort(&mut diagnostics);
        for hidden in std::mem::take(&mut self.hidden) {
            self.sources.mask(hidden);
        }
        if self.failed {
            Err(DiagnosticReport {
                diagnostics,
                unlisted: self.unlisted,
            })
        } else {
            Ok((self.sources, diagnostics))
        }
    }
}

/// A line with asterisks over a place of it, and its end as it was.
fn masked(line: &str, place: SourcePlace) -> String {
    let from = (place.column as usize).saturating_sub(1);
    let to = from.saturating_add(place.width as usize);
    let hidden = |(number, c): (usize, char)| match (from..to).contains(&number) {
        true if !matches!(c, '\r' | '\n') => '*',
        _ => c,
    };
    line.chars().enumerate().map(hidden).collect()
}
