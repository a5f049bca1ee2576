//! Compresses and decompresses the fields of HTTP/2: HPACK, RFC 7541.
//!
//! Each direction of a connection has a table of recent fields, which a block refers to. So all blocks must be decoded, in
//! order, also those of streams that are refused.

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
