//! [`CellPlace`]: where the counts of a key are looked for first. [`CellPlaces`]: the places of a request's items, and the
//! order in which their buckets are locked. Both depend on keys and limits only, so callers may keep them for the next
//! request of the same client. Nothing here reads a count.

use std::ops::Deref;

use smallvec::SmallVec;

use super::super::entry_mark::{EntryMark, key_bits};
use crate::limit::FastPath;

/// Most items of a request that the fast path decides about.
pub(in super::super) const MAX_PLACES: usize = 8;

/// Where a key's counts under a limit are looked for first, with the limit's fast path. It is valid while the limit keeps
/// its slot, and for one multiplier of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellPlace {
    /// The key's home bucket.
    pub(in super::super) bucket_index: u32,
    /// The mark of the key's entry there.
    pub(in super::super) mark: EntryMark,
    /// Whether the limit's states are in the table's entries, not in blocks of the arena.
    pub(in super::super) is_inline: bool,
    /// The limit's arithmetic for this multiplier, if it has such a form.
    pub(in super::super) fast_path: Option<FastPath>,
}

/// The places of all items of a request.
#[derive(Clone, Debug, Default)]
pub struct CellPlaces {
    places: SmallVec<[CellPlace; 4]>,
    /// Of the first [`MAX_PLACES`] places, the indices of those that are the first with their bucket, sorted by bucket.
    lock_order: SmallVec<[u8; MAX_PLACES]>,
    /// Whether there are more than [`MAX_PLACES`] places, or two in one bucket with the same tag, as of one key.
    needs_full_decision: bool,
}

impl CellPlaces {
    /// Adds the place of the next item.
    #[inline]
    pub fn push(&mut self, place: CellPlace) {
        let index = self.places.len();
        let mut same_bucket = self
            .places
            .iter()
            .filter(|earlier| earlier.bucket_index == place.bucket_index);
        let is_first_in_bucket = same_bucket.clone().next().is_none();
        // The same key, or one with the same tag.
        let is_same_key = |earlier: &CellPlace| key_bits(earlier.mark.0) == key_bits(place.mark.0);
        self.needs_full_decision |= index == MAX_PLACES || same_bucket.any(is_same_key);
        if is_first_in_bucket && index < MAX_PLACES {
            let is_before =
                |index: &u8| self.places[usize::from(*index)].bucket_index < place.bucket_index;
            let position = self.lock_order.partition_point(is_before);
            self.lock_order.insert(position, index as u8);
        }
        self.places.push(place);
    }

    /// Whether the fast path cannot decide about these places: they are too many, or two may be of one key.
    #[inline]
    pub(in super::super) fn needs_full_decision(&self) -> bool {
        self.needs_full_decision
    }

    /// The buckets of the first [`MAX_PLACES`] places in ascending order, each once.
    #[inline]
    pub(in super::super) fn buckets(&self) -> impl Iterator<Item = u32> {
        self.lock_order
            .iter()
            .map(|index| self.places[usize::from(*index)].bucket_index)
    }
}

impl Deref for CellPlaces {
    type Target = [CellPlace];

    #[inline]
    fn deref(&self) -> &[CellPlace] {
        &self.places
    }
}

impl FromIterator<CellPlace> for CellPlaces {
    fn from_iter<I: IntoIterator<Item = CellPlace>>(places: I) -> CellPlaces {
        let mut collected = CellPlaces::default();
        places.into_iter().for_each(|place| collected.push(place));
        collected
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::entry_mark::LOWEST_TAG;
    use super::*;
    use crate::base::random::Dice;

    #[test]
    fn buckets_are_in_order_and_once_and_equal_keys_are_found() {
        let mut dice = Dice(7);
        let (mut shared_buckets, mut equal_keys) = (0, 0);
        for turn in 0..20_000 {
            let mut places = CellPlaces::default();
            for _ in 0..dice.below(MAX_PLACES + 3) {
                // A slot is no part of the key.
                let (key, slot) = (1 + dice.below(6) as u64, dice.below(2) as u64);
                places.push(CellPlace {
                    bucket_index: dice.below(12) as u32,
                    mark: EntryMark((key * LOWEST_TAG) | slot),
                    is_inline: false,
                    fast_path: None,
                });
            }
            let key = |place: &CellPlace| (place.bucket_index, place.mark.0 / LOWEST_TAG);
            let mut keys: Vec<_> = places.iter().map(key).collect();
            keys.sort_unstable();
            let has_equal_keys = keys.windows(2).any(|pair| pair[0] == pair[1]);
            assert_eq!(
                places.needs_full_decision(),
                has_equal_keys || places.len() > MAX_PLACES,
                "{turn}"
            );
            let mut buckets: Vec<u32> =
                keys.iter().map(|(bucket_index, _)| *bucket_index).collect();
            buckets.dedup();
            if places.len() <= MAX_PLACES {
                assert_eq!(places.buckets().collect::<Vec<_>>(), buckets, "{turn}");
            }
            shared_buckets += usize::from(!has_equal_keys && buckets.len() < places.len());
            equal_keys += usize::from(has_equal_keys);
        }
        assert!(shared_buckets > 1_000 && equal_keys > 1_000);
    }
}
