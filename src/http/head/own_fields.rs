//! Fields that belong to one head, in boxes that a thread uses again.
//!
//! Every head has such a box, and many heads are open at a time. The allocator keeps only a few free boxes of each size,
//! so without this most heads would cost a slow allocation.
//!
//! Bound: [`MAX_SPARE_BOXES`] empty boxes for each thread, of less than a KiB each.

use std::cell::RefCell;

use bytes::Bytes;
use smallvec::SmallVec;

use super::layout::{FieldSpan, Tag, Text};

/// Maximum number of empty boxes that a thread keeps.
const MAX_SPARE_BOXES: usize = 128;

/// Capacity for added bytes, which is allocated when the first field is added. A box with more is not kept.
const ADDED_CAPACITY: usize = 256;

/// Largest capacity for spans, in fields, that an empty box keeps.
const MAX_SPARE_SPANS: usize = 32;

thread_local! {
    // The boxes themselves are reused, so they must stay boxes.
    #[allow(clippy::vec_box)]
    static EMPTY: RefCell<Vec<Box<OwnFields>>> = const { RefCell::new(Vec::new()) };
}

/// Fields that belong to one head, and are not shared with others.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnFields {
    /// The received bytes that the fields stand in.
    pub(crate) head: Bytes,
    /// The lines of added fields. Their positions continue those in `head`.
    pub(crate) added: Vec<u8>,
    pub(crate) spans: SmallVec<[FieldSpan; 4]>,
    /// The filter bits of all names. Most names that are looked up are absent, which the filter shows at once.
    pub(crate) filter: u64,
    /// A field may have been removed, so its line must not be written.
    pub(crate) has_removals: bool,
}

impl OwnFields {
    /// An empty box, a used one if the thread has one.
    #[inline]
    pub(crate) fn take_spare() -> Box<OwnFields> {
        // A thread that ends has no boxes any more.
        let spare = EMPTY.try_with(|empty| empty.borrow_mut().pop());
        spare.ok().flatten().unwrap_or_default()
    }

    /// Empties the box and keeps it for other fields, unless it is too large.
    #[inline]
    pub(crate) fn recycle(mut self: Box<Self>) {
        if self.added.capacity() > ADDED_CAPACITY || self.spans.capacity() > MAX_SPARE_SPANS {
            return;
        }
        let OwnFields {
            head,
            added,
            spans,
            filter,
            has_removals,
        } = &mut *self;
        *head = Bytes::new();
        added.clear();
        spans.clear();
        (*filter, *has_removals) = (0, false);
        let _ = EMPTY.try_with(|empty| {
            let mut empty = empty.borrow_mut();
            if empty.len() < MAX_SPARE_BOXES {
                empty.push(self);
            }
        });
    }

    /// Allocates [`ADDED_CAPACITY`] for added bytes at once, because growing step by step costs more. A clone of a box has
    /// no spare capacity.
    #[inline]
    pub(crate) fn reserve_added(&mut self) {
        self.added
            .reserve_exact(ADDED_CAPACITY.saturating_sub(self.added.len()));
    }

    /// Adds a field whose name and value begin at these positions.
    #[inline]
    pub(crate) fn add_span(
        &mut self,
        name: &[u8],
        name_at: usize,
        value_at: usize,
        value_length: usize,
    ) {
        let tag = Tag::of(name);
        self.filter |= tag.filter_bit();
        self.spans.push(FieldSpan {
            tag,
            name: name_at as u32,
            value: value_at as u32,
            value_length: value_length as u32,
        });
    }

    /// The text that the spans refer to.
    pub(crate) fn text(&self) -> Text<'_> {
        Text(&self.head, &self.added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::head::Fields;

    fn empty() -> usize {
        EMPTY.with_borrow(Vec::len)
    }

    #[test]
    fn boxes_are_used_again_and_hold_nothing_between() {
        EMPTY.take();
        let mut own = OwnFields::take_spare();
        own.reserve_added();
        own.added.extend_from_slice(b"a: b\r\n");
        own.add_span(b"a", 0, 3, 1);
        (own.head, own.has_removals) = (Bytes::from_static(b"c"), true);
        own.recycle();
        assert_eq!(empty(), 1);
        let own = OwnFields::take_spare();
        assert_eq!(empty(), 0);
        assert!(own.added.capacity() == ADDED_CAPACITY && own.added.is_empty());
        assert!(
            own.head.is_empty() && own.spans.is_empty() && own.filter == 0 && !own.has_removals
        );
    }

    #[test]
    fn fields_leave_their_boxes_however_they_came_to_them() {
        EMPTY.take();
        let mut many = Fields::with_capacity(MAX_SPARE_SPANS);
        let mut first = Fields::default();
        first.add("a", b"b");
        let mut copied = first.clone();
        drop(first);
        assert_eq!(empty(), 1);
        copied.add("c", b"d");
        many.add("e", b"f");
        drop((many, copied));
        assert_eq!(empty(), 3);
        EMPTY.with_borrow(|boxes| {
            assert!(
                boxes
                    .iter()
                    .all(|own| own.added.capacity() <= ADDED_CAPACITY)
            )
        });
    }

    #[test]
    fn the_number_and_the_size_of_kept_boxes_are_bounded() {
        let many: Vec<_> = (0..MAX_SPARE_BOXES + 10)
            .map(|_| OwnFields::take_spare())
            .collect();
        many.into_iter().for_each(OwnFields::recycle);
        assert_eq!(empty(), MAX_SPARE_BOXES);
        EMPTY.take();
        let mut long = OwnFields::take_spare();
        long.added.reserve(ADDED_CAPACITY + 1);
        long.recycle();
        let mut wide = OwnFields::take_spare();
        wide.spans.reserve(MAX_SPARE_SPANS + 1);
        wide.recycle();
        assert_eq!(empty(), 0);
    }
}
