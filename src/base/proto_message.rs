//! Messages in the wire format of protocol buffers: one field after another, each after a key with its number
//! and its wire type.
//!
//! Only the field types that Prometheus and OTLP need are here. [`find_field`] reads one field of a message. Source:
//! <https://protobuf.dev/programming-guides/encoding/>.

use crate::base::varint::{put_varint, take_varint};

/// Wire type of a value of one to ten bytes.
const WIRE_VARINT: u32 = 0;
/// Wire type of a value of eight bytes.
const WIRE_FIXED64: u32 = 1;
/// Wire type of a length and as many bytes.
const WIRE_LENGTH_DELIMITED: u32 = 2;
/// Wire type of a value of four bytes.
const WIRE_FIXED32: u32 = 5;

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

    /// Appends a `fixed32`.
    pub fn with_fixed32(mut self, field_number: u32, value: u32) -> ProtoMessage {
        self.write_key(field_number, WIRE_FIXED32);
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

    /// Appends a `bytes`: the length of the value, and the value.
    pub fn with_bytes(mut self, field_number: u32, bytes: &[u8]) -> ProtoMessage {
        self.write_key(field_number, WIRE_LENGTH_DELIMITED);
        put_varint(&mut self.0, bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    /// Appends the fields of another message to those of this one.
    pub fn with_fields_of(mut self, encoded_message: &[u8]) -> ProtoMessage {
        self.0.extend(encoded_message);
        self
    }

    /// Returns the encoded message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// A value of a field, by its wire type.
pub enum ProtoValue<'a> {
    /// The value of a varint.
    Number(u64),
    /// The bytes of a value of any other wire type, without its length.
    Bytes(&'a [u8]),
}

/// Finds the first field with the number `field_number`. Returns `None` if the message has no such field, or is
/// malformed before the end of that field.
pub fn find_field(mut message: &[u8], field_number: u64) -> Option<ProtoValue<'_>> {
    while !message.is_empty() {
        let key = take_varint(&mut message)?;
        // The lowest three bits of a key are the wire type of the value.
        let value = match (key & 7) as u32 {
            WIRE_VARINT => ProtoValue::Number(take_varint(&mut message)?),
            WIRE_LENGTH_DELIMITED => {
                let length = usize::try_from(take_varint(&mut message)?).ok()?;
                let (bytes, later_fields) = message.split_at_checked(length)?;
                message = later_fields;
                ProtoValue::Bytes(bytes)
            }
            wire_type @ (WIRE_FIXED64 | WIRE_FIXED32) => {
                let length = if wire_type == WIRE_FIXED64 { 8 } else { 4 };
                let (bytes, later_fields) = message.split_at_checked(length)?;
                message = later_fields;
                ProtoValue::Bytes(bytes)
            }
            _ => return None,
        };
        if key >> 3 == field_number {
            return Some(value);
        }
    }
    None
}
