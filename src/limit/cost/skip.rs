//! Skips a JSON container, 64 bytes at a time, to find its end. Strings and brackets are found by bit masks of a block,
//! as in simdjson (Langdale and Lemire, "Parsing Gigabytes of JSON per Second", 2019).

/// The position in a container that is being skipped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Skip {
    /// How many containers are open; 0 at the end.
    depth: u64,
    in_string: bool,
    /// Whether the next byte is escaped.
    escaped: bool,
}

/// One bit for each byte of a block, the first byte lowest.
struct Masks {
    quotes: u64,
    backslashes: u64,
    opens: u64,
    closes: u64,
}

const BLOCK: usize = 64;

impl Skip {
    /// The position after the bracket that opens the container.
    pub fn begin() -> Skip {
        Skip {
            depth: 1,
            ..Skip::default()
        }
    }

    /// Skips bytes and returns how many; fewer than all if the container ends in them. See [`Skip::is_over`].
    pub fn feed(&mut self, data: &[u8]) -> usize {
        let (blocks, rest) = data.as_chunks::<BLOCK>();
        if !blocks.is_empty()
            && let Some(end) = self.blocks(blocks)
        {
            return end;
        }
        let end = rest.iter().position(|byte| self.byte(*byte));
        end.map_or(data.len(), |end| data.len() - rest.len() + end + 1)
    }

    pub fn is_over(&self) -> bool {
        self.depth == 0
    }

    /// Reads one byte. Returns whether the container ends with it.
    fn byte(&mut self, byte: u8) -> bool {
        if std::mem::take(&mut self.escaped) {
            return false;
        }
        match byte {
            b'\\' => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            b'{' | b'[' if !self.in_string => self.depth += 1,
            b'}' | b']' if !self.in_string => self.depth -= 1,
            _ => {}
        }
        self.depth == 0
    }

    /// Reads blocks. Returns how many bytes belong to the container, if it ends in them.
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)]
    fn blocks(&mut self, blocks: &[[u8; BLOCK]]) -> Option<usize> {
        // All processors with AVX2 have the other features too. The standard library caches what it detects.
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("bmi1")
        {
            // SAFETY: this processor has what the function is compiled for.
            return unsafe { self.blocks_by_avx2(blocks) };
        }
        // SAFETY: every processor of this architecture has SSE2.
        self.each(
            blocks,
            |_| None,
            |block| unsafe { Masks::by_sse2(block) },
            prefix_xor,
        )
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn blocks(&mut self, blocks: &[[u8; BLOCK]]) -> Option<usize> {
        self.each(blocks, |_| None, Masks::of, prefix_xor)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,pclmulqdq,popcnt,bmi1")]
    fn blocks_by_avx2(&mut self, blocks: &[[u8; BLOCK]]) -> Option<usize> {
        use std::arch::x86_64::{_mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_set_epi64x};
        let prefix_xor = |bits: u64| {
            // Carry-less multiplication by ones sums up the lower bits modulo 2.
            let product =
                _mm_clmulepi64_si128::<0>(_mm_set_epi64x(0, bits as i64), _mm_set_epi64x(0, -1));
            _mm_cvtsi128_si64(product) as u64
        };
        self.each(
            blocks,
            |block| quotes_alone(block),
            |block| Masks::by_avx2(block),
            prefix_xor,
        )
    }

    /// Reads blocks with the given instructions. `quotes_alone` returns the quotes of a block without brackets and
    /// backslashes, as most blocks of texts are.
    #[inline(always)]
    fn each(
        &mut self,
        blocks: &[[u8; BLOCK]],
        quotes_alone: impl Fn(&[u8; BLOCK]) -> Option<u64>,
        masks: impl Fn(&[u8; BLOCK]) -> Masks,
        prefix_xor: impl Fn(u64) -> u64,
    ) -> Option<usize> {
        for (number, block) in blocks.iter().enumerate() {
            if !self.escaped
                && let Some(quotes) = quotes_alone(block)
            {
                self.in_string ^= quotes.count_ones() % 2 == 1;
                continue;
            }
            if let Some(end) = self.block(&masks(block), &prefix_xor) {
                return Some(number * BLOCK + end);
            }
        }
        None
    }

    /// Reads one block. Returns how many bytes belong to the container, if it ends in the block.
    #[inline(always)]
    fn block(&mut self, masks: &Masks, prefix_xor: impl Fn(u64) -> u64) -> Option<usize> {
        let mut escaped = u64::from(self.escaped);
        let mut ends_escaped = false;
        if masks.backslashes | escaped != 0 {
            // A backslash escapes the next byte, unless it is escaped itself.
            let mut left = masks.backslashes & !escaped;
            while left != 0 {
                let bit = left & left.wrapping_neg();
                ends_escaped |= bit >> (BLOCK - 1) != 0;
                escaped |= bit << 1;
                left &= !(bit | bit << 1);
            }
        }
        let strings = prefix_xor(masks.quotes & !escaped) ^ if self.in_string { !0 } else { 0 };
        let outside = !(strings | escaped);
        let (opens, closes) = (masks.opens & outside, masks.closes & outside);
        let many = u64::from(closes.count_ones());
        if many < self.depth {
            self.depth = self.depth - many + u64::from(opens.count_ones());
        } else {
            let mut brackets = opens | closes;
            while brackets != 0 {
                let place = brackets.trailing_zeros();
                match closes >> place & 1 {
                    0 => self.depth += 1,
                    _ => self.depth -= 1,
                }
                if self.depth == 0 {
                    (self.in_string, self.escaped) = (false, false);
                    return Some(place as usize + 1);
                }
                brackets &= brackets - 1;
            }
        }
        self.in_string = strings >> (BLOCK - 1) != 0;
        self.escaped = ends_escaped;
        None
    }
}

/// Each bit of the result is the parity of the bits up to it.
fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// The quotes of a block without brackets and backslashes; none if it may have some.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[allow(unsafe_code)]
fn quotes_alone(block: &[u8; BLOCK]) -> Option<u64> {
    use std::arch::x86_64::{
        _mm256_add_epi8, _mm256_cmpeq_epi8, _mm256_cmpgt_epi8, _mm256_loadu_si256,
        _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8,
    };
    let (parts, _) = block.as_chunks::<32>();
    // SAFETY: a part has 32 bytes.
    let load = |part: &[u8; 32]| unsafe { _mm256_loadu_si256(part.as_ptr().cast()) };
    let (low, high) = (load(&parts[0]), load(&parts[1]));
    // With this bit set, brackets and backslashes are `{`, `|` and `}`. 2 more makes them the largest signed bytes.
    let others = |part| {
        let folded = _mm256_or_si256(part, _mm256_set1_epi8(0x20));
        let moved = _mm256_add_epi8(folded, _mm256_set1_epi8(2));
        _mm256_cmpgt_epi8(moved, _mm256_set1_epi8(0x7c))
    };
    if _mm256_movemask_epi8(_mm256_or_si256(others(low), others(high))) != 0 {
        return None;
    }
    let quotes = |part| {
        let equal = _mm256_cmpeq_epi8(part, _mm256_set1_epi8(b'"' as i8));
        u64::from(_mm256_movemask_epi8(equal) as u32)
    };
    Some(quotes(high) << 32 | quotes(low))
}

impl Masks {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    #[allow(unsafe_code)]
    fn by_avx2(block: &[u8; BLOCK]) -> Masks {
        use std::arch::x86_64::{
            __m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_or_si256,
            _mm256_set1_epi8,
        };
        let (parts, _) = block.as_chunks::<32>();
        // SAFETY: a part has 32 bytes.
        let load = |part: &[u8; 32]| unsafe { _mm256_loadu_si256(part.as_ptr().cast()) };
        let (low, high) = (load(&parts[0]), load(&parts[1]));
        let equal = |low: __m256i, high: __m256i, byte: u8| {
            let byte = _mm256_set1_epi8(byte as i8);
            let mask = |part| _mm256_movemask_epi8(_mm256_cmpeq_epi8(part, byte)) as u32;
            u64::from(mask(high)) << 32 | u64::from(mask(low))
        };
        // Square brackets differ from braces in this bit alone.
        let brace = |part| _mm256_or_si256(part, _mm256_set1_epi8(0x20));
        Masks {
            quotes: equal(low, high, b'"'),
            backslashes: equal(low, high, b'\\'),
            opens: equal(brace(low), brace(high), b'{'),
            closes: equal(brace(low), brace(high), b'}'),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "sse2")]
    fn by_sse2(block: &[u8; BLOCK]) -> Masks {
        use std::arch::x86_64::{
            __m128i, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8,
        };
        let mut masks = Masks {
            quotes: 0,
            backslashes: 0,
            opens: 0,
            closes: 0,
        };
        let (parts, _) = block.as_chunks::<16>();
        for (number, part) in parts.iter().enumerate() {
            let bits = u128::from_le_bytes(*part);
            let bytes = _mm_set_epi64x((bits >> 64) as i64, bits as i64);
            let equal = |bytes: __m128i, byte: u8| {
                let mask = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8));
                u64::from(_mm_movemask_epi8(mask) as u32) << (16 * number)
            };
            masks.quotes |= equal(bytes, b'"');
            masks.backslashes |= equal(bytes, b'\\');
            // Square brackets differ from braces in this bit alone.
            let braces = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
            masks.opens |= equal(braces, b'{');
            masks.closes |= equal(braces, b'}');
        }
        masks
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn of(block: &[u8; BLOCK]) -> Masks {
        let mask = |is: fn(u8) -> bool| {
            let bits = block.iter().enumerate();
            bits.fold(0, |mask, (place, byte)| {
                mask | u64::from(is(*byte)) << place
            })
        };
        Masks {
            quotes: mask(|byte| byte == b'"'),
            backslashes: mask(|byte| byte == b'\\'),
            opens: mask(|byte| byte | 0x20 == b'{'),
            closes: mask(|byte| byte | 0x20 == b'}'),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_read_as_bytes_do(text in r#"([a-z ]{0,9}|[ -!#-Z^-z|~é]{60,90}|\{|\}|\[|\]|"|\\){0,120}"#, depth in 1_u64..40, cut in 0_usize..200) {
            let start = Skip { depth, ..Skip::default() };
            let mut bytes = start;
            let mut read = 0;
            for byte in text.bytes() {
                read += 1;
                if bytes.byte(byte) {
                    break;
                }
            }
            let (mut blocks, cut) = (start, cut.min(text.len()));
            let mut count = blocks.feed(&text.as_bytes()[..cut]);
            if !blocks.is_over() {
                count += blocks.feed(&text.as_bytes()[cut..]);
            }
            prop_assert_eq!((count, blocks.is_over()), (read, bytes.is_over()));
            prop_assert_eq!((blocks.in_string, blocks.escaped), (bytes.in_string, bytes.escaped));
        }
    }
}
