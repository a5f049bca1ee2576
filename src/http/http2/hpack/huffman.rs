//! The code of RFC 7541 Appendix B. It is canonical: the lengths say all.

/// Bits of the code of each byte, and of the end.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The symbol that ends a text and never stands in one.
const END: u16 = 256;

/// The longest code.
const LONGEST: usize = 30;

/// Bits that are looked up at once; the codes of what texts are made of are no longer.
const AT_ONCE: usize = 8;

/// Symbols in the order of their codes. For each length: the first code, aligned to the left of 32 bits, and the
/// place of its symbol.
struct Code {
    symbols: [u16; 257],
    first: [(u64, u16); LONGEST + 2],
    /// By the next bits: the symbol of a short code and its length; 0 where it is longer.
    short: [(u8, u8); 1 << AT_ONCE],
}

const CODE: Code = {
    let mut code = Code {
        symbols: [0; 257],
        first: [(1 << 32, 257); LONGEST + 2],
        short: [(0, 0); 1 << AT_ONCE],
    };
    let (mut length, mut next, mut placed) = (1, 0_u64, 0);
    while length <= LONGEST {
        code.first[length] = (next, placed as u16);
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                code.symbols[placed] = symbol as u16;
                placed += 1;
                if length <= AT_ONCE {
                    let start = (next >> (32 - AT_ONCE)) as usize;
                    let mut at = start;
                    while at < start + (1 << (AT_ONCE - length)) {
                        code.short[at] = (symbol as u8, length as u8);
                        at += 1;
                    }
                }
                next += 1 << (32 - length);
            }
            symbol += 1;
        }
        length += 1;
    }
    code
};

static DECODER: Code = CODE;

/// Appends what a coded text says; nothing when it is not one.
pub fn decode(coded: &[u8], out: &mut Vec<u8>) -> Option<()> {
    // No code has fewer than five bits.
    out.reserve(coded.len() * 8 / 5);
    let mut bytes = coded.iter();
    // What is left of the bits read so far, aligned to the left.
    let (mut bits, mut left) = (0_u64, 0);
    loop {
        while left <= 56 {
            let Some(byte) = bytes.next() else { break };
            bits |= u64::from(*byte) << (56 - left);
            left += 8;
        }
        if left == 0 {
            return Some(());
        }
        let (symbol, length) = DECODER.short[(bits >> (64 - AT_ONCE)) as usize];
        let length = match usize::from(length) {
            0 => {
                let (symbol, length) = long(bits >> 32);
                if length > left {
                    // The beginning of the end: section 5.2.
                    return is_padding(bits, left);
                }
                if symbol == END {
                    return None;
                }
                out.push(symbol as u8);
                length
            }
            length if length > left => return is_padding(bits, left),
            length => {
                out.push(symbol);
                length
            }
        };
        bits <<= length;
        left -= length;
    }
}

fn is_padding(bits: u64, left: usize) -> Option<()> {
    (left < 8 && bits >> (64 - left) == (1 << left) - 1).then_some(())
}

/// The symbol whose code these 32 bits begin with, and its length.
fn long(bits: u64) -> (u16, usize) {
    let mut length = AT_ONCE + 1;
    while length < LONGEST && bits >= DECODER.first[length + 1].0 {
        length += 1;
    }
    let (first, place) = DECODER.first[length];
    let ahead = bits.saturating_sub(first) >> (32 - length);
    let symbol = DECODER.symbols.get(usize::from(place) + ahead as usize);
    (symbol.copied().unwrap_or(END), length)
}
