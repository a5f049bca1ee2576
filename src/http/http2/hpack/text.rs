//! The texts in blocks of fields: RFC 7541 section 5.2, and RFC 9204 section 4.1.2 for QPACK.

use super::huffman;
use super::integer::read_number;

/// Takes a text off the front of `remaining`. Its length has a prefix of `prefix_bits`; the bit before that says whether
/// the text is Huffman-coded. `None` if the text is malformed.
///
/// The result is `Some(None)` for a Huffman-coded text, which is appended to `huffman_text` decoded.
pub fn read_text<'a>(
    remaining: &mut &'a [u8],
    prefix_bits: u32,
    huffman_text: &mut Vec<u8>,
) -> Option<Option<&'a [u8]>> {
    let is_huffman = remaining.first()? & (1 << prefix_bits) != 0;
    let length = read_number(remaining, prefix_bits)?;
    let (bytes, after) = remaining.split_at_checked(length)?;
    *remaining = after;
    if is_huffman {
        huffman::decode(bytes, huffman_text)?;
        return Some(None);
    }
    Some(Some(bytes))
}
