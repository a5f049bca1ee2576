//! The calls and the mark of a store with several partitions: a call for each partition, and one mark of all. These are
//! plain functions; the client calls the servers.

use crate::store::shared::call::{Call, CallPart, StoreMark};

/// The store's mark: a mix of all partitions' marks, so that it changes with any of them. A single partition's mark is the
/// store's.
pub(super) fn combine_marks(marks: &[StoreMark]) -> StoreMark {
    let mut combined = StoreMark::default();
    for (index, byte) in marks.iter().flatten().enumerate() {
        let combined_byte = &mut combined[index % size_of::<StoreMark>()];
        *combined_byte = combined_byte.rotate_left(3) ^ byte;
    }
    combined
}

/// The call with only the parts that have these indices, all of one partition.
pub(super) fn parts_on_partition(call: &Call, indices: &[usize]) -> Call {
    let parts = indices.iter().map(|index| {
        let part = &call.parts[*index];
        // A network on another partition than its key is decided about there, as a counter of its own.
        let key_index = part.key_part_index.map(usize::from);
        let own_key_index =
            key_index.and_then(|key| indices.iter().position(|index| *index == key));
        CallPart {
            key_part_index: own_key_index.map(|index| index as u8),
            ..part.clone()
        }
    });
    Call {
        parts: parts.collect(),
        ..*call
    }
}
