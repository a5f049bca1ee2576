//! How a bucket's memory is divided. A bucket has 128 bytes: sixteen words of 64 bits. The parts of a word are listed from
//! its high bits down.
//!
//! | words | content |
//! |---|---|
//! | 0 | `version, locked (1 bit)`, the bucket's spin lock |
//! | 1 | the number of displaced entries whose home is this bucket |
//! | 2, 4 … 14 | marks: `tag (46 bits), network (1 bit), displaced (1 bit), slot (16 bits)`; zero if the entry is empty |
//! | 3, 5 … 15 | states: the two inline words of a limit, a network's arrival time, or `fresh-at second, block` |
//!
//! The fresh-at second is that from which a cell in a block is equal to the cell of a key without requests.

/// Bytes of a bucket.
pub(super) const BUCKET_BYTES: usize = 128;
/// Bytes of an entry: mark and state.
pub(super) const ENTRY_BYTES: usize = 16;
/// Words of a bucket.
pub(super) const BUCKET_WORDS: usize = BUCKET_BYTES / 8;
/// Entries of a bucket.
pub(super) const BUCKET_ENTRIES: usize = 7;
/// The index of the word that locks a bucket and counts its changes.
pub(super) const LOCK_WORD: usize = 0;
/// The index of the word that counts the displaced entries whose home is this bucket.
pub(super) const DISPLACED_COUNT_WORD: usize = 1;
/// The index of the first entry's mark. Each mark is followed by its state, so every other word is a mark.
pub(super) const FIRST_MARK_WORD: usize = 2;

/// The index of an entry's mark among the words of its bucket.
#[inline]
pub(super) const fn mark_word(entry_index: u32) -> usize {
    FIRST_MARK_WORD + 2 * entry_index as usize
}

/// The index of an entry's state among the words of its bucket.
#[inline]
pub(super) const fn state_word(entry_index: u32) -> usize {
    mark_word(entry_index) + 1
}
