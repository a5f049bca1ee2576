//! Compresses blocks of counts, for the columns of `column.rs`. Each block is written in the shortest of four forms.
//! There is no state between blocks.
//!
//! | form | content |
//! |---|---|
//! | zero | nothing: all values are zero |
//! | packed | the least value and a width, then each value's distance from the least in so many bits |
//! | Rice | the median and an order, then each value's signed distance from the median in Rice's code |
//! | sparse | the number of values above zero and two orders, then for each of these values the gap and the height |
//!
//! A gap is the number of zeros since the last value above zero, and a height is the value less 1. Both are in Rice's
//! code, each of an order of its own.
//!
//! Rice's code of an order `k` writes a number in two parts: its quotient by 2^k as so many one-bits and a zero, then
//! its lowest `k` bits. Source: R. F. Rice, "Some Practical Universal Noiseless Coding Techniques", JPL Publication
//! 79-22, 1979.

use super::bits::{BitReader, BitWriter, sized_bit_count};

/// A number with this quotient or a greater one is written by [`BitWriter::put_sized`] instead, after 20 one-bits. So a
/// spike does not take as many bits as its quotient.
const MAX_QUOTIENT: u32 = 20;

/// Bits that name the form of a block.
const FORM_BITS: u32 = 2;
/// Bits of the width of packed values, 0 to 64.
const WIDTH_BITS: u32 = 7;
/// Bits of an order of Rice's code, 0 to 63.
const ORDER_BITS: u32 = 6;

/// The names of the four forms.
const FORM_ZERO: u64 = 0;
const FORM_PACKED: u64 = 1;
const FORM_RICE: u64 = 2;
const FORM_SPARSE: u64 = 3;

/// Writes a block in its shortest form. A block without values takes no bits.
pub fn encode_block(values: &[u64], out: &mut BitWriter) {
    let (Some(least), Some(greatest)) =
        (values.iter().min().copied(), values.iter().max().copied())
    else {
        return;
    };
    if greatest == 0 {
        return out.put_bits(FORM_ZERO, FORM_BITS);
    }
    let packed_width = 64 - (greatest - least).leading_zeros();
    let all_distances_bits = values.len() as u64 * u64::from(packed_width);
    let packed_bits = sized_bit_count(least) + u64::from(WIDTH_BITS) + all_distances_bits;
    let median = median(values);
    let median_distances = || values.iter().map(|value| zigzag(*value, median));
    let distances_code = best_rice_code(median_distances());
    let rice_bits = distances_code.bit_count + sized_bit_count(median) + u64::from(ORDER_BITS);
    let gaps = || {
        let mut next_index = 0;
        values
            .iter()
            .enumerate()
            .filter(|(_, value)| **value > 0)
            .map(move |(index, _)| {
                let gap = index - next_index;
                next_index = index + 1;
                gap as u64
            })
    };
    let heights = || {
        values
            .iter()
            .filter(|value| **value > 0)
            .map(|value| value - 1)
    };
    let nonzero_count = heights().count() as u64;
    let gaps_code = best_rice_code(gaps());
    let heights_code = best_rice_code(heights());
    let orders_bits = 2 * u64::from(ORDER_BITS);
    let numbers_bits = gaps_code.bit_count + heights_code.bit_count;
    let sparse_bits = sized_bit_count(nonzero_count) + orders_bits + numbers_bits;
    if sparse_bits < packed_bits && sparse_bits < rice_bits {
        out.put_bits(FORM_SPARSE, FORM_BITS);
        out.put_sized(nonzero_count);
        out.put_bits(u64::from(gaps_code.order), ORDER_BITS);
        out.put_bits(u64::from(heights_code.order), ORDER_BITS);
        for (gap, height) in gaps().zip(heights()) {
            put_rice(out, gap, gaps_code.order);
            put_rice(out, height, heights_code.order);
        }
    } else if rice_bits < packed_bits {
        out.put_bits(FORM_RICE, FORM_BITS);
        out.put_sized(median);
        out.put_bits(u64::from(distances_code.order), ORDER_BITS);
        median_distances().for_each(|distance| put_rice(out, distance, distances_code.order));
    } else {
        out.put_bits(FORM_PACKED, FORM_BITS);
        out.put_sized(least);
        out.put_bits(u64::from(packed_width), WIDTH_BITS);
        values
            .iter()
            .for_each(|value| out.put_bits(value - least, packed_width));
    }
}

/// Reads a block into `values`, whose length must be that of the written block. Returns `false` if the bits are no
/// block of this length; `values` then hold arbitrary numbers.
#[must_use]
pub fn decode_block(bits: &mut BitReader<'_>, values: &mut [u64]) -> bool {
    if values.is_empty() {
        return true;
    }
    match bits.get_bits(FORM_BITS) {
        FORM_ZERO => values.fill(0),
        FORM_PACKED => {
            let least = bits.get_sized();
            let width = bits.get_bits(WIDTH_BITS) as u32;
            if width > 64 {
                return false;
            }
            for value in &mut *values {
                *value = least.wrapping_add(bits.get_bits(width));
            }
        }
        FORM_RICE => {
            let median = bits.get_sized();
            let order = bits.get_bits(ORDER_BITS) as u32;
            for value in &mut *values {
                *value = unzigzag(get_rice(bits, order), median);
            }
        }
        _ => {
            let nonzero_count = bits.get_sized();
            let gaps_order = bits.get_bits(ORDER_BITS) as u32;
            let heights_order = bits.get_bits(ORDER_BITS) as u32;
            values.fill(0);
            let mut next_index = 0_u64;
            // The index grows with each number, so a wrong count ends behind the last value.
            for _ in 0..nonzero_count {
                let index = next_index.saturating_add(get_rice(bits, gaps_order));
                let height = get_rice(bits, heights_order);
                let value_index = usize::try_from(index).ok();
                let Some(value) = value_index.and_then(|index| values.get_mut(index)) else {
                    return false;
                };
                *value = height.wrapping_add(1);
                next_index = index + 1;
            }
        }
    }
    !bits.is_overrun()
}

/// Returns the median, or the greater of the two middle values. There must be a value.
fn median(values: &[u64]) -> u64 {
    let mut partly_sorted = values.to_vec();
    let middle_index = partly_sorted.len() / 2;
    let (_, median, _) = partly_sorted.select_nth_unstable(middle_index);
    *median
}

/// Maps the signed distance from the median to a number: 0, -1, 1, -2, 2 … become 0, 1, 2, 3, 4 …
fn zigzag(value: u64, median: u64) -> u64 {
    let distance = value.wrapping_sub(median) as i64;
    (distance << 1 ^ distance >> 63) as u64
}

/// Computes the value from a number that [`zigzag`] returned.
fn unzigzag(number: u64, median: u64) -> u64 {
    let distance = (number >> 1) as i64 ^ -((number & 1) as i64);
    median.wrapping_add(distance as u64)
}

/// An order of Rice's code, and how many bits a list of values takes in it.
struct RiceCode {
    order: u32,
    bit_count: u64,
}

/// Finds the order of Rice's code in which the values take fewest bits, among at most three: the length of the values'
/// mean in bits, and the two below it. The best order is usually among them.
fn best_rice_code(values: impl Iterator<Item = u64> + Clone) -> RiceCode {
    let (sum, value_count) = values
        .clone()
        .fold((0_u128, 0_u128), |(sum, count), value| {
            (sum + u128::from(value), count + 1)
        });
    let mean = (sum / value_count.max(1)).min(u128::from(u64::MAX)) as u64;
    let mean_bits = (64 - mean.leading_zeros()).min(63);
    let code_of_order = |order: u32| RiceCode {
        order,
        bit_count: values
            .clone()
            .map(|value| rice_bit_count(value, order))
            .sum(),
    };
    (mean_bits.saturating_sub(2)..=mean_bits)
        .map(code_of_order)
        .min_by_key(|code| (code.bit_count, code.order))
        .unwrap_or(RiceCode {
            order: 0,
            bit_count: 0,
        })
}

/// Returns how many bits a value takes in Rice's code.
fn rice_bit_count(value: u64, order: u32) -> u64 {
    match value >> order {
        quotient if quotient < u64::from(MAX_QUOTIENT) => quotient + 1 + u64::from(order),
        _ => u64::from(MAX_QUOTIENT) + sized_bit_count(value),
    }
}

/// Writes a value in Rice's code.
#[inline]
fn put_rice(out: &mut BitWriter, value: u64, order: u32) {
    let quotient = value >> order;
    if quotient < u64::from(MAX_QUOTIENT) {
        out.put_bits((1 << quotient) - 1, quotient as u32 + 1);
        out.put_bits(value, order);
    } else {
        out.put_bits((1 << MAX_QUOTIENT) - 1, MAX_QUOTIENT);
        out.put_sized(value);
    }
}

/// Reads a value that [`put_rice`] wrote.
#[inline]
fn get_rice(bits: &mut BitReader<'_>, order: u32) -> u64 {
    match bits.read_ones(MAX_QUOTIENT) {
        MAX_QUOTIENT => bits.get_sized(),
        quotient => u64::from(quotient) << order | bits.get_bits(order),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(values: &[u64]) -> Vec<u8> {
        let mut bits = BitWriter::default();
        encode_block(values, &mut bits);
        bits.finish()
    }

    fn check(values: &[u64], max_bytes: usize) {
        let encoded = encoded(values);
        let mut decoded = vec![7; values.len()];
        let mut bits = BitReader::new(&encoded);
        assert!(decode_block(&mut bits, &mut decoded), "{values:?}");
        assert_eq!(decoded, values);
        assert_eq!(bits.following_bytes(), Some(&[][..]), "{values:?}");
        assert!(
            encoded.len() <= max_bytes,
            "{} bytes for {values:?}",
            encoded.len()
        );
    }

    #[test]
    fn each_form() {
        check(&[0; 300], 1);
        check(&[5; 300], 3);
        check(&[u64::MAX; 300], 10);
        check(&[0, u64::MAX, 0, 1], 20);
        // A spike costs no more than its own digits.
        let mut spike = [0; 300];
        spike[200] = 1_000_000;
        check(&spike, 9);
        let steps: Vec<u64> = (0..300).map(|index| 2_000 + index % 16).collect();
        check(&steps, 160);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            values in prop::collection::vec(
                prop_oneof![4 => Just(0), 3 => 0..20_u64, 2 => 1_000..1_100_u64, 1 => any::<u64>()],
                0..400,
            )
        ) {
            check(&values, 10 + values.len() * 9);
        }

        #[test]
        fn any_bytes_may_be_read(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0..400_usize) {
            let mut values = vec![0; count];
            let mut bits = BitReader::new(&bytes);
            let _ = decode_block(&mut bits, &mut values);
            let _ = bits.following_bytes();
        }
    }
}
