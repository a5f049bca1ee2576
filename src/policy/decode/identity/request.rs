//! Identities that a request carries: its credential, and an email address in its body.

use super::super::super::collect::Cx;
use super::super::super::model::{EmailConfig, TokenConfig};
use super::super::super::table::{Table, ValueShape, may, must, words};
use super::super::super::tree::Node;
use super::super::invalid;
use super::super::leaf::{HEADER, SIZE};
use crate::identity::mailbox::Fold;

pub(super) static TOKEN: Table = Table {
    name: "`token`",
    doc: "Where a request's credential is found.",
    fields: &[
        may(
            "header",
            ValueShape::Form(&HEADER),
            "In this header.",
            "x-api-key",
        ),
        may(
            "scheme",
            ValueShape::Text,
            "With header: it stands behind this scheme. Without, what stands behind any scheme of Authorization is the credential.",
            "Token",
        ),
        may(
            "bearer",
            ValueShape::Flag,
            "In Authorization: Bearer.",
            "true",
        ),
        may("query", ValueShape::Text, "In this query parameter.", "key"),
        may("cookie", ValueShape::Text, "In this cookie.", "session"),
    ],
};

const FOLD: [(&str, bool); 2] = [("keep", false), ("fold", true)];

pub(super) static EMAIL: Table = Table {
    name: "`email`",
    doc: "Where an email address is found; it is hashed before it is stored.",
    fields: &[
        must(
            "body",
            ValueShape::Text,
            "The field of a JSON, form or multipart body; dots reach into nested objects.",
            "email",
        ),
        may(
            "max",
            ValueShape::Form(&SIZE),
            "Most of a body that is held back to look for it; a route that counts by it refuses longer ones. Default: 64KiB.",
            "64KiB",
        ),
        may(
            "accents",
            ValueShape::Words(&words(&FOLD)),
            "Whether letters count without accents, as databases that ignore these look accounts up. Default: keep.",
            "fold",
        ),
        may(
            "tags",
            ValueShape::Words(&words(&FOLD)),
            "Whether an address counts without what stands behind a `+` before the `@`. Default: keep.",
            "fold",
        ),
        may(
            "dots",
            ValueShape::Words(&words(&FOLD)),
            "Whether an address counts without dots before the `@`, and googlemail.com as gmail.com. Default: keep.",
            "fold",
        ),
    ],
};

pub(super) fn token(cx: &mut Cx, node: &Node) -> Option<TokenConfig> {
    let fields = TOKEN.open(cx, node)?;
    fields.belongs_to(cx, "scheme", "header");
    let way = fields.one_of(cx, &["header", "bearer", "query", "cookie"])?;
    match way {
        "header" => {
            let name = fields.get(way).and_then(|node| cx.header(node))?.value;
            match fields.get("scheme") {
                None => Some(TokenConfig::Header(name)),
                Some(node) => scheme(cx, node).map(|scheme| TokenConfig::Scheme(name, scheme)),
            }
        }
        "bearer" => {
            let flag = fields.get(way).and_then(|node| cx.flag(node))?;
            if !flag.value {
                cx.error(
                    flag.place,
                    "`bearer: false` finds no token",
                    Some("write `bearer: true`".into()),
                );
            }
            Some(TokenConfig::Bearer)
        }
        "query" => fields
            .text(cx, way, "the name of a query parameter")
            .map(TokenConfig::Query),
        _ => fields
            .text(cx, way, "the name of a cookie")
            .map(TokenConfig::Cookie),
    }
}

/// The scheme of a credential, a token of RFC 9110.
fn scheme(cx: &mut Cx, node: &Node) -> Option<String> {
    cx.read(node, "a scheme", |text| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if text.is_empty() || !text.chars().all(plain) {
            let message = format!("`{text}` is not a scheme");
            return Err(invalid(message, "write one word, like `Token`"));
        }
        Ok(text.to_owned())
    })
    .map(|scheme| scheme.value)
}

pub(super) fn email(cx: &mut Cx, node: &Node) -> Option<EmailConfig> {
    let fields = EMAIL.open(cx, node)?;
    let max = fields
        .get("max")
        .and_then(|node| cx.size(node, 256, 1 << 20));
    let field = fields.text(cx, "body", "the name of a field")?;
    let mut folds = |name: &str| {
        let node = fields.get(name);
        let word = node.and_then(|node| cx.word(node, &FOLD));
        word.is_some_and(|word| word.value)
    };
    let fold = Fold {
        accents: folds("accents"),
        tags: folds("tags"),
        dots: folds("dots"),
    };
    Some(EmailConfig {
        field,
        fold,
        max: max.map_or(64 * 1024, |max| max.value),
    })
}
