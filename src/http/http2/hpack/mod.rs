//! Compresses and decompresses the fields of HTTP/2: HPACK, RFC 7541.
//!
//! Each direction of a connection has a table of recent fields, which a block refers to. So all blocks must be decoded, in
//! order, also those of streams that are refused.
//!
//! | file | what it is |
//! |---|---|
//! | `decoder`, `encoder` | blocks of fields, from and to bytes |
//! | `field_kind` | what a field means to HTTP/2 |
//! | `huffman`, `integer` | the codings of texts and numbers |
//! | `table` | the tables that blocks refer to |

mod decoder;
mod encoder;
mod field_kind;
mod huffman;
mod integer;
mod table;

pub use decoder::{DecodedField, Decoder};
pub use encoder::Encoder;
pub use field_kind::FieldKind;
pub use table::DYNAMIC_TABLE_BYTES;

#[cfg(test)]
mod tests;
