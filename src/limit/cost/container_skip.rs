//! Skips a JSON container, 64 bytes at a time, to find its end. Strings and brackets are located by bit masks of a
//! block, as in simdjson (Langdale and Lemire, "Parsing Gigabytes of JSON per Second", 2019). Nothing else of the grammar
//! is checked: a brace may even close a square bracket.

/// The position in a container that is being skipped.
#[derive(Clone, Copy, Debug, Default)]
pub struct ContainerSkip {
    /// The number of open containers; 0 at the end.
    depth: u64,
    is_in_string: bool,
    /// Whether the next byte is escaped.
    is_escaped: bool,
}

/// The positions of some bytes in a block: one bit for each byte, the first byte lowest.
struct BlockMasks {
    quotes: u64,
    backslashes: u64,
    /// The positions of `{` and `[`.
    opens: u64,
    /// The positions of `}` and `]`.
    closes: u64,
}

/// The number of bytes that are read at a time: as many as a mask has bits.
const BLOCK_BYTES: usize = 64;

/// The vector instructions that blocks are read with.
#[derive(Clone, Copy, Debug)]
enum Instructions {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Instructions {
    /// The instructions that this processor has, the fastest first. The standard library caches what it detects.
    fn available() -> impl Iterator<Item = Instructions> {
        #[cfg(target_arch = "x86_64")]
        {
            // The functions below are compiled for these instructions too. Processors with AVX2 have POPCNT and BMI1.
            let has_bit_instructions = is_x86_feature_detected!("pclmulqdq")
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("bmi1");
            let vectors = [
                (Instructions::Avx512, is_x86_feature_detected!("avx512bw")),
                (Instructions::Avx2, is_x86_feature_detected!("avx2")),
            ];
            let vectors = vectors
                .into_iter()
                .filter(move |(_, is_detected)| has_bit_instructions && *is_detected);
            vectors
                .map(|(instructions, _)| instructions)
                .chain([Instructions::Portable])
        }
        #[cfg(not(target_arch = "x86_64"))]
        [Instructions::Portable].into_iter()
    }

    /// Skips blocks with these instructions; see [`ContainerSkip::skip_blocks`].
    #[allow(unsafe_code)]
    fn skip_blocks(self, skip: &mut ContainerSkip, blocks: &[[u8; BLOCK_BYTES]]) -> Option<usize> {
        match self {
            // SAFETY: `available` has checked that this processor has the instructions that the function is compiled
            // for.
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => unsafe { skip_by_avx512(skip, blocks) },
            // SAFETY: `available` has checked that this processor has the instructions that the function is compiled
            // for.
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => unsafe { skip_by_avx2(skip, blocks) },
            Instructions::Portable => skip.skip_blocks(blocks, BlockMasks::portable, prefix_xor),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512bw,pclmulqdq,popcnt,bmi1")]
fn skip_by_avx512(skip: &mut ContainerSkip, blocks: &[[u8; BLOCK_BYTES]]) -> Option<usize> {
    skip.skip_blocks(
        blocks,
        |block| BlockMasks::by_avx512(block),
        |bits| prefix_xor_by_clmul(bits),
    )
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,pclmulqdq,popcnt,bmi1")]
fn skip_by_avx2(skip: &mut ContainerSkip, blocks: &[[u8; BLOCK_BYTES]]) -> Option<usize> {
    skip.skip_blocks(
        blocks,
        |block| BlockMasks::by_avx2(block),
        |bits| prefix_xor_by_clmul(bits),
    )
}

/// Computes [`prefix_xor`] by one multiplication: a carry-less one by ones sums up the lower bits modulo 2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "pclmulqdq")]
fn prefix_xor_by_clmul(bits: u64) -> u64 {
    use std::arch::x86_64::{_mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_set_epi64x};
    let ones = _mm_set_epi64x(0, -1);
    _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(
        _mm_set_epi64x(0, bits as i64),
        ones,
    )) as u64
}

impl ContainerSkip {
    /// The position after the bracket that opens the container.
    pub fn begin() -> ContainerSkip {
        ContainerSkip {
            depth: 1,
            ..ContainerSkip::default()
        }
    }

    /// Skips bytes and returns how many. It skips fewer than all if the container ends in them; see
    /// [`ContainerSkip::is_over`].
    pub fn feed(&mut self, data: &[u8]) -> usize {
        let fastest = Instructions::available().next();
        self.feed_with(fastest.unwrap_or(Instructions::Portable), data)
    }

    fn feed_with(&mut self, instructions: Instructions, data: &[u8]) -> usize {
        let (blocks, last_bytes) = data.as_chunks::<BLOCK_BYTES>();
        if !blocks.is_empty()
            && let Some(end) = instructions.skip_blocks(self, blocks)
        {
            return end;
        }
        let end = last_bytes.iter().position(|byte| self.skip_byte(*byte));
        end.map_or(data.len(), |end| data.len() - last_bytes.len() + end + 1)
    }

    /// Whether the container has ended.
    pub fn is_over(&self) -> bool {
        self.depth == 0
    }

    /// Reads one byte. Returns whether the container ends with it.
    fn skip_byte(&mut self, byte: u8) -> bool {
        if std::mem::take(&mut self.is_escaped) {
            return false;
        }
        match byte {
            b'\\' => self.is_escaped = true,
            b'"' => self.is_in_string = !self.is_in_string,
            b'{' | b'[' if !self.is_in_string => self.depth += 1,
            b'}' | b']' if !self.is_in_string => self.depth -= 1,
            _ => {}
        }
        self.depth == 0
    }

    /// Reads blocks. Returns how many bytes belong to the container, if it ends in them.
    #[inline(always)]
    fn skip_blocks(
        &mut self,
        blocks: &[[u8; BLOCK_BYTES]],
        masks: impl Fn(&[u8; BLOCK_BYTES]) -> BlockMasks,
        prefix_xor: impl Fn(u64) -> u64,
    ) -> Option<usize> {
        // A local copy stays in registers.
        let mut position = *self;
        let mut end = None;
        for (block_index, block) in blocks.iter().enumerate() {
            let masks = masks(block);
            // Most blocks of texts have neither brackets nor backslashes.
            if !position.is_escaped && masks.backslashes | masks.opens | masks.closes == 0 {
                position.is_in_string ^= masks.quotes.count_ones() % 2 == 1;
                continue;
            }
            if let Some(block_end) = position.skip_block(&masks, &prefix_xor) {
                end = Some(block_index * BLOCK_BYTES + block_end);
                break;
            }
        }
        *self = position;
        end
    }

    /// Reads one block. Returns how many bytes belong to the container, if it ends in the block.
    #[inline(always)]
    fn skip_block(&mut self, masks: &BlockMasks, prefix_xor: impl Fn(u64) -> u64) -> Option<usize> {
        // In a row of backslashes every second one is escaped; if their number is odd, so is the byte behind the row.
        // The subtraction borrows through a row, so that the bits of a row that begins at an odd position differ.
        const ODD_POSITIONS: u64 = 0xaaaa_aaaa_aaaa_aaaa;
        let escaped_before = u64::from(self.is_escaped);
        let backslashes = masks.backslashes & !escaped_before;
        let borrowed = (backslashes << 1 | ODD_POSITIONS).wrapping_sub(backslashes) ^ ODD_POSITIONS;
        let escaped = borrowed ^ (backslashes | escaped_before);
        let ends_escaped = (borrowed & backslashes) >> (BLOCK_BYTES - 1) != 0;
        let in_strings =
            prefix_xor(masks.quotes & !escaped) ^ if self.is_in_string { !0 } else { 0 };
        let outside_strings = !(in_strings | escaped);
        let opens = masks.opens & outside_strings;
        let closes = masks.closes & outside_strings;
        let close_count = u64::from(closes.count_ones());
        if close_count < self.depth {
            self.depth = self.depth - close_count + u64::from(opens.count_ones());
        } else {
            let mut brackets = opens | closes;
            while brackets != 0 {
                let position = brackets.trailing_zeros();
                match closes >> position & 1 {
                    0 => self.depth += 1,
                    _ => self.depth -= 1,
                }
                if self.depth == 0 {
                    (self.is_in_string, self.is_escaped) = (false, false);
                    return Some(position as usize + 1);
                }
                brackets &= brackets - 1;
            }
        }
        self.is_in_string = in_strings >> (BLOCK_BYTES - 1) != 0;
        self.is_escaped = ends_escaped;
        None
    }
}

/// Returns bits each of which is the parity of the bits up to and including its own position.
fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

impl BlockMasks {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512bw")]
    #[allow(unsafe_code)]
    fn by_avx512(block: &[u8; BLOCK_BYTES]) -> BlockMasks {
        use std::arch::x86_64::{
            _mm512_cmpeq_epi8_mask, _mm512_loadu_si512, _mm512_or_si512, _mm512_set1_epi8,
        };
        // SAFETY: a block has 64 bytes.
        let bytes = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
        let equal = |bytes, byte: u8| _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(byte as i8));
        // Square brackets differ from braces in this bit alone.
        let braces = _mm512_or_si512(bytes, _mm512_set1_epi8(0x20));
        BlockMasks {
            quotes: equal(bytes, b'"'),
            backslashes: equal(bytes, b'\\'),
            opens: equal(braces, b'{'),
            closes: equal(braces, b'}'),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    #[allow(unsafe_code)]
    fn by_avx2(block: &[u8; BLOCK_BYTES]) -> BlockMasks {
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
        let brace = |part| _mm256_or_si256(part, _mm256_set1_epi8(0x20));
        BlockMasks {
            quotes: equal(low, high, b'"'),
            backslashes: equal(low, high, b'\\'),
            opens: equal(brace(low), brace(high), b'{'),
            closes: equal(brace(low), brace(high), b'}'),
        }
    }

    fn portable(block: &[u8; BLOCK_BYTES]) -> BlockMasks {
        let mask = |is_marked: fn(u8) -> bool| {
            let bits = block.iter().enumerate();
            bits.fold(0, |mask, (position, byte)| {
                mask | u64::from(is_marked(*byte)) << position
            })
        };
        BlockMasks {
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
        fn blocks_read_as_bytes_do(text in r#"([a-z ]{0,9}|[ -!#-Z^-z|~é]{60,90}|\{|\}|\[|\]|"|\\|\\{2,70}){0,120}"#, depth in 1_u64..40, cut in 0_usize..200) {
            let start = ContainerSkip { depth, ..ContainerSkip::default() };
            let mut bytes = start;
            let mut read = 0;
            for byte in text.bytes() {
                read += 1;
                if bytes.skip_byte(byte) {
                    break;
                }
            }
            let cut = cut.min(text.len());
            for instructions in Instructions::available() {
                let mut blocks = start;
                let mut count = blocks.feed_with(instructions, &text.as_bytes()[..cut]);
                if !blocks.is_over() {
                    count += blocks.feed_with(instructions, &text.as_bytes()[cut..]);
                }
                prop_assert_eq!((count, blocks.is_over()), (read, bytes.is_over()));
                prop_assert_eq!((blocks.is_in_string, blocks.is_escaped), (bytes.is_in_string, bytes.is_escaped));
            }
        }
    }
}
