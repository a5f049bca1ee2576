//! Builds the trailers of a request from its fields, for HTTP/2 and HTTP/3.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::head::HeadSize;
use crate::http::head::hop_by_hop::accepts_trailers;
use crate::http::http1::MAX_FIELDS;
use crate::http::http2::hpack::{DecodedField, FieldKind};

/// An estimate of the memory of one trailer in a header map, in bytes, beyond the bytes that [`HeadSize`] counts for it.
const MAP_ENTRY_BYTES: usize = 128;

/// The trailers of a request, whose fields are added one after the other.
#[derive(Debug, Default)]
pub struct Trailers {
    size: HeadSize,
    map: HeaderMap,
    is_invalid: bool,
}

impl Trailers {
    /// Adds a field. Once a field is invalid or too much, all trailers are invalid.
    pub fn add(&mut self, field: DecodedField<'_>) {
        let DecodedField { kind, name, value } = field;
        let fits = self.size.add(&field, false) && self.size.field_count <= MAX_FIELDS;
        // Valid fields that must not be trailers are removed later, for both versions of HTTP.
        let is_valid = match kind {
            FieldKind::Host | FieldKind::Cookie | FieldKind::Length | FieldKind::Regular => true,
            FieldKind::Te => accepts_trailers(value),
            _ => false,
        };
        self.is_invalid |= !fits || !is_valid;
        if self.is_invalid {
            return;
        }
        match (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            (Ok(name), Ok(value)) => {
                self.map.append(name, value);
            }
            _ => self.is_invalid = true,
        }
    }

    /// The trailers and an estimate of their memory in bytes; `None` if they are malformed or too large.
    pub fn finish(self) -> Option<(HeaderMap, usize)> {
        let held_bytes = self.size.bytes + self.size.field_count * MAP_ENTRY_BYTES;
        (!self.is_invalid).then_some((self.map, held_bytes))
    }
}
