//! A field of a `multipart/form-data` body, by the strict grammar alone.
//!
//! Readers differ in what they forgive: text before the first boundary, bare line feeds, a missing end, two
//! dispositions, names in single quotes, escapes in names. A body that needs any of it is ambiguous.

use memchr::memmem;

use super::media::HeaderParameters;
use super::name::FieldName;
use crate::identity::{FieldValue, form};

/// The value of the field that resembles `name`.
pub(super) fn find<'b>(boundary: &[u8], name: &FieldName, body: &'b [u8]) -> FieldValue<'b> {
    read(boundary, name, body).unwrap_or(FieldValue::Ambiguous)
}

/// None if a reader could see other parts.
fn read<'b>(boundary: &[u8], name: &FieldName, body: &'b [u8]) -> Option<FieldValue<'b>> {
    let delimiter = [b"--", boundary].concat();
    let finder = memmem::Finder::new(&delimiter);
    let mut found = FieldValue::Absent;
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
        if PartHeaders::of(headers)?.is(name, value)? {
            found.add(value);
        }
    }
}

/// The header fields of a part that matter.
struct PartHeaders<'b> {
    disposition: HeaderParameters<'b>,
    media: Option<HeaderParameters<'b>>,
    encoded: bool,
}

impl<'b> PartHeaders<'b> {
    fn of(headers: &'b [u8]) -> Option<PartHeaders<'b>> {
        let headers = std::str::from_utf8(headers).ok()?;
        let ends_line = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
        let (mut disposition, mut media, mut encoded) = (None, None, false);
        for line in headers.split("\r\n") {
            let (name, value) = line.split_once(':')?;
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if name.is_empty() || !name.chars().all(plain) || value.contains(ends_line) {
                return None;
            }
            if hides_field(name, value) {
                return None;
            }
            let value = value.trim_matches(' ');
            let before = match &*name.to_ascii_lowercase() {
                "content-disposition" => {
                    disposition.replace(HeaderParameters::of(value)?).is_some()
                }
                "content-type" => media.replace(HeaderParameters::of(value)?).is_some(),
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
        Some(PartHeaders {
            disposition: disposition?,
            media,
            encoded,
        })
    }

    /// Whether it is the field. None if readers disagree on it, or on what its value is.
    fn is(&self, wanted: &FieldName, value: &[u8]) -> Option<bool> {
        let disposition = &self.disposition;
        let name = disposition.only("name")?;
        if !disposition.first.eq_ignore_ascii_case("form-data") || disposition.hides_name() {
            return None;
        }
        if name.contains(['\'', '\\', ';']) || name.contains("=?") {
            return None;
        }
        let is_file = disposition.count("filename") > 0;
        let media = self.media.as_ref();
        // Parts inside it have its name to Commons FileUpload.
        let of_parts = |media: &HeaderParameters<'_>| {
            media.first.to_ascii_lowercase().starts_with("multipart")
        };
        if media.is_some_and(of_parts) {
            return None;
        }
        if !is_file && media.is_some_and(|media| !media.reads_as_utf8(name.as_bytes())) {
            return None;
        }
        // By it a form says what its other parts are written in (RFC 7578, section 4.6).
        if name.eq_ignore_ascii_case("_charset_") {
            let plain = value.trim_ascii().eq_ignore_ascii_case(b"utf-8");
            return plain.then_some(false);
        }
        if !wanted.resembles(name.as_bytes()) {
            let decoded = form::decode(name.as_bytes());
            return (!wanted.resembles(&decoded)).then_some(false);
        }
        let text = !is_file && !self.encoded;
        (text && media.is_none_or(|media| media.reads_as_utf8(value))).then_some(true)
    }
}

/// Whether readers that search for a field that matters, as Rack does, find one elsewhere in a line.
fn hides_field(name: &str, value: &str) -> bool {
    let (name, value) = (name.to_ascii_lowercase(), value.to_ascii_lowercase());
    // A file may be called so.
    let is_in = |field: &str| match &*name {
        "content-disposition" => value.contains(&format!("{field}:")),
        _ => value.contains(field),
    };
    FIELDS
        .into_iter()
        .any(|field| (name.contains(field) && name != field) || is_in(field))
}

/// The fields of a part that matter.
const FIELDS: [&str; 3] = [
    "content-disposition",
    "content-type",
    "content-transfer-encoding",
];
