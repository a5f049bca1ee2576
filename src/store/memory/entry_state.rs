//! The state of a table entry: two words, or a block of the arena and when the cell there becomes fresh.

use super::arena::BlockId;
use crate::base::clock::Nanos;

/// The fresh-at second of a state that becomes fresh too late for its 32 bits; such a cell is not evicted.
pub(super) const NEVER_FRESH: u32 = u32::MAX;

/// The two inline words of a state.
pub(super) fn split_state(state: u64) -> [u32; 2] {
    [state as u32, (state >> 32) as u32]
}

/// The state with these inline words.
pub(super) fn join_state(words: [u32; 2]) -> u64 {
    u64::from(words[1]) << 32 | u64::from(words[0])
}

/// The block with the words of a state that outgrows its entry.
pub(super) fn block_id(state: u64) -> BlockId {
    state as BlockId
}

/// The state of an entry whose words are in a block, with the second from which on the cell is fresh, rounded up.
pub(super) fn block_state(block: BlockId, fresh_at: Nanos) -> u64 {
    let fresh_second = u32::try_from(fresh_at.ceil_secs()).unwrap_or(NEVER_FRESH);
    join_state([block, fresh_second])
}
