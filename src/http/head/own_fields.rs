//! Fields that belong to one head, in boxes that a thread uses again.
//!
//! Almost every head has such a box, and many heads exist at a time. The allocator keeps only a few free blocks of each
//! size. So without the spare boxes that are kept here, most heads would cost a slow allocation.
//!
//! Bound: [`MAX_SPARE_BOXES`] empty boxes for each thread, of less than a KiB each.

use std::cell::RefCell;

use bytes::Bytes;
use smallvec::SmallVec;

use super::layout::{FieldSpan, NameTag, Text};

/// Maximum number of empty boxes that a thread keeps.
const MAX_SPARE_BOXES: usize = 128;

/// Capacity for added bytes, allocated when the first field is added. A box with a larger capacity is not kept.
const ADDED_CAPACITY_BYTES: usize = 256;

/// Largest capacity for spans, in fields, that an empty box keeps.
const MAX_SPARE_SPAN_CAPACITY: usize = 32;

thread_local! {
    // The boxes themselves are reused, so they must stay boxes.
    #[allow(clippy::vec_box)]
    static SPARE_BOXES: RefCell<Vec<Box<OwnFields>>> = const { RefCell::new(Vec::new()) };
}

/// Fields that belong to one head, and are not shared with others.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnFields {
    /// The received bytes, which have the names and values of fields that were not added.
    pub(crate) received: Bytes,
    /// The lines of added fields. Their offsets continue those in `received`.
    pub(crate) added: Vec<u8>,
    /// The positions of all fields, in their order.
    pub(crate) spans: SmallVec<[FieldSpan; 4]>,
    /// The filter bits of all names. Most names that are looked up are absent, which the filter shows at once.
    pub(crate) filter: u64,
    /// Whether a field may have been removed. Its line is still in the text, and must not be written.
    pub(crate) has_removals: bool,
}

impl OwnFields {
    /// An empty box: a recycled one, or a new one if the thread has none.
    #[inline]
    pub(crate) fn recycled_or_new() -> Box<OwnFields> {
        // While a thread ends, its thread-local boxes do not exist any more.
        let spare = SPARE_BOXES.try_with(|boxes| boxes.borrow_mut().pop());
        spare.ok().flatten().unwrap_or_default()
    }

    /// Empties the box and keeps it for another head, unless it is too large or the thread keeps enough.
    #[inline]
    pub(crate) fn recycle(mut self: Box<Self>) {
        if self.added.capacity() > ADDED_CAPACITY_BYTES
            || self.spans.capacity() > MAX_SPARE_SPAN_CAPACITY
        {
            return;
        }
        let OwnFields {
            received,
            added,
            spans,
            filter,
            has_removals,
        } = &mut *self;
        *received = Bytes::new();
        added.clear();
        spans.clear();
        (*filter, *has_removals) = (0, false);
        let _ = SPARE_BOXES.try_with(|boxes| {
            let mut boxes = boxes.borrow_mut();
            if boxes.len() < MAX_SPARE_BOXES {
                boxes.push(self);
            }
        });
    }

    /// Allocates [`ADDED_CAPACITY_BYTES`] for added bytes at once, because growing step by step costs more. A clone of
    /// a box has no spare capacity.
    #[inline]
    pub(crate) fn reserve_added_bytes(&mut self) {
        self.added
            .reserve_exact(ADDED_CAPACITY_BYTES.saturating_sub(self.added.len()));
    }

    /// Adds the position of a field whose name and value begin at these offsets.
    #[inline]
    pub(crate) fn add_span(
        &mut self,
        name: &[u8],
        name_start: usize,
        value_start: usize,
        value_length: usize,
    ) {
        let tag = NameTag::of(name);
        self.filter |= tag.filter_bit();
        self.spans.push(FieldSpan {
            tag,
            name_start: name_start as u32,
            value_start: value_start as u32,
            value_length: value_length as u32,
        });
    }

    /// The text that the spans refer to.
    pub(crate) fn text(&self) -> Text<'_> {
        Text {
            received: &self.received,
            added: &self.added,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::head::Fields;

    fn spare_box_count() -> usize {
        SPARE_BOXES.with_borrow(Vec::len)
    }

    #[test]
    fn boxes_are_used_again_and_hold_nothing_between() {
        SPARE_BOXES.take();
        let mut own = OwnFields::recycled_or_new();
        own.reserve_added_bytes();
        own.added.extend_from_slice(b"a: b\r\n");
        own.add_span(b"a", 0, 3, 1);
        (own.received, own.has_removals) = (Bytes::from_static(b"c"), true);
        own.recycle();
        assert_eq!(spare_box_count(), 1);
        let own = OwnFields::recycled_or_new();
        assert_eq!(spare_box_count(), 0);
        assert!(own.added.capacity() == ADDED_CAPACITY_BYTES && own.added.is_empty());
        assert!(
            own.received.is_empty() && own.spans.is_empty() && own.filter == 0 && !own.has_removals
        );
    }

    #[test]
    fn fields_leave_their_boxes_however_they_came_to_them() {
        SPARE_BOXES.take();
        let mut many = Fields::with_capacity(MAX_SPARE_SPAN_CAPACITY);
        let mut first = Fields::default();
        first.add("a", b"b");
        let mut copied = first.clone();
        drop(first);
        assert_eq!(spare_box_count(), 1);
        copied.add("c", b"d");
        many.add("e", b"f");
        drop((many, copied));
        assert_eq!(spare_box_count(), 3);
        SPARE_BOXES.with_borrow(|boxes| {
            assert!(
                boxes
                    .iter()
                    .all(|own| own.added.capacity() <= ADDED_CAPACITY_BYTES)
            )
        });
    }

    #[test]
    fn the_number_and_the_size_of_kept_boxes_are_bounded() {
        let many: Vec<_> = (0..MAX_SPARE_BOXES + 10)
            .map(|_| OwnFields::recycled_or_new())
            .collect();
        many.into_iter().for_each(OwnFields::recycle);
        assert_eq!(spare_box_count(), MAX_SPARE_BOXES);
        SPARE_BOXES.take();
        let mut long = OwnFields::recycled_or_new();
        long.added.reserve(ADDED_CAPACITY_BYTES + 1);
        long.recycle();
        let mut wide = OwnFields::recycled_or_new();
        wide.spans.reserve(MAX_SPARE_SPAN_CAPACITY + 1);
        wide.recycle();
        assert_eq!(spare_box_count(), 0);
    }
}
