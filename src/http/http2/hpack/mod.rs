//! Compressed fields of HTTP/2: HPACK, RFC 7541.

mod decoder;
mod encoder;
mod huffman;
mod integer;
mod kind;
mod table;

pub use decoder::{DecodedField, Decoder};
pub use encoder::Encoder;
pub use kind::FieldKind;
pub use table::DYNAMIC_TABLE_SIZE;

#[cfg(test)]
mod tests;
