//! What became of each line of the input: taken as it is, changed in meaning, or left.

use std::collections::HashMap;

use super::files::InputFile;

/// Maximum number of characters of a line of the input that the report shows.
pub const MAX_TEXT_CHARS: usize = 100;
/// Maximum number of characters of a path that the report shows.
pub const MAX_PATH_CHARS: usize = 200;
/// Maximum number of characters of a note.
const MAX_NOTE_CHARS: usize = 1_000;
/// Maximum number of notes about a line.
const MAX_NOTES_OF_LINE: usize = 12;
/// Maximum number of notes about the whole input.
const MAX_NOTES: usize = 100;

/// A place of the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The file, by its index in the input.
    pub file: usize,
    /// The line, from 1.
    pub line: u32,
}

/// What became of a line. The order is that of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// The output does what the line does.
    Taken,
    /// The output does nearly what the line does; the note says what differs.
    Changed,
    /// The output does nothing of it; the note says why, and what to write by hand.
    Left,
}

impl Fate {
    /// The word in the report.
    pub fn as_str(self) -> &'static str {
        match self {
            Fate::Taken => "taken",
            Fate::Changed => "changed",
            Fate::Left => "left",
        }
    }
}

/// What a line is about. The order is that of importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Concern {
    /// Neither limits nor routes, such as the format of a log.
    Other,
    /// Where requests go, or who is denied.
    Routing,
    /// How much is admitted.
    Limits,
}

impl Concern {
    /// The word in the report.
    pub fn as_str(self) -> &'static str {
        match self {
            Concern::Other => "other",
            Concern::Routing => "routing",
            Concern::Limits => "limits",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportLine {
    /// The path of the file, printable.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// What became of it.
    pub fate: Fate,
    /// What it is about.
    pub concern: Concern,
    /// What the line says: at most [`MAX_TEXT_CHARS`] printable characters.
    pub text: String,
    /// What differs, or why it is left; may be empty for a line that is taken.
    pub note: String,
}

/// Collects the lines of the report. A line of the input that is reported several times is listed once, with its most
/// severe fate and all notes.
#[derive(Debug)]
pub struct ImportReport {
    paths: Vec<String>,
    entries: Vec<(Origin, ReportLine, Vec<String>)>,
    /// The index in `entries` by origin and text.
    index: HashMap<(Origin, String), usize>,
    notes: Vec<String>,
}

impl ImportReport {
    /// An empty report about these files.
    pub fn new(files: &[InputFile]) -> ImportReport {
        ImportReport {
            paths: files
                .iter()
                .map(|file| printable(&file.path, MAX_PATH_CHARS))
                .collect(),
            entries: Vec::new(),
            index: HashMap::new(),
            notes: Vec::new(),
        }
    }

    /// Reports a line that is taken as it is. `note` may be empty.
    pub fn taken(&mut self, at: Origin, concern: Concern, text: &str, note: &str) {
        self.add(at, Fate::Taken, concern, text, note);
    }

    /// Reports a line of which the output does something else; `note` says what differs.
    pub fn changed(&mut self, at: Origin, concern: Concern, text: &str, note: &str) {
        self.add(at, Fate::Changed, concern, text, note);
    }

    /// Reports a line that is left; `note` says why, and the nearest way by hand.
    pub fn left(&mut self, at: Origin, concern: Concern, text: &str, note: &str) {
        self.add(at, Fate::Left, concern, text, note);
    }

    /// Reports a line. A second report of the same text at the same place joins the first.
    pub fn add(&mut self, at: Origin, fate: Fate, concern: Concern, text: &str, note: &str) {
        let text = printable(text, MAX_TEXT_CHARS);
        let note = &*printable(note, MAX_NOTE_CHARS);
        let index = self.index.get(&(at, text.clone()));
        if let Some((_, line, notes)) = index.and_then(|index| self.entries.get_mut(*index)) {
            line.fate = line.fate.max(fate);
            line.concern = line.concern.max(concern);
            let is_new = !note.is_empty() && !notes.iter().any(|known| known == note);
            if is_new && notes.len() < MAX_NOTES_OF_LINE {
                notes.push(note.to_owned());
            }
            return;
        }
        self.index.insert((at, text.clone()), self.entries.len());
        let line = ReportLine {
            file: self.path(at).to_owned(),
            line: at.line,
            fate,
            concern,
            text,
            note: String::new(),
        };
        let notes = (!note.is_empty()).then(|| note.to_owned());
        self.entries.push((at, line, notes.into_iter().collect()));
    }

    /// Adds a difference that holds for the whole input; it is listed once.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = printable(&note.into(), MAX_NOTE_CHARS);
        if !self.notes.contains(&note) && self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        }
    }

    /// The printable path of the file of `at`.
    pub fn path(&self, at: Origin) -> &str {
        self.paths.get(at.file).map_or("", String::as_str)
    }

    /// The printable paths of the input.
    pub fn paths(&self) -> &[String] {
        &self.paths
    }

    /// The first lines that are left, for an input of which nothing else is there.
    pub(super) fn first_left(&self) -> String {
        let left = self
            .entries
            .iter()
            .filter(|(_, line, _)| line.fate == Fate::Left);
        let reasons: Vec<String> = left
            .take(3)
            .map(|(at, line, notes)| {
                format!(
                    "{}:{}: {}: {}",
                    line.file,
                    at.line,
                    line.text,
                    notes.join("; ")
                )
            })
            .collect();
        match reasons.is_empty() {
            true => "give it the files with routes too".into(),
            false => reasons.join("; "),
        }
    }

    /// The lines, by file and line, and the notes about the whole input.
    pub fn finish(mut self) -> (Vec<ReportLine>, Vec<String>) {
        // Stable, so that lines of one place stay in the order in which they were reported.
        self.entries.sort_by_key(|(at, _, _)| *at);
        let lines = self.entries.into_iter().map(|(_, line, notes)| ReportLine {
            note: notes.join("; "),
            ..line
        });
        (lines.collect(), self.notes)
    }
}

/// The text without control characters and line breaks, cut to `max_chars` characters.
pub fn printable(text: &str, max_chars: usize) -> String {
    let is_odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let mut chars = text.chars();
    let mut out: String = chars
        .by_ref()
        .take(max_chars)
        .map(|c| match c {
            '\n' | '\r' | '\t' => ' ',
            c if is_odd(c) => '\u{fffd}',
            c => c,
        })
        .collect();
    if chars.next().is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_listed_once_with_its_worst_fate() {
        let file = InputFile {
            path: "a\n.conf".into(),
            text: String::new(),
        };
        let mut report = ImportReport::new(&[file]);
        let at = |line| Origin { file: 0, line };
        report.left(at(7), Concern::Limits, "limit \u{1b}[31m", "a reason");
        report.taken(at(2), Concern::Other, "first", "");
        report.taken(at(2), Concern::Limits, "first", "");
        report.changed(at(2), Concern::Routing, "first", "one");
        report.changed(at(2), Concern::Routing, "first", "one");
        report.changed(at(2), Concern::Routing, "first", "two");
        report.note("everywhere");
        report.note("everywhere");
        let (lines, notes) = report.finish();
        let seen: Vec<_> = lines
            .iter()
            .map(|line| (line.line, line.fate, line.concern, &*line.text, &*line.note))
            .collect();
        let expected = [
            (2, Fate::Changed, Concern::Limits, "first", "one; two"),
            (
                7,
                Fate::Left,
                Concern::Limits,
                "limit \u{fffd}[31m",
                "a reason",
            ),
        ];
        assert_eq!(seen, expected);
        assert_eq!((notes.len(), &*lines[0].file), (1, "a .conf"));
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(printable("abcdef", 3), "abc…");
        assert_eq!(printable("abc", 3), "abc");
    }
}
