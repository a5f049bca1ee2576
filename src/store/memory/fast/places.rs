//! Where the counts of a request's keys are looked for first, and the order in which their buckets are locked. Both stay the
//! same while the same client sends requests, so callers may keep them.

use std::ops::Deref;

use smallvec::SmallVec;

use super::super::table::{EntryMark, tagged};
use crate::limit::FastPath;

/// Most items of a request that the fast path decides about.
pub(in super::super) const MOST: usize = 8;

/// Where a key's counts under a limit are looked for first, with the limit's fast path. Valid while the limit keeps its slot,
/// and for one multiplier. Worth keeping for the next request of the same client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellPlace {
    pub(in super::super) bucket: u32,
    pub(in super::super) mark: EntryMark,
    /// Whether states live in the table's entries.
    pub(in super::super) inline: bool,
    pub(in super::super) fast_path: Option<FastPath>,
}

/// The places of all items of a request.
#[derive(Clone, Debug, Default)]
pub struct CellPlaces {
    each: SmallVec<[CellPlace; 4]>,
    /// Indices of the places that are the first with their bucket, sorted by bucket.
    order: SmallVec<[u8; MOST]>,
    /// Whether there are more than [`MOST`] places, or two of one key.
    crowded: bool,
}

impl CellPlaces {
    /// Adds the place of the next item.
    #[inline]
    pub fn push(&mut self, place: CellPlace) {
        let number = self.each.len();
        let mut beside = self
            .each
            .iter()
            .filter(|other| other.bucket == place.bucket);
        let first = beside.clone().next().is_none();
        // The same key, or one with the same tag.
        let twin = |other: &CellPlace| tagged(other.mark.0) == tagged(place.mark.0);
        self.crowded |= number == MOST || beside.any(twin);
        if first && number < MOST {
            let before = |other: &u8| self.each[usize::from(*other)].bucket < place.bucket;
            self.order
                .insert(self.order.partition_point(before), number as u8);
        }
        self.each.push(place);
    }

    /// Whether the fast path cannot decide: more than [`MOST`] places, or two of one key.
    #[inline]
    pub(in super::super) fn crowded(&self) -> bool {
        self.crowded
    }

    /// The buckets in ascending order, each once.
    #[inline]
    pub(in super::super) fn buckets(&self) -> impl Iterator<Item = u32> {
        self.order
            .iter()
            .map(|number| self.each[usize::from(*number)].bucket)
    }
}

impl Deref for CellPlaces {
    type Target = [CellPlace];

    #[inline]
    fn deref(&self) -> &[CellPlace] {
        &self.each
    }
}

impl FromIterator<CellPlace> for CellPlaces {
    fn from_iter<I: IntoIterator<Item = CellPlace>>(places: I) -> CellPlaces {
        let mut all = CellPlaces::default();
        places.into_iter().for_each(|place| all.push(place));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Dice;

    #[test]
    fn buckets_come_in_order_and_once_and_twins_are_seen() {
        let mut dice = Dice(7);
        let (mut shared, mut crowded) = (0, 0);
        for turn in 0..20_000 {
            let mut places = CellPlaces::default();
            for _ in 0..dice.below(MOST + 3) {
                // A slot is no part of the key.
                let (key, slot) = (1 + dice.below(6) as u64, dice.below(2) as u64);
                places.push(CellPlace {
                    bucket: dice.below(12) as u32,
                    mark: EntryMark(key << 18 | slot),
                    inline: false,
                    fast_path: None,
                });
            }
            let key = |place: &CellPlace| (place.bucket, place.mark.0 >> 18);
            let mut keys: Vec<_> = places.iter().map(key).collect();
            keys.sort_unstable();
            let twins = keys.windows(2).any(|two| two[0] == two[1]);
            assert_eq!(places.crowded(), twins || places.len() > MOST, "{turn}");
            let mut buckets: Vec<u32> = keys.iter().map(|(bucket, _)| *bucket).collect();
            buckets.dedup();
            if places.len() <= MOST {
                assert_eq!(places.buckets().collect::<Vec<_>>(), buckets, "{turn}");
            }
            shared += usize::from(!twins && buckets.len() < places.len());
            crowded += usize::from(twins);
        }
        assert!(shared > 1_000 && crowded > 1_000, "{shared}, {crowded}");
    }
}
