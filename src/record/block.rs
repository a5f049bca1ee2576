//! Compresses blocks of counts. Each block is written in whichever of four forms is shortest; there is no state between
//! blocks.
//!
//! | form | content |
//! |---|---|
//! | zero | nothing: all values are zero |
//! | packed | the least value, then each value's distance from it, in equal widths |
//! | Rice | the median, then each value's signed distance from it in Rice's code |
//! | sparse | for each value above zero, the zeros before it and its height, in Rice's code |
//!
//! Source of the code: R. F. Rice, "Some Practical Universal Noiseless Coding Techniques", JPL Publication 79-22, 1979.

use super::bits::{BitReader, BitWriter, sized_bits};

/// Quotients of Rice's code from here on are replaced by the value itself, so that a spike does not cost its height in
/// bits.
const MAX_QUOTIENT: u32 = 20;

/// Bits that name the form of a block.
const FORM_BITS: u32 = 2;
/// Bits of the width of packed values, 0 to 64.
const WIDTH_BITS: u32 = 7;
/// Bits of an order of Rice's code, 0 to 63.
const ORDER_BITS: u32 = 6;

const FORM_ZERO: u64 = 0;
const FORM_PACKED: u64 = 1;
const FORM_RICE: u64 = 2;
const FORM_SPARSE: u64 = 3;

/// Writes a block. An empty one takes no bits.
pub fn encode(values: &[u64], out: &mut BitWriter) {
    let (Some(least), Some(greatest)) =
        (values.iter().min().copied(), values.iter().max().copied())
    else {
        return;
    };
    if greatest == 0 {
        return out.put(FORM_ZERO, FORM_BITS);
    }
    let width = 64 - (greatest - least).leading_zeros();
    let packed_values = values.len() as u64 * u64::from(width);
    let packed_bits = sized_bits(least) + u64::from(WIDTH_BITS) + packed_values;
    let median = median(values);
    let distances = || values.iter().map(|value| zigzag(*value, median));
    let (rice_values, order) = best_order(distances());
    let rice_bits = rice_values + sized_bits(median) + u64::from(ORDER_BITS);
    let gaps = || {
        let mut next = 0;
        values
            .iter()
            .enumerate()
            .filter(|(_, value)| **value > 0)
            .map(move |(at, _)| {
                let gap = at - next;
                next = at + 1;
                gap as u64
            })
    };
    let heights = || {
        values
            .iter()
            .filter(|value| **value > 0)
            .map(|value| value - 1)
    };
    let count = heights().count() as u64;
    let (gaps_bits, gaps_order) = best_order(gaps());
    let (heights_bits, heights_order) = best_order(heights());
    let orders_bits = 2 * u64::from(ORDER_BITS);
    let sparse_bits = sized_bits(count) + orders_bits + gaps_bits + heights_bits;
    if sparse_bits < packed_bits && sparse_bits < rice_bits {
        out.put(FORM_SPARSE, FORM_BITS);
        out.put_sized(count);
        out.put(u64::from(gaps_order), ORDER_BITS);
        out.put(u64::from(heights_order), ORDER_BITS);
        for (gap, height) in gaps().zip(heights()) {
            put_rice(out, gap, gaps_order);
            put_rice(out, height, heights_order);
        }
    } else if rice_bits < packed_bits {
        out.put(FORM_RICE, FORM_BITS);
        out.put_sized(median);
        out.put(u64::from(order), ORDER_BITS);
        distances().for_each(|distance| put_rice(out, distance, order));
    } else {
        out.put(FORM_PACKED, FORM_BITS);
        out.put_sized(least);
        out.put(u64::from(width), WIDTH_BITS);
        values
            .iter()
            .for_each(|value| out.put(value - least, width));
    }
}

/// Reads a block into `values`, whose length must be that of the written block. Returns whether the bits are a block.
#[must_use]
pub fn decode(bits: &mut BitReader<'_>, values: &mut [u64]) -> bool {
    if values.is_empty() {
        return true;
    }
    match bits.get(FORM_BITS) {
        FORM_ZERO => values.fill(0),
        FORM_PACKED => {
            let least = bits.get_sized();
            let width = bits.get(WIDTH_BITS) as u32;
            if width > 64 {
                return false;
            }
            for value in &mut *values {
                *value = least.wrapping_add(bits.get(width));
            }
        }
        FORM_RICE => {
            let median = bits.get_sized();
            let order = bits.get(ORDER_BITS) as u32;
            for value in &mut *values {
                *value = unzigzag(get_rice(bits, order), median);
            }
        }
        _ => {
            let count = bits.get_sized();
            let gaps_order = bits.get(ORDER_BITS) as u32;
            let heights_order = bits.get(ORDER_BITS) as u32;
            values.fill(0);
            let mut next = 0_u64;
            for _ in 0..count {
                let at = next.saturating_add(get_rice(bits, gaps_order));
                let height = get_rice(bits, heights_order);
                let Some(value) = usize::try_from(at).ok().and_then(|at| values.get_mut(at)) else {
                    return false;
                };
                *value = height.wrapping_add(1);
                next = at + 1;
            }
        }
    }
    !bits.is_overrun()
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    let half = sorted.len() / 2;
    *sorted.select_nth_unstable(half).1
}

/// Maps the signed distance from the median to a number: 0, -1, 1, -2, 2 … become 0, 1, 2, 3, 4 …
fn zigzag(value: u64, median: u64) -> u64 {
    let distance = value.wrapping_sub(median) as i64;
    (distance << 1 ^ distance >> 63) as u64
}

fn unzigzag(number: u64, median: u64) -> u64 {
    let distance = (number >> 1) as i64 ^ -((number & 1) as i64);
    median.wrapping_add(distance as u64)
}

/// Returns the bits that the values take in Rice's code of the best order, and that order. The best is near the mean's
/// length.
fn best_order(values: impl Iterator<Item = u64> + Clone) -> (u64, u32) {
    let (sum, count) = values
        .clone()
        .fold((0_u128, 0_u128), |(sum, count), value| {
            (sum + u128::from(value), count + 1)
        });
    let mean = (sum / count.max(1)).min(u128::from(u64::MAX)) as u64;
    let near = (64 - mean.leading_zeros()).min(63);
    let bits = |order: u32| -> u64 { values.clone().map(|value| rice_bits(value, order)).sum() };
    (near.saturating_sub(2)..=near)
        .map(|order| (bits(order), order))
        .min()
        .unwrap_or((0, 0))
}

/// Returns the bits of a value in Rice's code.
fn rice_bits(value: u64, order: u32) -> u64 {
    match value >> order {
        quotient if quotient < u64::from(MAX_QUOTIENT) => quotient + 1 + u64::from(order),
        _ => u64::from(MAX_QUOTIENT) + sized_bits(value),
    }
}

#[inline]
fn put_rice(out: &mut BitWriter, value: u64, order: u32) {
    let quotient = value >> order;
    if quotient < u64::from(MAX_QUOTIENT) {
        out.put((1 << quotient) - 1, quotient as u32 + 1);
        out.put(value, order);
    } else {
        out.put((1 << MAX_QUOTIENT) - 1, MAX_QUOTIENT);
        out.put_sized(value);
    }
}

#[inline]
fn get_rice(bits: &mut BitReader<'_>, order: u32) -> u64 {
    match bits.count_ones(MAX_QUOTIENT) {
        MAX_QUOTIENT => bits.get_sized(),
        quotient => u64::from(quotient) << order | bits.get(order),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(values: &[u64]) -> Vec<u8> {
        let mut bits = BitWriter::default();
        encode(values, &mut bits);
        bits.finish()
    }

    fn check(values: &[u64], bytes: usize) {
        let packed = packed(values);
        let mut back = vec![7; values.len()];
        let mut bits = BitReader::new(&packed);
        assert!(decode(&mut bits, &mut back), "{values:?}");
        assert_eq!(back, values);
        assert_eq!(bits.following_bytes(), Some(&[][..]), "{values:?}");
        assert!(
            packed.len() <= bytes,
            "{} bytes for {values:?}",
            packed.len()
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
        let steps: Vec<u64> = (0..300).map(|at| 2_000 + at % 16).collect();
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
            let _ = decode(&mut bits, &mut values);
            let _ = bits.following_bytes();
        }
    }
}
