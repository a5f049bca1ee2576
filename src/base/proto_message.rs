//! Messages in the wire format of protocol buffers: one field after another, each after a key with its number
//! and its wire type.
//!
//! Only the field types that Prometheus, OTLP and Envoy need are here. [`ProtoFields`] reads the fields of a message.
//! Source: <https://protobuf.dev/programming-guides/encoding/>.

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
    /// The bytes of a value with a length, without that length: a text, bytes or a message.
    Bytes(&'a [u8]),
    /// The four or eight bytes of a value of fixed size.
    Fixed(&'a [u8]),
}

/// The fields of a message, each with its number. An item is `None` where the message is malformed, and is then the last.
pub struct ProtoFields<'a>(&'a [u8]);

impl<'a> ProtoFields<'a> {
    /// The fields of this message.
    pub fn new(message: &'a [u8]) -> ProtoFields<'a> {
        ProtoFields(message)
    }

    fn take_field(&mut self) -> Option<(u64, ProtoValue<'a>)> {
        let key = take_varint(&mut self.0)?;
        // The lowest three bits of a key are the wire type of the value.
        let value = match (key & 7) as u32 {
            WIRE_VARINT => ProtoValue::Number(take_varint(&mut self.0)?),
            WIRE_LENGTH_DELIMITED => {
                let length = usize::try_from(take_varint(&mut self.0)?).ok()?;
                ProtoValue::Bytes(self.take_bytes(length)?)
            }
            WIRE_FIXED64 => ProtoValue::Fixed(self.take_bytes(8)?),
            WIRE_FIXED32 => ProtoValue::Fixed(self.take_bytes(4)?),
            _ => return None,
        };
        Some((key >> 3, value))
    }

    fn take_bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, later_fields) = self.0.split_at_checked(length)?;
        self.0 = later_fields;
        Some(bytes)
    }
}

impl<'a> Iterator for ProtoFields<'a> {
    type Item = Option<(u64, ProtoValue<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.take_field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// Finds the first field with the number `field_number`. Returns `None` if the message has no such field, or is
/// malformed before the end of that field.
pub fn find_field(message: &[u8], field_number: u64) -> Option<ProtoValue<'_>> {
    for field in ProtoFields::new(message) {
        let (number, value) = field?;
        if number == field_number {
            return Some(value);
        }
    }
    None
}
