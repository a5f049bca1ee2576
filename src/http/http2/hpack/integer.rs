//! The coding of integers in blocks of fields: RFC 7541 section 5.1.
//!
//! A number begins in the lowest bits of a byte, the prefix. If all bits of the prefix are set, the number less the
//! prefix follows in bytes of seven bits each, the lowest first.

/// The highest bit of a byte after the prefix: another byte follows.
const MORE_FOLLOWS: u8 = 0x80;

/// Appends a number with a prefix of `prefix_bits`. The other bits of the first byte are those of `flags`.
pub fn write_number(out: &mut Vec<u8>, flags: u8, prefix_bits: u32, number: usize) {
    // The prefix with all bits set: more bytes follow.
    let full_prefix = (1 << prefix_bits) - 1;
    if number < full_prefix {
        return out.push(flags | number as u8);
    }
    out.push(flags | full_prefix as u8);
    let mut remaining = number - full_prefix;
    while remaining >= usize::from(MORE_FOLLOWS) {
        out.push(remaining as u8 | MORE_FOLLOWS);
        remaining >>= 7;
    }
    out.push(remaining as u8);
}

/// Takes a number with a prefix of `prefix_bits` off the front of `block`. If the number is incomplete or has more than
/// four bytes after the first, it returns `None` and takes nothing.
pub fn read_number(block: &mut &[u8], prefix_bits: u32) -> Option<usize> {
    let (first, mut remaining) = block.split_first()?;
    let full_prefix = (1 << prefix_bits) - 1;
    let mut number = usize::from(*first) & full_prefix;
    if number == full_prefix {
        // No valid index, length or size needs more than four bytes.
        for shift in [0, 7, 14, 21] {
            let (byte, after) = remaining.split_first()?;
            remaining = after;
            number += usize::from(byte & !MORE_FOLLOWS) << shift;
            if byte & MORE_FOLLOWS == 0 {
                *block = remaining;
                return Some(number);
            }
        }
        return None;
    }
    *block = remaining;
    Some(number)
}
