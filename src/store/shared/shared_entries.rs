//! Entries that gateways share beside counts, such as bans: [`StoredEntry`] as a store keeps it. The store knows only which
//! of two changes of an entry is the newer one.

use std::fmt::Debug;

/// The number of bytes at the beginning of an entry's value by which a store finds the newer of two.
pub const ORDER_BYTES: usize = 30;
/// Names that begin with this are of entries that give way to others where there is no room.
pub const YIELDING_MARK: char = '~';
/// The most entries in a store before it takes no new ones that give way: some more than gateways keep, of all kinds.
pub const MAX_YIELDING: usize = 40_000;
/// The most entries in a store before it takes no new ones at all.
pub const MAX_ENTRIES: usize = 80_000;

/// An entry as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// The name, without line breaks and tabulators. It is the same for all changes of the entry.
    pub name: String,
    /// The value: first [`ORDER_BYTES`] bytes, which are greater for a newer change, then a text without line breaks.
    pub value: String,
    /// Whether the store shall forget exactly this value, because nobody needs it any more.
    pub is_over: bool,
}

/// The entries of a gateway that a store shares.
pub trait SharedEntries: Debug + Send + Sync {
    /// Takes entries that the store may lack, at most `most`. None while they cannot be had at once.
    fn take_unpublished(&self, most: usize) -> Vec<StoredEntry>;

    /// Takes over all values of the store. What the store lacks is taken from now on by
    /// [`SharedEntries::take_unpublished`]. Returns false if the values cannot be taken over at once; then they must be
    /// offered again.
    fn merge(&self, values: &[Vec<u8>]) -> bool;
}
