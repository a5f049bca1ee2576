//! Compresses and decompresses the fields of HTTP/2: HPACK, RFC 7541.
//!
//! Each direction of a connection has a table of recent fields, to which blocks of fields refer. So all blocks must be
//! decoded in order, also those of refused streams.
//!
//! | file | what it is |
//! |---|---|
//! | `decoder` | decodes blocks of fields |
//! | `encoder` | encodes blocks of fields |
//! | `field_kind` | what a field means to HTTP/2, and whether it is valid |
//! | `huffman` | decodes texts |
//! | `integer` | the coding of numbers |
//! | `table` | the tables that blocks refer to |
//! | `text` | the coding of texts |

mod decoder;
mod encoder;
mod field_kind;
mod huffman;
pub mod integer;
mod table;
mod text;

pub use decoder::{DecodedField, Decoder};
pub use encoder::Encoder;
pub use field_kind::FieldKind;
pub use table::DYNAMIC_TABLE_BYTES;
pub use text::read_text;

#[cfg(test)]
mod tests;
