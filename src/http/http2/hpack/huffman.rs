//! Decodes the Huffman code of RFC 7541 appendix B. Nothing here encodes.
//!
//! The code is canonical: codes of one length are consecutive numbers, in the order of their symbols. So only the
//! lengths of the codes are listed, which determine the codes. Short codes, which are those of usual characters, are
//! looked up in a table by their first eight bits.

/// The number of symbols: 256 bytes and [`END_OF_TEXT`].
const SYMBOL_COUNT: usize = 257;

/// Length of each symbol's code, in bits.
#[rustfmt::skip]
const CODE_LENGTHS: [u8; SYMBOL_COUNT] = [
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

/// The symbol that marks the end of a text. Its code is an error in a text; only its first bits may pad the text.
const END_OF_TEXT: u16 = 256;

/// Length of the longest code, in bits.
const MAX_CODE_LENGTH: usize = 30;

/// Bits that are looked up at once. The codes of digits, letters and much punctuation are not longer.
const LOOKUP_BITS: usize = 8;

/// The tables by which codes are decoded. Codes in them are aligned to the left of 32 bits.
struct DecodeTables {
    /// All symbols in the order of their codes.
    symbols: [u16; SYMBOL_COUNT],
    /// The first code of each length, by the length in bits. No code has the first length, 0, or the last one.
    first_codes: [FirstCode; MAX_CODE_LENGTH + 2],
    /// The short codes, by the next [`LOOKUP_BITS`] of the text.
    short_codes: ShortCodes,
}

/// The first of the codes with one length.
#[derive(Clone, Copy)]
struct FirstCode {
    /// The code, aligned to the left of 32 bits. For a length that no code has, the next longer code; beyond the
    /// longest, 2^32, which is more than any code.
    code: u64,
    /// The index of its symbol in [`DecodeTables::symbols`].
    symbol_index: u16,
}

/// Each short code, at every index whose bits begin with the code.
type ShortCodes = [ShortCode; 1 << LOOKUP_BITS];

/// A code of at most [`LOOKUP_BITS`].
#[derive(Clone, Copy)]
struct ShortCode {
    /// The byte that the code stands for.
    symbol: u8,
    /// The length of the code in bits; 0 if a longer code begins with the bits that were looked up.
    length: u8,
}

static DECODE_TABLES: DecodeTables = build_tables();

/// Computes the tables from the lengths of the codes.
const fn build_tables() -> DecodeTables {
    let mut tables = DecodeTables {
        symbols: [0; SYMBOL_COUNT],
        first_codes: [FirstCode {
            code: 1 << 32,
            symbol_index: SYMBOL_COUNT as u16,
        }; MAX_CODE_LENGTH + 2],
        short_codes: [ShortCode {
            symbol: 0,
            length: 0,
        }; 1 << LOOKUP_BITS],
    };
    let (mut length, mut next_code, mut symbol_index) = (1, 0_u64, 0);
    while length <= MAX_CODE_LENGTH {
        tables.first_codes[length] = FirstCode {
            code: next_code,
            symbol_index: symbol_index as u16,
        };
        let mut symbol = 0;
        while symbol < SYMBOL_COUNT {
            if CODE_LENGTHS[symbol] as usize == length {
                tables.symbols[symbol_index] = symbol as u16;
                symbol_index += 1;
                if length <= LOOKUP_BITS {
                    enter_short_code(&mut tables.short_codes, next_code, symbol as u8, length);
                }
                next_code += 1 << (32 - length);
            }
            symbol += 1;
        }
        length += 1;
    }
    tables
}

/// Enters a short code at all indexes whose bits begin with it.
const fn enter_short_code(short_codes: &mut ShortCodes, code: u64, symbol: u8, length: usize) {
    let first_index = (code >> (32 - LOOKUP_BITS)) as usize;
    let mut index = first_index;
    while index < first_index + (1 << (LOOKUP_BITS - length)) {
        short_codes[index] = ShortCode {
            symbol,
            length: length as u8,
        };
        index += 1;
    }
}

/// Appends the decoded text to `out`. Returns `None` if `coded` is malformed; then `out` may have got a part of the
/// text.
pub fn decode(coded: &[u8], out: &mut Vec<u8>) -> Option<()> {
    // No code has fewer than five bits, so this is the longest possible text.
    out.reserve(coded.len() * 8 / 5);
    let mut bytes = coded.iter();
    // Bits that have been read and not decoded, aligned to the left.
    let mut bits = 0_u64;
    // The number of these bits.
    let mut bit_count = 0;
    loop {
        // Reads bytes while another one fits.
        while bit_count <= 56 {
            let Some(byte) = bytes.next() else { break };
            bits |= u64::from(*byte) << (56 - bit_count);
            bit_count += 8;
        }
        if bit_count == 0 {
            return Some(());
        }
        let ShortCode { symbol, length } =
            DECODE_TABLES.short_codes[(bits >> (64 - LOOKUP_BITS)) as usize];
        let length = match usize::from(length) {
            0 => {
                let (symbol, length) = find_long_code(bits >> 32);
                if length > bit_count {
                    return check_padding(bits, bit_count);
                }
                if symbol == END_OF_TEXT {
                    return None;
                }
                out.push(symbol as u8);
                length
            }
            length if length > bit_count => return check_padding(bits, bit_count),
            length => {
                out.push(symbol);
                length
            }
        };
        bits <<= length;
        bit_count -= length;
    }
}

/// Checks that the last bits of a text are padding: fewer than eight, all set, as [`END_OF_TEXT`] begins (section 5.2).
/// `None` if they are not.
fn check_padding(bits: u64, bit_count: usize) -> Option<()> {
    (bit_count < 8 && bits >> (64 - bit_count) == (1 << bit_count) - 1).then_some(())
}

/// The symbol and the length of the code that these 32 bits begin with, which must be longer than [`LOOKUP_BITS`].
fn find_long_code(bits: u64) -> (u16, usize) {
    let mut length = LOOKUP_BITS + 1;
    while length < MAX_CODE_LENGTH && bits >= DECODE_TABLES.first_codes[length + 1].code {
        length += 1;
    }
    let first_code = DECODE_TABLES.first_codes[length];
    let offset = bits.saturating_sub(first_code.code) >> (32 - length);
    let symbol = DECODE_TABLES
        .symbols
        .get(usize::from(first_code.symbol_index) + offset as usize);
    // Every code has a symbol. If one had none, `END_OF_TEXT` would make it an error.
    (symbol.copied().unwrap_or(END_OF_TEXT), length)
}
