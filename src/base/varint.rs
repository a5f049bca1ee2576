//! Numbers of seven bits a byte, the lowest first: small ones take little room.

/// Writes a number behind what is there.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 128 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a number and leaves what is behind it; nothing where there is none.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
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
            put(&mut bytes, value);
            bytes.push(9);
            let mut rest = &bytes[..];
            assert_eq!(take(&mut rest), Some(value));
            assert_eq!(rest, [9]);
            assert_eq!(take(&mut &bytes[..bytes.len() - 2]), None);
        }
        assert_eq!(take(&mut &[255; 11][..]), None);
    }
}
