//! Blocks of counts: as few bits as their spread asks for.

use super::bits::{BitReader, BitWriter, sized};

/// Quotients from here on are written out: one spike does not cost its height in bits.
const ESCAPE: u32 = 20;

const ZERO: u64 = 0;
const PACKED: u64 = 1;
const RICE: u64 = 2;
const SPARSE: u64 = 3;

/// Writes a block in whichever of four forms is shortest.
pub fn encode(values: &[u64], out: &mut BitWriter) {
    let (Some(least), Some(most)) = (values.iter().min().copied(), values.iter().max().copied())
    else {
        return;
    };
    if most == 0 {
        return out.put(ZERO, 2);
    }
    let width = 64 - (most - least).leading_zeros();
    let packed = sized(least) + 7 + values.len() as u64 * u64::from(width);
    let middle = median(values);
    let around = || values.iter().map(|value| fold(*value, middle));
    let (rice, order) = best(around());
    let rice = rice + sized(middle) + 6;
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
    let ((gaps_cost, gaps_order), (heights_cost, heights_order)) = (best(gaps()), best(heights()));
    let sparse = sized(count) + 12 + gaps_cost + heights_cost;
    if sparse < packed && sparse < rice {
        out.put(SPARSE, 2);
        out.put_sized(count);
        out.put(u64::from(gaps_order), 6);
        out.put(u64::from(heights_order), 6);
        for (gap, height) in gaps().zip(heights()) {
            put(out, gap, gaps_order);
            put(out, height, heights_order);
        }
    } else if rice < packed {
        out.put(RICE, 2);
        out.put_sized(middle);
        out.put(u64::from(order), 6);
        around().for_each(|value| put(out, value, order));
    } else {
        out.put(PACKED, 2);
        out.put_sized(least);
        out.put(u64::from(width), 7);
        values
            .iter()
            .for_each(|value| out.put(value - least, width));
    }
}

/// Reads a block into `values`, as many as it was made of. Whether it can be one.
#[must_use]
pub fn decode(bits: &mut BitReader<'_>, values: &mut [u64]) -> bool {
    if values.is_empty() {
        return true;
    }
    match bits.get(2) {
        ZERO => values.fill(0),
        PACKED => {
            let least = bits.get_sized();
            let width = bits.get(7) as u32;
            if width > 64 {
                return false;
            }
            for value in &mut *values {
                *value = least.wrapping_add(bits.get(width));
            }
        }
        RICE => {
            let middle = bits.get_sized();
            let order = bits.get(6) as u32;
            for value in &mut *values {
                *value = unfold(take(bits, order), middle);
            }
        }
        _ => {
            let count = bits.get_sized();
            let (gaps, heights) = (bits.get(6) as u32, bits.get(6) as u32);
            values.fill(0);
            let mut next = 0_u64;
            for _ in 0..count {
                let at = next.saturating_add(take(bits, gaps));
                let height = take(bits, heights);
                let Some(value) = usize::try_from(at).ok().and_then(|at| values.get_mut(at)) else {
                    return false;
                };
                *value = height.wrapping_add(1);
                next = at + 1;
            }
        }
    }
    !bits.overrun()
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    let half = sorted.len() / 2;
    *sorted.select_nth_unstable(half).1
}

/// The distance from the middle, both ways by turns.
fn fold(value: u64, middle: u64) -> u64 {
    let distance = value.wrapping_sub(middle) as i64;
    (distance << 1 ^ distance >> 63) as u64
}

fn unfold(folded: u64, middle: u64) -> u64 {
    let distance = (folded >> 1) as i64 ^ -((folded & 1) as i64);
    middle.wrapping_add(distance as u64)
}

/// The bits that Rice's code takes, and the order with which it takes fewest.
fn best(values: impl Iterator<Item = u64> + Clone) -> (u64, u32) {
    let (sum, count) = values
        .clone()
        .fold((0_u128, 0_u128), |(sum, count), value| {
            (sum + u128::from(value), count + 1)
        });
    let mean = (sum / count.max(1)).min(u128::from(u64::MAX)) as u64;
    let near = (64 - mean.leading_zeros()).min(63);
    let cost = |order: u32| -> u64 { values.clone().map(|value| length(value, order)).sum() };
    (near.saturating_sub(2)..=near)
        .map(|order| (cost(order), order))
        .min()
        .unwrap_or((0, 0))
}

fn length(value: u64, order: u32) -> u64 {
    match value >> order {
        quotient if quotient < u64::from(ESCAPE) => quotient + 1 + u64::from(order),
        _ => u64::from(ESCAPE) + sized(value),
    }
}

#[inline]
fn put(out: &mut BitWriter, value: u64, order: u32) {
    let quotient = value >> order;
    if quotient < u64::from(ESCAPE) {
        out.put((1 << quotient) - 1, quotient as u32 + 1);
        out.put(value, order);
    } else {
        out.put((1 << ESCAPE) - 1, ESCAPE);
        out.put_sized(value);
    }
}

#[inline]
fn take(bits: &mut BitReader<'_>, order: u32) -> u64 {
    match bits.ones(ESCAPE) {
        ESCAPE => bits.get_sized(),
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
        assert_eq!(bits.rest(), Some(&[][..]), "{values:?}");
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
            let _ = bits.rest();
        }
    }
}
