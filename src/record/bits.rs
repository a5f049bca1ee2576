//! Bits in bytes, lowest first.

/// Writes numbers of any width, one behind the other.
#[derive(Debug, Default)]
pub struct BitWriter {
    bytes: Vec<u8>,
    /// Bits that do not fill a byte yet.
    word: u64,
    filled: u32,
}

impl BitWriter {
    /// The low `width` bits of `value`; `width` is at most 64.
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

    /// A number of which small ones are likelier: its length in seven bits, then what follows its highest bit.
    pub fn put_sized(&mut self, value: u64) {
        let length = 64 - value.leading_zeros();
        self.put(u64::from(length), 7);
        self.put(value, length.saturating_sub(1));
    }

    /// What was written, in whole bytes.
    pub fn finish(mut self) -> Vec<u8> {
        let rest = self.filled.div_ceil(8) as usize;
        self.bytes
            .extend_from_slice(&self.word.to_le_bytes()[..rest]);
        self.bytes
    }
}

/// Bits that [`BitWriter::put_sized`] takes.
pub fn sized(value: u64) -> u64 {
    7 + u64::from((64 - value.leading_zeros()).saturating_sub(1))
}

/// Reads what a [`BitWriter`] wrote. Behind the end there are zeros, and [`BitReader::overrun`] says so.
#[derive(Clone, Debug)]
pub struct BitReader<'a> {
    all: &'a [u8],
    bytes: &'a [u8],
    word: u64,
    filled: u32,
    overrun: bool,
}

impl<'a> BitReader<'a> {
    pub fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader {
            all: bytes,
            bytes,
            word: 0,
            filled: 0,
            overrun: false,
        }
    }

    /// At least 57 bits, as far as there are.
    #[inline]
    fn fill(&mut self) {
        if let Some(next) = self.bytes.first_chunk::<8>() {
            self.word |= u64::from_le_bytes(*next) << self.filled;
            let taken = (63 - self.filled) / 8;
            self.bytes = &self.bytes[taken as usize..];
            self.filled += taken * 8;
        } else {
            self.fill_slowly();
        }
    }

    #[cold]
    fn fill_slowly(&mut self) {
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
            self.overrun = true;
            (self.word, self.filled) = (0, 0);
            return;
        }
        self.word >>= width;
        self.filled -= width;
    }

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

    pub fn get_sized(&mut self) -> u64 {
        match self.get(7) as u32 {
            0 => 0,
            length if length > 64 => {
                self.overrun = true;
                0
            }
            length => self.get(length - 1) | 1 << (length - 1),
        }
    }

    /// How many ones come before the next zero, at most `most`; the zero is taken where there is one.
    #[inline]
    pub fn ones(&mut self, most: u32) -> u32 {
        if self.filled <= most {
            self.fill();
        }
        let ones = self.word.trailing_ones().min(most);
        self.skip(ones + u32::from(ones < most));
        ones
    }

    pub fn overrun(&self) -> bool {
        self.overrun
    }

    /// The whole bytes behind what was read.
    pub fn rest(&self) -> Option<&'a [u8]> {
        let ahead = self.filled as usize / 8;
        let at = self.all.len() - self.bytes.len() - ahead;
        self.all.get(at..)
    }
}
