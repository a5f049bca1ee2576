//! Counts the items of a batch: a body that is a JSON array, whose elements are single requests of JSON-RPC or GraphQL.
//!
//! Servers differ in what they take for a batch, so the type of a body decides little here. Several documents in a row
//! are one batch, and so is the array in the field `operations` of a form (GraphQL multipart requests). If a server
//! could read a body as a batch and the gateway cannot count it, the number of items is unknown.

use std::fmt;
use std::sync::LazyLock;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::body_format::BodyFormat;
use super::field_name::{FieldName, is_blank};
use super::field_search::find_in_form;
use super::first_bytes::{begins_like_json, trim_start};
use super::json::MemberName;
use super::multipart::{self, NamedFiles};
use super::search_limits::has_content_coding;
use crate::http::head::Head;
use crate::identity::{FieldValue, form};

/// The field of a GraphQL multipart request that holds the operation, or an array of operations.
static OPERATIONS_FIELD: LazyLock<FieldName> = LazyLock::new(|| FieldName::new("operations"));

/// Names of fields and members by which some server makes a list that is no JSON array. PHP reads the name `0` as the
/// first index of a list. Rails gives a body that is an array the name `_json`.
static LIST_NAMES: LazyLock<[FieldName; 2]> = LazyLock::new(|| ["0", "_json"].map(FieldName::new));

/// The number of items in the body of the request with this head, at least 1; `None` if a server may read another number.
/// `body` is only the beginning of the body if `is_whole` is false.
pub fn count_items(head: &Head, body: &[u8], is_whole: bool) -> Option<u32> {
    let is_in_query = |name| form::find_in_target(&head.uri, name) != FieldValue::Absent;
    if LIST_NAMES.iter().any(is_in_query) {
        return None;
    }
    if body.is_empty() && is_whole {
        return Some(1);
    }
    let fields = &head.fields;
    if has_content_coding(fields) {
        return None;
    }
    let item_count = count_items_in_text(body, is_whole)?;
    let format = BodyFormat::parse(fields.all("content-type"), body);
    let find_field = |name, named_files| match &format {
        BodyFormat::Multipart(boundary) => {
            multipart::find_in_multipart(boundary, name, named_files, body)
        }
        _ => find_in_form(name, body),
    };
    // GraphQL uploads have numbers as the names of their files, so such a file is no list.
    let has_field = |name| find_field(name, NamedFiles::NotTheField) != FieldValue::Absent;
    match &format {
        BodyFormat::Ambiguous => return None,
        BodyFormat::Multipart(_) | BodyFormat::Form => {}
        // Some servers read such a body as a form.
        BodyFormat::Untyped if is_utf8_prefix(body) => {}
        BodyFormat::Json | BodyFormat::Untyped | BodyFormat::Other => return Some(item_count),
    }
    if !is_whole || LIST_NAMES.iter().any(has_field) {
        return None;
    }
    match find_field(&OPERATIONS_FIELD, NamedFiles::Ambiguous) {
        FieldValue::Absent => Some(item_count),
        FieldValue::Single(text) => Some(item_count.max(count_items_in_text(&text, true)?)),
        FieldValue::Ambiguous => None,
    }
}

/// Whether the bytes are UTF-8. The last character may be cut off.
fn is_utf8_prefix(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).map_or_else(|error| error.error_len().is_none(), |_| true)
}

/// The number of items in the documents of a text, at least 1. A text that is no JSON is one item.
///
/// `None` if a lenient reader could find other documents, or if a document has a member of [`LIST_NAMES`]. `None` also if
/// the text is not whole and may begin with a document.
fn count_items_in_text(text: &[u8], is_whole: bool) -> Option<u32> {
    let documents_text = skip_marks(text);
    let after_comments = skip_comments(documents_text);
    if !is_whole && (after_comments.is_empty() || may_begin_json_value(after_comments)) {
        return None;
    }
    let documents = Documents::read(documents_text);
    let has_unread_documents =
        documents.has_remainder && (documents.has_any || begins_like_json(after_comments));
    if has_unread_documents || documents.has_list_name {
        return None;
    }
    Some(u32::try_from(documents.item_count.max(1)).unwrap_or(u32::MAX))
}

/// The JSON documents at the beginning of a text.
#[derive(Default)]
struct Documents {
    /// The number of items of all documents.
    item_count: u64,
    /// Whether a document is an object with a member of [`LIST_NAMES`].
    has_list_name: bool,
    /// Whether a document was parsed.
    has_any: bool,
    /// Whether text that cannot be parsed follows the documents.
    has_remainder: bool,
}

impl Documents {
    /// Reads documents up to the end of the text, or to the first one that cannot be parsed.
    fn read(mut text: &[u8]) -> Documents {
        let mut documents = Documents::default();
        while !text.is_empty() {
            let mut parser = serde_json::Deserializer::from_slice(text).into_iter::<Document>();
            let Some(Ok(document)) = parser.next() else {
                documents.has_remainder = true;
                break;
            };
            documents.has_any = true;
            documents.item_count += document.item_count;
            documents.has_list_name |= document.has_list_name;
            text = trim_start(&text[parser.byte_offset()..]);
        }
        documents
    }
}

/// Whether the text may begin with a JSON value.
fn may_begin_json_value(text: &[u8]) -> bool {
    let begins_with_word = |word: &&str| {
        // The NULs of a text in UTF-16 are left out.
        let letters = text.iter().copied().filter(|byte| *byte != 0);
        letters.take(word.len()).eq(word.bytes())
    };
    let begins_value = |byte: &u8| byte.is_ascii_digit() || b"{[\"-".contains(byte);
    text.first().is_some_and(begins_value) || ["true", "false", "null"].iter().any(begins_with_word)
}

/// The text after the white space and the byte order marks at its beginning. NULs are skipped too, so that an array in
/// UTF-16 begins as one in UTF-8.
fn skip_marks(text: &[u8]) -> &[u8] {
    let trimmed = trim_start(text);
    let utf16_mark = [b"\xff\xfe", b"\xfe\xff"]
        .into_iter()
        .find(|mark| trimmed.starts_with(*mark));
    utf16_mark.map_or(trimmed, |mark| trim_start(&trimmed[mark.len()..]))
}

/// The text after the comments and the blanks at its beginning, which lenient readers skip; empty if a comment does not
/// end.
fn skip_comments(mut text: &[u8]) -> &[u8] {
    loop {
        text = skip_blanks(text);
        let comment_length = match text {
            [b'/', b'/', ..] => memchr::memchr(b'\n', text).map(|newline| newline + 1),
            [b'/', b'*', inside @ ..] => {
                // The two bytes before `inside`, and the two that end it.
                memchr::memmem::find(inside, b"*/").map(|inside_length| inside_length + 4)
            }
            _ => return text,
        };
        text = comment_length.map_or(&[][..], |length| &text[length..]);
    }
}

/// The text after the white space of Unicode at its beginning.
fn skip_blanks(mut text: &[u8]) -> &[u8] {
    loop {
        text = trim_start(text);
        // A character has at most four bytes.
        let first_chunk = text[..text.len().min(4)].utf8_chunks().next();
        let first_char = first_chunk.and_then(|chunk| chunk.valid().chars().next());
        match first_char.filter(|first_char| is_blank(*first_char)) {
            Some(blank) => text = &text[blank.len_utf8()..],
            None => return text,
        }
    }
}

/// What counts of one JSON document.
#[derive(Default)]
struct Document {
    /// The number of elements of an array, 1 for an object, 0 for any other value.
    item_count: u64,
    /// Whether the document is an object with a member of [`LIST_NAMES`].
    has_list_name: bool,
}

/// Whether some server takes a member of this name for a list.
fn is_list_name(member: &str) -> bool {
    // A comparison of names is slow, and a body may have thousands of members. So most are ruled out by their letters.
    member.contains(['0', 'j', 'J']) && LIST_NAMES.iter().any(|name| name.resembles_member(member))
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Document, D::Error> {
        reader.deserialize_any(DocumentVisitor)
    }
}

/// Counts the items of a document while serde reads it.
struct DocumentVisitor;

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = Document;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
        let mut has_list_name = false;
        while let Some(name) = map.next_key_seed(MemberName)? {
            has_list_name |= is_list_name(&name);
            map.next_value::<IgnoredAny>()?;
        }
        Ok(Document {
            item_count: 1,
            has_list_name,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Document, A::Error> {
        let mut item_count = 0;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            item_count += 1;
        }
        Ok(Document {
            item_count,
            has_list_name: false,
        })
    }

    fn visit_str<E>(self, _: &str) -> Result<Document, E> {
        Ok(Document::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Document, E> {
        Ok(Document::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Document, E> {
        Ok(Document::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Document, E> {
        Ok(Document::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Document, E> {
        Ok(Document::default())
    }

    fn visit_unit<E>(self) -> Result<Document, E> {
        Ok(Document::default())
    }
}
