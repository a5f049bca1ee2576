//! Messages in the wire format of protocol buffers, as they are written: fields behind each other, each with its number.

use crate::base::varint::put;

/// A message that is being written.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

/// How a field's value is written.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;

impl Message {
    fn key(&mut self, field: u32, form: u32) {
        put(&mut self.0, u64::from(field << 3 | form));
    }

    /// A whole number: `uint64`, `bool`, an enumeration, or an `int64` that is not negative.
    pub fn number(mut self, field: u32, value: u64) -> Message {
        self.key(field, VARINT);
        put(&mut self.0, value);
        self
    }

    /// A `fixed64`, or an `sfixed64` that is not negative.
    pub fn fixed(mut self, field: u32, value: u64) -> Message {
        self.key(field, FIXED64);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A `double`.
    pub fn double(self, field: u32, value: f64) -> Message {
        self.fixed(field, value.to_bits())
    }

    /// A `string`.
    pub fn text(self, field: u32, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    /// A message within this one.
    pub fn message(self, field: u32, message: &Message) -> Message {
        self.bytes(field, &message.0)
    }

    fn bytes(mut self, field: u32, bytes: &[u8]) -> Message {
        self.key(field, LENGTH);
        put(&mut self.0, bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    /// What was written.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}
