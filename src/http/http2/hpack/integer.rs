//! Integers in blocks of fields: RFC 7541 section 5.1.

/// Appends a number, its first `bits` in the byte whose other bits are `first`: section 5.1.
pub fn write_number(out: &mut Vec<u8>, first: u8, bits: u32, number: usize) {
    let most = (1 << bits) - 1;
    if number < most {
        return out.push(first | number as u8);
    }
    out.push(first | most as u8);
    let mut left = number - most;
    while left >= 0x80 {
        out.push((left % 0x80) as u8 | 0x80);
        left /= 0x80;
    }
    out.push(left as u8);
}

/// Takes a number off the front of `block`, its first part in the lowest `bits` of the first byte.
pub fn read_number(block: &mut &[u8], bits: u32) -> Option<usize> {
    let (first, mut rest) = block.split_first()?;
    let most = (1 << bits) - 1;
    let mut number = usize::from(*first) & most;
    if number == most {
        // Nothing has a use for more than four bytes.
        for shift in [0, 7, 14, 21] {
            let (byte, others) = rest.split_first()?;
            rest = others;
            number += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                *block = rest;
                return Some(number);
            }
        }
        return None;
    }
    *block = rest;
    Some(number)
}
