//! Reads the fields `token` and `email` of the section `identity`: where a request has its credential, and where its
//! body has an email address.

use super::super::super::context::LoadContext;
use super::super::super::model::{EmailConfig, TokenConfig};
use super::super::super::section::{FieldReader, RequiredField, section};
use super::super::super::table::{Table, TableField, ValueShape, optional, words};
use super::super::super::tree::Node;
use super::super::ValueError;
use super::super::field::SizeField;
use super::super::scalar::HEADER_NAME_FORMAT;
use crate::identity::mailbox::Fold;

pub(super) static TOKEN_TABLE: Table = Table {
    name: "`token`",
    doc: "Where a request's credential is found.",
    fields: &[
        optional(
            "header",
            ValueShape::Format(&HEADER_NAME_FORMAT),
            "In this header.",
            "x-api-key",
        ),
        optional(
            "scheme",
            ValueShape::Text,
            "With header: it stands behind this scheme. Without, what stands behind any scheme of Authorization is the credential.",
            "Token",
        ),
        optional(
            "bearer",
            ValueShape::Bool,
            "In Authorization: Bearer.",
            "true",
        ),
        optional("query", ValueShape::Text, "In this query parameter.", "key"),
        optional("cookie", ValueShape::Text, "In this cookie.", "session"),
    ],
};

/// The words for whether a difference between addresses is ignored.
const FOLD_WORDS: [(&str, bool); 2] = [("keep", false), ("fold", true)];

/// Minimum of `max`, in bytes, so that a short form with an address fits.
const MIN_BUFFERED_BODY: u64 = 256;
/// Maximum of `max`, in bytes, because so much of each body is buffered in memory.
const MAX_BUFFERED_BODY: u64 = 1 << 20;
/// Default of `max`, in bytes.
const DEFAULT_BUFFERED_BODY: usize = 64 * 1024;

section! {
    /// Where a body has an email address, and which differences between addresses are ignored.
    pub struct EmailSection, table EMAIL_TABLE = "`email`",
        "Where an email address is found; it is hashed before it is stored.";
    body: RequiredField<BodyFieldName>,
        "The field of a JSON, form or multipart body; dots reach into nested objects.", "email";
    max: SizeField<MIN_BUFFERED_BODY, MAX_BUFFERED_BODY> = DEFAULT_BUFFERED_BODY,
        "Most of a body that is held back to look for it; a route that counts by it refuses longer ones.", "64KiB";
    accents: FoldField = false,
        "Whether letters count without accents, as databases that ignore these look accounts up.", "fold";
    tags: FoldField = false,
        "Whether an address counts without what stands behind a `+` before the `@`.", "fold";
    dots: FoldField = false,
        "Whether an address counts without dots before the `@`, and googlemail.com as gmail.com.", "fold";
}

/// The path of a field in a body.
pub struct BodyFieldName;

impl FieldReader for BodyFieldName {
    type Value = String;
    const SHAPE: ValueShape = ValueShape::Text;

    fn read(cx: &mut LoadContext, node: &Node) -> Option<String> {
        let name = cx.read_text(node, "the name of a field");
        name.map(|name| name.value)
    }

    fn format_value(name: &String) -> String {
        name.clone()
    }
}

/// Whether a difference between addresses is ignored: `keep` or `fold`.
pub struct FoldField;

impl FieldReader for FoldField {
    type Value = bool;
    const SHAPE: ValueShape = ValueShape::Words(&words(&FOLD_WORDS));

    fn read(cx: &mut LoadContext, node: &Node) -> Option<bool> {
        cx.read_word(node, &FOLD_WORDS).map(|word| word.value)
    }

    fn format_value(is_folded: &bool) -> String {
        let word = FOLD_WORDS.iter().find(|(_, meaning)| meaning == is_folded);
        word.map_or_else(String::new, |(word, _)| (*word).into())
    }
}

pub(super) fn read_token(cx: &mut LoadContext, node: &Node) -> Option<TokenConfig> {
    let fields = TOKEN_TABLE.open(cx, node)?;
    fields.check_belongs_to(cx, "scheme", "header");
    let source = fields.require_one_of(cx, &["header", "bearer", "query", "cookie"])?;
    match source {
        "header" => {
            let name = fields
                .get(source)
                .and_then(|node| cx.read_header_name(node))?
                .value;
            match fields.get("scheme") {
                None => Some(TokenConfig::Header(name)),
                Some(node) => read_scheme(cx, node).map(|scheme| TokenConfig::Scheme(name, scheme)),
            }
        }
        "bearer" => {
            let bearer = fields.get(source).and_then(|node| cx.read_bool(node))?;
            if !bearer.value {
                cx.error(
                    bearer.location,
                    "`bearer: false` finds no token",
                    Some("write `bearer: true`".into()),
                );
            }
            Some(TokenConfig::Bearer)
        }
        "query" => fields
            .read_text(cx, source, "the name of a query parameter")
            .map(TokenConfig::Query),
        _ => fields
            .read_text(cx, source, "the name of a cookie")
            .map(TokenConfig::Cookie),
    }
}

/// Reads the scheme of a credential, which is a `token` of RFC 9110.
fn read_scheme(cx: &mut LoadContext, node: &Node) -> Option<String> {
    cx.read_scalar(node, "a scheme", |text| {
        let is_token_char = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if text.is_empty() || !text.chars().all(is_token_char) {
            let message = format!("`{text}` is not a scheme");
            return Err(ValueError::new(message, "write one word, like `Token`"));
        }
        Ok(text.to_owned())
    })
    .map(|scheme| scheme.value)
}

pub(super) fn read_email(cx: &mut LoadContext, node: &Node) -> Option<EmailConfig> {
    let section = EmailSection::read(cx, node);
    Some(EmailConfig {
        field: section.body?,
        fold: Fold {
            accents: section.accents,
            tags: section.tags,
            dots: section.dots,
        },
        max: section.max,
    })
}
