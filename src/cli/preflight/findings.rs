//! Collects findings, and places each in the gateway file.

use std::sync::Arc;

use crate::policy::diagnostic::{Diagnostic, Excerpt};
use crate::policy::{Filled, LoadedConfig, Severity};

/// The findings so far, and the gateway file in which they are placed.
pub struct Findings<'l> {
    file: Arc<str>,
    text: &'l str,
    filled: &'l [Filled],
    pub all: Vec<Diagnostic>,
}

impl<'l> Findings<'l> {
    pub fn new(loaded: &'l LoadedConfig, config: &str) -> Findings<'l> {
        let mut files = loaded.ruleset.files.iter();
        let text = files.find(|(path, _)| path == config);
        Findings {
            file: config.into(),
            text: text.map_or("", |(_, text)| text),
            filled: &loaded.filled,
            all: Vec::new(),
        }
    }

    /// Adds a finding about `value` of the field `field` of the gateway file, or about its default.
    fn add(
        &mut self,
        severity: Severity,
        (field, value): (&str, &str),
        message: String,
        help: &str,
    ) {
        let lines = self.lines(field);
        let first = lines.first().copied();
        // In ASCII, so that each is one byte.
        let parts = |c: char| c.is_ascii_whitespace() || "\"'[]{},".contains(c);
        let holds = |(line, number): (&'l str, u32)| {
            let at = line.rfind(value).filter(|_| !value.is_empty())?;
            let start = line[..at].rfind(parts).map_or(0, |before| before + 1);
            let end = line[at..].find(parts).map_or(line.len(), |more| at + more);
            let (before, width) = (&line[..start], &line[start..end]);
            Some((line, number, before.chars().count(), width.chars().count()))
        };
        let place = lines.into_iter().find_map(holds);
        let place = place.or_else(|| first.map(|(line, number)| (line, number, 0, field.len())));
        let (line, number, before, width) = place.unwrap_or(("", 1, 0, 1));
        let to_u32 = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let column = to_u32(before).saturating_add(1);
        self.all.push(Diagnostic {
            severity,
            file: self.file.clone(),
            line: number,
            column,
            message,
            help: Some(help.to_owned()),
            excerpt: place.map(|_| Excerpt::cut(line, column, to_u32(width))),
        });
    }

    /// The lines of a field of the gateway file, with line numbers from 1.
    fn lines(&self, field: &str) -> Vec<(&'l str, u32)> {
        let lines = self.text.lines().zip(1..);
        let begins = |line: &str| {
            let rest = line.trim_start_matches(['"', '\'']).strip_prefix(field);
            rest.is_some_and(|rest| rest.trim_start_matches(['"', '\'']).starts_with(':'))
        };
        let mut lines = lines.skip_while(|(line, _)| !begins(line));
        let first = lines.next();
        let inside = lines.take_while(|(line, _)| !line.starts_with(|c: char| c.is_alphanumeric()));
        first.into_iter().chain(inside).collect()
    }

    /// How messages show a value of a field.
    ///
    /// A filled-in value may be a secret, so its reference in the file is shown instead. If the file contains `part` of the
    /// value, that place was not filled in.
    pub fn shown(&self, field: &str, value: &str, part: &str) -> String {
        let lines = self.lines(field);
        let stands = |text: &str| lines.iter().any(|(line, _)| line.contains(text));
        let here = |line| lines.is_empty() || lines.iter().any(|(_, number)| *number == line);
        let filled = || self.filled.iter().filter(|one| here(one.line()));
        if stands(value) || filled().next().is_none() {
            return value.to_owned();
        }
        match filled().find_map(|one| one.shown(value)) {
            Some(shown) => shown,
            None if stands(part) => value.to_owned(),
            None => String::from("a value that is filled in"),
        }
    }

    pub fn error(&mut self, place: (&str, &str), message: String, help: &str) {
        self.add(Severity::Error, place, message, help);
    }

    pub fn warn(&mut self, place: (&str, &str), message: String, help: &str) {
        self.add(Severity::Warning, place, message, help);
    }
}
