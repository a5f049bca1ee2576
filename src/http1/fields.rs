//! Header fields: from bytes without copying values, and to bytes.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::{Malformed, Said};

/// Where the fields of a head are, by offsets, so that the head can be cut off the input that they
/// were found in.
#[derive(Debug)]
pub struct Places {
    start: usize,
    fields: SmallVec<[[u32; 4]; 24]>,
}

impl Places {
    /// The places of `fields`, which were parsed from `input`.
    pub fn new(input: &BytesMut, fields: &[httparse::Header<'_>]) -> Places {
        let start = input.as_ptr() as usize;
        let mut places = Places {
            start,
            fields: SmallVec::new(),
        };
        for field in fields {
            let name = places.of(field.name);
            let value = field.value.as_ptr() as usize - start;
            let place = [name.0, name.1, value as u32, field.value.len() as u32];
            places.fields.push(place);
        }
        places
    }

    /// Start and length of a part of the same input. An empty text may be no part of it.
    pub fn of(&self, part: &str) -> (u32, u32) {
        if part.is_empty() {
            return (0, 0);
        }
        let start = part.as_ptr() as usize - self.start;
        (start as u32, part.len() as u32)
    }

    /// The fields of the head `bytes`, and what they say of its framing.
    pub fn read(&self, bytes: &Bytes) -> Result<(HeaderMap, Said), Malformed> {
        // Some fields will be added on the way.
        let mut map = HeaderMap::with_capacity(self.fields.len() + 5);
        let mut said = Said::default();
        for [name, name_len, value, value_len] in &self.fields {
            let name = HeaderName::from_bytes(&bytes[range(*name, *name_len)]);
            let value = HeaderValue::from_maybe_shared(bytes.slice(range(*value, *value_len)));
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(Malformed("it has a field that is not one"));
            };
            said.note(&name, &value)?;
            map.append(name, value);
        }
        Ok((map, said))
    }
}

/// A place as a range.
pub fn range(start: u32, length: u32) -> std::ops::Range<usize> {
    start as usize..(start + length) as usize
}

/// Appends fields as they stand in a head or in trailers.
pub fn write(out: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}
