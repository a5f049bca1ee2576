//! Writes and reads numbers of any number of bits, for `block.rs`. The lowest bit of a byte comes first.

/// Bits of the length that stands before a number of [`BitWriter::put_sized`].
const LENGTH_BITS: u32 = 7;

/// Writes numbers of any width, one after another.
#[derive(Debug, Default)]
pub struct BitWriter {
    bytes: Vec<u8>,
    /// Bits that are not in `bytes` yet, at most 32 between two calls.
    word: u64,
    /// The number of bits in `word`.
    filled: u32,
}

impl BitWriter {
    /// Appends the low `width` bits of `value`; `width` is at most 64.
    #[inline]
    pub fn put(&mut self, value: u64, width: u32) {
        if width > 32 {
            self.put(value & 0xffff_ffff, 32);
            return self.put(value >> 32, width - 32);
        }
        self.word |= (value & ((1 << width) - 1)) << self.filled;
        self.filled += width;
        if self.filled >= 32 {
            self.bytes
                .extend_from_slice(&(self.word as u32).to_le_bytes());
            self.word >>= 32;
            self.filled -= 32;
        }
    }

    /// Appends a number in a form that is short for small ones: its length, then the bits below its highest one.
    pub fn put_sized(&mut self, value: u64) {
        let length = 64 - value.leading_zeros();
        self.put(u64::from(length), LENGTH_BITS);
        self.put(value, length.saturating_sub(1));
    }

    /// Returns the written bytes. The last one is filled up with zeros.
    pub fn finish(mut self) -> Vec<u8> {
        let last_bytes = self.filled.div_ceil(8) as usize;
        self.bytes
            .extend_from_slice(&self.word.to_le_bytes()[..last_bytes]);
        self.bytes
    }
}

/// Returns the number of bits that [`BitWriter::put_sized`] appends.
pub fn sized_bits(value: u64) -> u64 {
    let below_highest = (64 - value.leading_zeros()).saturating_sub(1);
    u64::from(LENGTH_BITS + below_highest)
}

/// Reads what a [`BitWriter`] wrote. After the end it reads zeros, and [`BitReader::is_overrun`] becomes true.
#[derive(Clone, Debug)]
pub struct BitReader<'a> {
    all: &'a [u8],
    /// The bytes that are not in `word` yet.
    bytes: &'a [u8],
    /// The bits to read next.
    word: u64,
    /// The number of bits in `word`.
    filled: u32,
    is_overrun: bool,
}

impl<'a> BitReader<'a> {
    pub fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader {
            all: bytes,
            bytes,
            word: 0,
            filled: 0,
            is_overrun: false,
        }
    }

    /// Fills `word` to at least 57 bits, as far as there are bytes.
    #[inline]
    fn fill(&mut self) {
        if let Some(next) = self.bytes.first_chunk::<8>() {
            self.word |= u64::from_le_bytes(*next) << self.filled;
            let whole_bytes = (63 - self.filled) / 8;
            self.bytes = &self.bytes[whole_bytes as usize..];
            self.filled += whole_bytes * 8;
        } else {
            self.fill_by_bytes();
        }
    }

    /// Fills `word` from the last seven bytes.
    #[cold]
    fn fill_by_bytes(&mut self) {
        while self.filled <= 56 {
            let Some((first, rest)) = self.bytes.split_first() else {
                return;
            };
            self.word |= u64::from(*first) << self.filled;
            self.filled += 8;
            self.bytes = rest;
        }
    }

    #[inline]
    fn skip(&mut self, width: u32) {
        if width > self.filled {
            self.is_overrun = true;
            (self.word, self.filled) = (0, 0);
            return;
        }
        self.word >>= width;
        self.filled -= width;
    }

    /// Reads a number of `width` bits; `width` is at most 64.
    #[inline]
    pub fn get(&mut self, width: u32) -> u64 {
        if width > 32 {
            let low = self.get(32);
            return low | self.get(width - 32) << 32;
        }
        if self.filled < width {
            self.fill();
        }
        let value = self.word & ((1 << width) - 1);
        self.skip(width);
        value
    }

    /// Reads a number that [`BitWriter::put_sized`] wrote.
    pub fn get_sized(&mut self) -> u64 {
        match self.get(LENGTH_BITS) as u32 {
            0 => 0,
            length if length > 64 => {
                self.is_overrun = true;
                0
            }
            length => self.get(length - 1) | 1 << (length - 1),
        }
    }

    /// Reads ones up to the next zero, or up to `max` of them. A zero that ends them is read too.
    #[inline]
    pub fn count_ones(&mut self, max: u32) -> u32 {
        if self.filled <= max {
            self.fill();
        }
        let ones = self.word.trailing_ones().min(max);
        self.skip(ones + u32::from(ones < max));
        ones
    }

    /// Whether more was read than there was, or a number that [`BitWriter`] cannot have written.
    pub fn is_overrun(&self) -> bool {
        self.is_overrun
    }

    /// Returns the bytes after the last one of which a bit was read.
    pub fn following_bytes(&self) -> Option<&'a [u8]> {
        let ahead = self.filled as usize / 8;
        let at = self.all.len() - self.bytes.len() - ahead;
        self.all.get(at..)
    }
}
