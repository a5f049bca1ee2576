//! A field of a `multipart/form-data` body, by the strict grammar alone.
//!
//! Readers differ in what they forgive: text before the first boundary, bare line feeds, a missing end, two
//! dispositions, names in single quotes, escapes in names. A body that needs any of it is ambiguous.

use memchr::memmem;

use super::media::Parameters;
use super::name::Name;
use crate::identity::form::{self, Found};

/// The value of the field that resembles `name`.
pub(super) fn find<'b>(boundary: &[u8], name: &Name, body: &'b [u8]) -> Found<'b> {
    read(boundary, name, body).unwrap_or(Found::Ambiguous)
}

/// None if a reader could see other parts.
fn read<'b>(boundary: &[u8], name: &Name, body: &'b [u8]) -> Option<Found<'b>> {
    let delimiter = [b"--", boundary].concat();
    let finder = memmem::Finder::new(&delimiter);
    let mut found = Found::Absent;
    let mut rest = body.strip_prefix(&*delimiter)?;
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            return matches!(end, b"" | b"\r\n").then_some(found);
        }
        let part = rest.strip_prefix(b"\r\n")?;
        // The first place where the boundary stands must end the part: some readers need no line end.
        let next = finder.find(part)?;
        rest = &part[next + delimiter.len()..];
        let part = part[..next].strip_suffix(b"\r\n")?;
        let headers = memmem::find(part, b"\r\n\r\n")?;
        let (headers, value) = (&part[..headers], &part[headers + 4..]);
        if Part::of(headers)?.is(name, value)? {
            found.add(value);
        }
    }
}

/// The header fields of a part that matter.
struct Part<'b> {
    disposition: Parameters<'b>,
    media: Option<Parameters<'b>>,
    encoded: bool,
}

impl<'b> Part<'b> {
    fn of(headers: &'b [u8]) -> Option<Part<'b>> {
        let headers = std::str::from_utf8(headers).ok()?;
        let (mut disposition, mut media, mut encoded) = (None, None, false);
        for line in headers.split("\r\n") {
            let (name, value) = line.split_once(':')?;
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if name.is_empty() || !name.chars().all(plain) || value.contains(char::is_control) {
                return None;
            }
            let value = value.trim_matches(' ');
            let before = match &*name.to_ascii_lowercase() {
                "content-disposition" => disposition.replace(Parameters::of(value)?).is_some(),
                "content-type" => media.replace(Parameters::of(value)?).is_some(),
                "content-transfer-encoding" => {
                    let plain = ["7bit", "8bit", "binary"];
                    encoded |= !plain.iter().any(|plain| value.eq_ignore_ascii_case(plain));
                    false
                }
                _ => false,
            };
            if before {
                return None;
            }
        }
        Some(Part {
            disposition: disposition?,
            media,
            encoded,
        })
    }

    /// Whether it is the field. None if readers disagree on it, or on what its value is.
    fn is(&self, wanted: &Name, value: &[u8]) -> Option<bool> {
        let disposition = &self.disposition;
        let name = disposition.only("name")?;
        let odd = |value: &str| mentions_name(value);
        if !disposition.first.eq_ignore_ascii_case("form-data") || disposition.values().any(odd) {
            return None;
        }
        if name.contains(['\'', '\\']) || name.contains("=?") {
            return None;
        }
        if !wanted.resembles(name.as_bytes()) {
            let decoded = form::decode(name.as_bytes());
            return (!wanted.resembles(&decoded)).then_some(false);
        }
        let text = disposition.count("filename") == 0 && !self.encoded;
        let media = self.media.as_ref();
        (text && media.is_none_or(|media| media.reads_as_utf8(value))).then_some(true)
    }
}

/// Whether a value may look like another parameter `name` to readers that search for one.
fn mentions_name(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let mut rests = lower
        .match_indices("name")
        .map(|(at, name)| &lower[at + name.len()..]);
    rests.any(|rest| rest.trim_start_matches([' ', '\t', '*']).starts_with('='))
}
