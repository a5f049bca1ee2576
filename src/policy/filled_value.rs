//! Values of the gateway file whose references, such as `${env:NAME}`, were replaced. The replacement may be a secret,
//! so messages and pages show the reference in its place.

use std::fmt;
use std::ops::Range;

use super::tree::SourceLocation;

/// Minimum length in bytes of a text that messages hide. A shorter one is no secret, and occurs in ordinary words.
const MIN_SECRET_BYTES: usize = 4;

/// A value of the gateway file with at least one replaced reference.
#[derive(Clone, PartialEq, Eq)]
pub struct FilledValue {
    /// The location of the value in the gateway file.
    pub(super) location: SourceLocation,
    /// The value after the replacement.
    pub(super) filled_text: String,
    /// The value as the file has it.
    pub(super) unfilled_text: String,
    /// The references, in the order of the text.
    pub(super) references: Vec<FilledReference>,
}

/// One reference of a value, and the text that replaced it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FilledReference {
    /// The bytes of `filled_text` that replaced the reference.
    pub range: Range<usize>,
    /// The reference as written: `${env:NAME}` or `${file:PATH}`.
    pub reference: String,
    /// The replacement before it was escaped for a URL.
    pub value: String,
}

impl FilledValue {
    /// The line of the gateway file, from 1.
    pub fn line(&self) -> u32 {
        self.location.line
    }

    /// Whether the value begins at a location.
    pub(super) fn is_at(&self, location: SourceLocation) -> bool {
        (self.location.file, self.location.line, self.location.column)
            == (location.file, location.line, location.column)
    }

    /// `text` with references in place of their replacements. Returns `None` unless `text` is a part of the filled value
    /// or contains it.
    pub fn unfill(&self, text: &str) -> Option<String> {
        let Some(start) = self.filled_text.find(text) else {
            let contains_this_value =
                !self.filled_text.is_empty() && text.contains(&self.filled_text);
            return contains_this_value
                .then(|| text.replace(&self.filled_text, &self.unfilled_text));
        };
        let end = start + text.len();
        let mut unfilled = String::new();
        let mut copied_until = start;
        for reference in &self.references {
            let range = &reference.range;
            if range.end <= start || range.start >= end {
                continue;
            }
            unfilled.push_str(&self.filled_text[copied_until..range.start.max(copied_until)]);
            unfilled.push_str(&reference.reference);
            copied_until = range.end.min(end);
        }
        unfilled.push_str(&self.filled_text[copied_until..end]);
        Some(unfilled)
    }

    /// Replaces filled-in texts of at least [`MIN_SECRET_BYTES`] in a message about this value by their references.
    pub(super) fn hide_in(&self, message: &str) -> String {
        let filled_parts = self.references.iter().flat_map(|reference| {
            let escaped = &self.filled_text[reference.range.clone()];
            [escaped, &reference.value].map(|value| (value, reference.reference.as_str()))
        });
        let whole_value = (self.filled_text.as_str(), self.unfilled_text.as_str());
        let texts = std::iter::once(whole_value).chain(filled_parts);
        let secrets = texts.filter(|(text, _)| text.len() >= MIN_SECRET_BYTES);
        secrets.fold(message.to_owned(), |message, (secret, reference)| {
            message.replace(secret, reference)
        })
    }
}

impl fmt::Debug for FilledValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text of the file may hold a secret too.
        f.debug_tuple("Filled").field(&self.location).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_value_is_shown_as_written() {
        let filled = FilledValue {
            location: SourceLocation::default(),
            filled_text: "http://ashop:80".into(),
            unfilled_text: "http://a${env:HOST}:${env:PORT}".into(),
            references: [
                (8..12, "${env:HOST}", "shop"),
                (13..15, "${env:PORT}", "80"),
            ]
            .map(|(range, reference, value)| FilledReference {
                range,
                reference: reference.into(),
                value: value.into(),
            })
            .into(),
        };
        for (value, unfilled) in [
            ("ashop", Some("a${env:HOST}")),
            ("ho", Some("${env:HOST}")),
            ("op:8", Some("${env:HOST}:${env:PORT}")),
            ("http", Some("http")),
            (
                "in/http://ashop:80",
                Some("in/http://a${env:HOST}:${env:PORT}"),
            ),
            ("another", None),
        ] {
            assert_eq!(filled.unfill(value).as_deref(), unfilled, "{value}");
        }
        assert_eq!(filled.hide_in("`shop`, 80"), "`${env:HOST}`, 80");
    }
}
