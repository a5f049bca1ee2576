//! The content codings by which responses are compressed, and the choice of one by `Accept-Encoding` (RFC 9110,
//! sections 8.4.1 and 12.5.3).

use std::fmt;

use super::quality::{FULL_QUALITY, parse_quality};

/// A content coding that compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// Zstandard: RFC 8878.
    Zstd,
    /// Brotli: RFC 7932.
    Br,
    /// Gzip: RFC 1952.
    Gzip,
}

impl ContentCoding {
    /// All codings, those first that compress best in the same time.
    pub const ALL: [ContentCoding; 3] =
        [ContentCoding::Zstd, ContentCoding::Br, ContentCoding::Gzip];

    /// The name in header fields.
    pub fn as_str(self) -> &'static str {
        match self {
            ContentCoding::Zstd => "zstd",
            ContentCoding::Br => "br",
            ContentCoding::Gzip => "gzip",
        }
    }

    /// Chooses the coding of a response. `accepted` are the values of the request's `Accept-Encoding` fields, and
    /// `offered` the codings of the server, the preferred one first. `None` if the client prefers none of them to the
    /// plain content, or sends no such field.
    ///
    /// An element with an invalid weight counts as refused, because its sender may mean that. So does the lower weight of
    /// a coding that stands twice.
    pub fn choose<'v>(
        accepted: impl Iterator<Item = &'v [u8]>,
        offered: &[ContentCoding],
    ) -> Option<ContentCoding> {
        let mut weights = Weights::default();
        for element in accepted.flat_map(|value| value.split(|byte| *byte == b',')) {
            weights.read_element(element);
        }
        let mut chosen = None;
        let mut highest_weight = weights.identity.unwrap_or(0);
        for coding in offered {
            let weight = weights.of(*coding);
            // The first of equal weight wins, and any coding wins against the plain content.
            let is_preferred = match chosen {
                None => weight >= highest_weight,
                Some(_) => weight > highest_weight,
            };
            if weight > 0 && is_preferred {
                chosen = Some(*coding);
                highest_weight = weight;
            }
        }
        chosen
    }
}

impl fmt::Display for ContentCoding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// The weights that `Accept-Encoding` gives, in thousandths; `None` where it says nothing.
#[derive(Default)]
struct Weights {
    /// In the order of [`ContentCoding`].
    codings: [Option<u16>; ContentCoding::ALL.len()],
    identity: Option<u16>,
    /// The weight of all that is not named.
    others: Option<u16>,
}

impl Weights {
    /// Reads an element such as `br;q=0.5`. Unknown codings are skipped.
    fn read_element(&mut self, element: &[u8]) {
        let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let weight = match name {
            b"*" => &mut self.others,
            _ if name.eq_ignore_ascii_case(b"identity") => &mut self.identity,
            _ => match coding_of(name) {
                Some(coding) => &mut self.codings[coding as usize],
                None => return,
            },
        };
        let stated_weight = match (parts.next(), parts.next()) {
            (None, _) => FULL_QUALITY,
            (Some(parameter), None) => parse_weight(parameter).unwrap_or(0),
            (Some(_), Some(_)) => 0,
        };
        *weight = Some(weight.map_or(stated_weight, |other| other.min(stated_weight)));
    }

    fn of(&self, coding: ContentCoding) -> u16 {
        let stated_weight = self.codings[coding as usize];
        stated_weight.or(self.others).unwrap_or(0)
    }
}

/// The coding of this name; `x-gzip` is gzip (RFC 9110 section 8.4.1.3).
fn coding_of(name: &[u8]) -> Option<ContentCoding> {
    if name.eq_ignore_ascii_case(b"x-gzip") {
        return Some(ContentCoding::Gzip);
    }
    let mut codings = ContentCoding::ALL.into_iter();
    codings.find(|coding| name.eq_ignore_ascii_case(coding.as_str().as_bytes()))
}

/// Parses a parameter such as `q=0.5`.
fn parse_weight(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', quality @ ..] = parameter else {
        return None;
    };
    parse_quality(quality)
}

#[cfg(test)]
mod tests;
