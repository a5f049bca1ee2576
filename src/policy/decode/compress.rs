//! Reads `compress`: the codings by which responses are compressed.

use std::sync::Arc;

use super::super::context::LoadContext;
use super::super::section::FieldReader;
use super::super::table::ValueShape;
use super::super::tree::Node;
use super::field::word_fields;
use super::switch_word::{is_off, is_on};
use crate::http::content_coding::ContentCoding;

word_fields! {
    /// A field with the name of a content coding.
    pub struct CodingField: ContentCoding =
        "zstd" => ContentCoding::Zstd, "br" => ContentCoding::Br, "gzip" => ContentCoding::Gzip;
}

/// A field with a word for on, which stands for all codings, with a word for off, or with a list of codings. The value
/// has the preferred coding first, and is empty for off.
pub struct CompressField;

impl FieldReader for CompressField {
    type Value = Arc<[ContentCoding]>;
    const SHAPE: ValueShape = ValueShape::AnyOf(&[
        ValueShape::Bool,
        ValueShape::Words(&["off"]),
        ValueShape::OneOrList(&CodingField::SHAPE),
    ]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Arc<[ContentCoding]>> {
        match node.scalar() {
            Some(text) if is_off(text) => return Some(Arc::default()),
            Some(text) if is_on(text) => return Some(ContentCoding::ALL.into()),
            _ => {}
        }
        let mut codings: Vec<ContentCoding> = Vec::new();
        cx.read_list(node, |cx, item| {
            let coding = CodingField::read(cx, item)?;
            if codings.contains(&coding) {
                let message = format!("`{coding}` stands twice in the list");
                cx.error(item.location, message, Some("remove one of them".into()));
                return None;
            }
            codings.push(coding);
            Some(())
        });
        Some(codings.into())
    }
}
