//! Finds a field in a `multipart/form-data` body, by the strict grammar alone.
//!
//! Readers differ in what they forgive: text before the first boundary, bare line feeds, a missing end, two
//! dispositions, names in single quotes, escapes in names. A body that needs any of it is ambiguous.

use memchr::memmem;

use super::field_name::FieldName;
use super::header_parameters::HeaderParameters;
use crate::identity::{FieldValue, form};

/// The header fields of a part that decide how its value is read, in lower case.
const PART_FIELDS: [&str; 3] = [
    "content-disposition",
    "content-type",
    "content-transfer-encoding",
];

/// What separates the head of a part from its value.
const EMPTY_LINE: &[u8] = b"\r\n\r\n";

/// Transfer encodings that leave the value unchanged.
const IDENTITY_ENCODINGS: [&str; 3] = ["7bit", "8bit", "binary"];

/// How an uploaded file with the name of the field counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NamedFiles {
    /// Readers could take the file for the field, so the field is ambiguous.
    Ambiguous,
    /// The file is not the field.
    NotTheField,
}

/// The value of the field that resembles `name`; ambiguous if the body breaks the strict grammar, or if a reader could see
/// other parts.
pub(super) fn find_in_multipart<'b>(
    boundary: &[u8],
    name: &FieldName,
    named_files: NamedFiles,
    body: &'b [u8],
) -> FieldValue<'b> {
    find_strictly(boundary, name, named_files, body).unwrap_or(FieldValue::Ambiguous)
}

/// The value of the field; `None` if the body breaks the strict grammar, or if readers could see other parts.
fn find_strictly<'b>(
    boundary: &[u8],
    name: &FieldName,
    named_files: NamedFiles,
    body: &'b [u8],
) -> Option<FieldValue<'b>> {
    let delimiter = [b"--", boundary].concat();
    let delimiter_finder = memmem::Finder::new(&delimiter);
    let mut field = FieldValue::Absent;
    let mut remaining = body.strip_prefix(&*delimiter)?;
    loop {
        if let Some(epilogue) = remaining.strip_prefix(b"--") {
            return matches!(epilogue, b"" | b"\r\n").then_some(field);
        }
        let part = remaining.strip_prefix(b"\r\n")?;
        // The first occurrence of the delimiter must end the part: some readers need no line end before it.
        let part_end = delimiter_finder.find(part)?;
        remaining = &part[part_end + delimiter.len()..];
        let part = part[..part_end].strip_suffix(b"\r\n")?;
        let head_end = memmem::find(part, EMPTY_LINE)?;
        let head = &part[..head_end];
        let value = &part[head_end + EMPTY_LINE.len()..];
        if PartHead::parse(head)?.is_field(name, named_files, value)? {
            field.add(value);
        }
    }
}

/// The header fields of one part that decide how its value is read.
struct PartHead<'b> {
    /// The value of `Content-Disposition`.
    disposition: HeaderParameters<'b>,
    /// The value of `Content-Type`, if the part has one.
    content_type: Option<HeaderParameters<'b>>,
    /// Whether the value has a transfer encoding, which only some readers decode.
    is_encoded: bool,
}

impl<'b> PartHead<'b> {
    /// Parses the lines before the value; `None` if readers could disagree on them, or if they have no disposition.
    fn parse(head: &'b [u8]) -> Option<PartHead<'b>> {
        let head = std::str::from_utf8(head).ok()?;
        let mut disposition = None;
        let mut content_type = None;
        let mut is_encoded = false;
        for line in head.split("\r\n") {
            let (name, value) = parse_header_line(line)?;
            match &*name.to_ascii_lowercase() {
                "content-disposition" => set_once(&mut disposition, value)?,
                "content-type" => set_once(&mut content_type, value)?,
                "content-transfer-encoding" => {
                    let is_encoding = |encoding: &&str| value.eq_ignore_ascii_case(encoding);
                    is_encoded |= !IDENTITY_ENCODINGS.iter().any(is_encoding);
                }
                _ => {}
            }
        }
        Some(PartHead {
            disposition: disposition?,
            content_type,
            is_encoded,
        })
    }

    /// Whether this part is the field; `None` if readers disagree on that or on its value, or if the part sets another
    /// charset than UTF-8 for the form.
    fn is_field(
        &self,
        field_name: &FieldName,
        named_files: NamedFiles,
        value: &[u8],
    ) -> Option<bool> {
        let part_name = self.unambiguous_name()?;
        let is_file = self.disposition.count("filename") > 0;
        let content_type = self.content_type.as_ref();
        let is_utf8 = |text: &[u8]| {
            content_type.is_none_or(|content_type| content_type.is_read_as_utf8(text))
        };
        // Commons FileUpload reads the parts inside a `multipart` part, and gives them its name.
        let is_multipart = |content_type: &HeaderParameters<'_>| {
            let essence = content_type.value.to_ascii_lowercase();
            essence.starts_with("multipart")
        };
        if content_type.is_some_and(is_multipart) || (!is_file && !is_utf8(part_name.as_bytes())) {
            return None;
        }
        // This part sets the charset of the form's other parts (RFC 7578, section 4.6).
        if part_name.eq_ignore_ascii_case("_charset_") {
            let names_utf8 = value.trim_ascii().eq_ignore_ascii_case(b"utf-8");
            return names_utf8.then_some(false);
        }
        if is_file && named_files == NamedFiles::NotTheField {
            return Some(false);
        }
        if !field_name.resembles(part_name.as_bytes()) {
            let decoded_name = form::decode(part_name.as_bytes());
            return (!field_name.resembles(&decoded_name)).then_some(false);
        }
        (!is_file && !self.is_encoded && is_utf8(value)).then_some(true)
    }

    /// The name in the disposition; `None` if there is none, or if readers could see another one.
    fn unambiguous_name(&self) -> Option<&'b str> {
        let disposition = &self.disposition;
        let name = disposition.unique_value("name")?;
        let is_form_data = disposition.value.eq_ignore_ascii_case("form-data");
        // Some readers undo quotes, escapes and encoded words (RFC 2047) in names.
        let may_be_decoded = name.contains(['\'', '\\', ';']) || name.contains("=?");
        (is_form_data && !disposition.has_hidden_name() && !may_be_decoded).then_some(name)
    }
}

/// Splits a header line into name and value; `None` if readers could end the line elsewhere, or find another field in
/// it.
fn parse_header_line(line: &str) -> Option<(&str, &str)> {
    let ends_line = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    let (name, value) = line.split_once(':')?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if name.is_empty() || !name.chars().all(is_plain) || value.contains(ends_line) {
        return None;
    }
    (!has_hidden_part_field(name, value)).then_some((name, value.trim_matches(' ')))
}

/// Parses `value` into `field`; `None` if `field` was set before, or if `value` does not parse.
fn set_once<'b>(field: &mut Option<HeaderParameters<'b>>, value: &'b str) -> Option<()> {
    let previous = field.replace(HeaderParameters::parse(value)?);
    previous.is_none().then_some(())
}

/// Whether readers that search a head for one of [`PART_FIELDS`], as Rack does, find one elsewhere in this line.
fn has_hidden_part_field(name: &str, value: &str) -> bool {
    let (name, value) = (name.to_ascii_lowercase(), value.to_ascii_lowercase());
    let is_in_value = |field: &str| match &*name {
        // A file's name may have the word, but not with a colon behind it.
        "content-disposition" => value.contains(&format!("{field}:")),
        _ => value.contains(field),
    };
    PART_FIELDS
        .into_iter()
        .any(|field| (name.contains(field) && name != field) || is_in_value(field))
}
