//! Values of the gateway file with references that were filled in. They may hold secrets, so they are shown as written.

use std::fmt;
use std::ops::Range;

use super::tree::SourcePlace;

/// Shorter filled-in texts (in bytes) are not masked: they are no secrets, and occur in ordinary words.
const SHORTEST_SECRET: usize = 4;

/// A value and what of it was filled in.
#[derive(Clone, PartialEq, Eq)]
pub struct Filled {
    pub(super) place: SourcePlace,
    /// The value, filled in.
    pub(super) text: String,
    /// The value as the file has it.
    pub(super) written: String,
    /// In the order of the text.
    pub(super) parts: Vec<FilledPart>,
}

/// One reference of a value, and what was filled in for it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FilledPart {
    /// Where in the text what was filled in stands.
    pub range: Range<usize>,
    /// `${env:NAME}` or `${file:PATH}`.
    pub reference: String,
    /// The filled-in text before it was escaped.
    pub value: String,
}

impl Filled {
    /// The line of the gateway file, from 1.
    pub fn line(&self) -> u32 {
        self.place.line
    }

    /// Whether it stands in this place.
    pub(super) fn is_at(&self, place: SourcePlace) -> bool {
        (self.place.file, self.place.line, self.place.column)
            == (place.file, place.line, place.column)
    }

    /// `value`, which is a part of this one or holds it, with references for what was filled in; none if it is neither.
    pub fn shown(&self, value: &str) -> Option<String> {
        let Some(start) = self.text.find(value) else {
            let holds = !self.text.is_empty() && value.contains(&self.text);
            return holds.then(|| value.replace(&self.text, &self.written));
        };
        let end = start + value.len();
        let (mut shown, mut at) = (String::new(), start);
        for part in &self.parts {
            let Range {
                start: from,
                end: to,
            } = part.range;
            if to <= start || from >= end {
                continue;
            }
            shown.push_str(&self.text[at..from.max(at)]);
            shown.push_str(&part.reference);
            at = to.min(end);
        }
        shown.push_str(&self.text[at..end]);
        Some(shown)
    }

    /// A message about this value, with references for what was filled in.
    pub(super) fn hidden_in(&self, message: &str) -> String {
        let parts = self.parts.iter().flat_map(|part| {
            let escaped = &self.text[part.range.clone()];
            [escaped, &part.value].map(|value| (value, part.reference.as_str()))
        });
        let all = std::iter::once((self.text.as_str(), self.written.as_str())).chain(parts);
        let secrets = all.filter(|(value, _)| value.len() >= SHORTEST_SECRET);
        secrets.fold(message.to_owned(), |message, (value, reference)| {
            message.replace(value, reference)
        })
    }
}

impl fmt::Debug for Filled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is written may hold a secret too.
        f.debug_tuple("Filled").field(&self.place).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_value_is_shown_as_it_is_written() {
        let filled = Filled {
            place: SourcePlace::default(),
            text: "http://ashop:80".into(),
            written: "http://a${env:HOST}:${env:PORT}".into(),
            parts: [
                (8..12, "${env:HOST}", "shop"),
                (13..15, "${env:PORT}", "80"),
            ]
            .map(|(range, reference, value)| FilledPart {
                range,
                reference: reference.into(),
                value: value.into(),
            })
            .into(),
        };
        for (value, shown) in [
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
            assert_eq!(filled.shown(value).as_deref(), shown, "{value}");
        }
        assert_eq!(filled.hidden_in("`shop`, 80"), "`${env:HOST}`, 80");
    }
}
