//! Writes and reads numbers in seven bits per byte, the lowest bits first (LEB128), as Protocol Buffers do. Numbers
//! below 128 have one byte. The files of the record and pushes to engines use them.

/// How many bits of the number each byte has.
const BITS_PER_BYTE: usize = 7;
/// Set in each byte but the last.
const CONTINUATION_BIT: u8 = 1 << BITS_PER_BYTE;

/// Appends a number to `out`, in one to ten bytes.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= u64::from(CONTINUATION_BIT) {
        out.push(value as u8 | CONTINUATION_BIT);
        value >>= BITS_PER_BYTE;
    }
    out.push(value as u8);
}

/// Removes a number from the front of `bytes`. Returns `None` if `bytes` end within the number, or if the number has
/// more than ten bytes; `bytes` may then have lost their front. Bits beyond 64 are dropped.
pub fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(BITS_PER_BYTE) {
        let (byte, remaining) = bytes.split_first()?;
        *bytes = remaining;
        value |= u64::from(byte & !CONTINUATION_BIT) << shift;
        if byte & CONTINUATION_BIT == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            bytes.push(9);
            let mut remaining_bytes = &bytes[..];
            assert_eq!(take_varint(&mut remaining_bytes), Some(value));
            assert_eq!(remaining_bytes, [9]);
            assert_eq!(take_varint(&mut &bytes[..bytes.len() - 2]), None);
        }
        assert_eq!(take_varint(&mut &[255; 11][..]), None);
    }
}
