//! Writes messages in the wire format of protocol buffers: one field after another, each after a key with its number
//! and its wire type.
//!
//! Only the field types that Prometheus and OTLP need are here. Nothing here reads messages; `otlp.rs` reads one, with
//! the wire types below. Source: <https://protobuf.dev/programming-guides/encoding/>.

use crate::base::varint::put_varint;

/// Wire type of a value of one to ten bytes.
pub const WIRE_VARINT: u32 = 0;
/// Wire type of a value of eight bytes.
pub const WIRE_FIXED64: u32 = 1;
/// Wire type of a length and as many bytes.
pub const WIRE_LENGTH_DELIMITED: u32 = 2;
/// Wire type of a value of four bytes.
pub const WIRE_FIXED32: u32 = 5;

/// A message to which fields are appended.
#[derive(Debug, Default)]
pub struct ProtoMessage(Vec<u8>);

impl ProtoMessage {
    /// Appends the key of a field: its number, and the wire type of its value.
    fn write_key(&mut self, field_number: u32, wire_type: u32) {
        put_varint(&mut self.0, u64::from(field_number << 3 | wire_type));
    }

    /// Appends a `uint64`, a `bool`, an enumeration, or an `int64` that is not negative.
    pub fn with_uint(mut self, field_number: u32, value: u64) -> ProtoMessage {
        self.write_key(field_number, WIRE_VARINT);
        put_varint(&mut self.0, value);
        self
    }

    /// Appends a `fixed64`, or an `sfixed64` that is not negative.
    pub fn with_fixed64(mut self, field_number: u32, value: u64) -> ProtoMessage {
        self.write_key(field_number, WIRE_FIXED64);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Appends a `double`, in eight bytes.
    pub fn with_double(self, field_number: u32, value: f64) -> ProtoMessage {
        self.with_fixed64(field_number, value.to_bits())
    }

    /// Appends a `string`, in UTF-8.
    pub fn with_string(self, field_number: u32, text: &str) -> ProtoMessage {
        self.with_bytes(field_number, text.as_bytes())
    }

    /// Appends a nested message.
    pub fn with_message(self, field_number: u32, message: &ProtoMessage) -> ProtoMessage {
        self.with_bytes(field_number, &message.0)
    }

    /// Appends the length of a value, and its bytes.
    fn with_bytes(mut self, field_number: u32, bytes: &[u8]) -> ProtoMessage {
        self.write_key(field_number, WIRE_LENGTH_DELIMITED);
        put_varint(&mut self.0, bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    /// Returns the encoded message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}
