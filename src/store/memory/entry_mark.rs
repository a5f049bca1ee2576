//! [`EntryMark`]: the word of an entry that says which key and slot the entry is for. `bucket_layout.rs` lists its
//! bits. Nothing here reads the table.

use super::bucket_choice::other_bucket;
use crate::limit::Fingerprint;

/// The slot in a mark.
pub(super) const SLOT_MASK: u64 = 0xffff;
/// Set in the mark of a displaced entry, which is in the alternate bucket of its key.
pub(super) const DISPLACED_BIT: u64 = 1 << 16;
/// Set in the mark of a network's entry.
pub(super) const NETWORK_BIT: u64 = 1 << 17;
/// The number of bits of a mark below its tag.
const TAG_SHIFT: u32 = 18;
/// The lowest tag. No tag is zero.
pub(super) const LOWEST_TAG: u64 = 1 << TAG_SHIFT;
/// The tag in a mark: the part of a key that an entry keeps.
pub(super) const TAG_MASK: u64 = !(SLOT_MASK | DISPLACED_BIT | NETWORK_BIT);

/// An entry's mark: the entry's key, its slot, and which of the key's buckets the entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryMark(pub(super) u64);

impl EntryMark {
    pub(super) fn slot(self) -> u16 {
        (self.0 & SLOT_MASK) as u16
    }

    pub(super) fn is_network(self) -> bool {
        self.0 & NETWORK_BIT != 0
    }

    /// Whether this is the mark of an entry that is not empty.
    pub(super) fn has_key(self) -> bool {
        self.0 & TAG_MASK != 0
    }

    /// The home bucket of the entry's key, in a table of `bucket_count` buckets, if the entry is in `bucket_index`.
    pub(super) fn home_bucket(self, bucket_index: u32, bucket_count: u32) -> u32 {
        match self.0 & DISPLACED_BIT {
            0 => bucket_index,
            _ => other_bucket(self.0 & TAG_MASK, bucket_index, bucket_count),
        }
    }

    /// The key for the cell's arithmetic. It is made of the tag, because an entry keeps no more of the fingerprint.
    /// It must be the same when a cell is used and when it is checked for eviction.
    pub(super) fn key(self) -> Fingerprint {
        key_from_mark(self.0)
    }
}

/// The bits of a mark that depend on the key alone, not on its bucket or slot.
#[inline]
pub(super) fn key_bits(mark: u64) -> u64 {
    mark & (TAG_MASK | NETWORK_BIT)
}

/// Spreads the bits of a tag over those of a key: 2^128 divided by the golden ratio.
const TAG_FACTOR: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

/// The key of a mark, as [`EntryMark::key`] describes it.
pub(super) fn key_from_mark(mark: u64) -> Fingerprint {
    let tag = u128::from(mark >> TAG_SHIFT);
    Fingerprint(tag.wrapping_mul(TAG_FACTOR))
}
