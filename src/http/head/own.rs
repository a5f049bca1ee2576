//! Fields that are not shared, in boxes that a thread uses again: as many heads are on their way at a time, and the
//! allocator keeps only a few boxes of each size at hand.
//!
//! Bound: [`MOST`] empty boxes for each thread, of less than a KiB each.

use std::cell::RefCell;

use bytes::Bytes;
use smallvec::SmallVec;

use super::layout::{FieldSpan, Tag, Text};

/// Empty boxes that a thread keeps.
const MOST: usize = 128;

/// Bytes that are made room for at once where something is added.
const ADDED: usize = 256;

/// Places that an empty box keeps room for at most.
const PLACES: usize = 32;

thread_local! {
    // It is the boxes that are kept.
    #[allow(clippy::vec_box)]
    static EMPTY: RefCell<Vec<Box<Own>>> = const { RefCell::new(Vec::new()) };
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own {
    pub(crate) head: Bytes,
    /// What was added; its places follow those in `head`.
    pub(crate) added: Vec<u8>,
    pub(crate) places: SmallVec<[FieldSpan; 4]>,
    /// Of the names at these places: most of those that are looked up are not there.
    pub(crate) marks: u64,
    /// Some may have been removed.
    pub(crate) less: bool,
}

impl Own {
    /// None yet.
    #[inline]
    pub(crate) fn spare() -> Box<Own> {
        // Nothing is kept for a thread that ends.
        let kept = EMPTY.try_with(|empty| empty.borrow_mut().pop());
        kept.ok().flatten().unwrap_or_default()
    }

    /// Keeps the box for other fields.
    #[inline]
    pub(crate) fn leave(mut self: Box<Self>) {
        if self.added.capacity() > ADDED || self.places.capacity() > PLACES {
            return;
        }
        let Own {
            head,
            added,
            places,
            marks,
            less,
        } = &mut *self;
        *head = Bytes::new();
        added.clear();
        places.clear();
        (*marks, *less) = (0, false);
        let _ = EMPTY.try_with(|empty| {
            let mut empty = empty.borrow_mut();
            if empty.len() < MOST {
                empty.push(self);
            }
        });
    }

    /// For what will be added.
    #[inline]
    pub(crate) fn make_room(&mut self) {
        // To grow costs more than to be made. What was copied has no room.
        self.added
            .reserve_exact(ADDED.saturating_sub(self.added.len()));
    }

    #[inline]
    pub(crate) fn place(
        &mut self,
        name: &[u8],
        name_at: usize,
        value_at: usize,
        value_length: usize,
    ) {
        let tag = Tag::of(name);
        self.marks |= tag.mark();
        self.places.push(FieldSpan {
            tag,
            name: name_at as u32,
            value: value_at as u32,
            value_length: value_length as u32,
        });
    }

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
        let mut own = Own::spare();
        own.make_room();
        own.added.extend_from_slice(b"a: b\r\n");
        own.place(b"a", 0, 3, 1);
        (own.head, own.less) = (Bytes::from_static(b"c"), true);
        own.leave();
        assert_eq!(empty(), 1);
        let own = Own::spare();
        assert_eq!(empty(), 0);
        assert!(own.added.capacity() == ADDED && own.added.is_empty());
        assert!(own.head.is_empty() && own.places.is_empty() && own.marks == 0 && !own.less);
    }

    #[test]
    fn fields_leave_their_boxes_however_they_came_to_them() {
        EMPTY.take();
        let mut many = Fields::with_capacity(PLACES);
        let mut first = Fields::default();
        first.add("a", b"b");
        let mut copied = first.clone();
        drop(first);
        assert_eq!(empty(), 1);
        copied.add("c", b"d");
        many.add("e", b"f");
        drop((many, copied));
        assert_eq!(empty(), 3);
        EMPTY.with_borrow(|boxes| assert!(boxes.iter().all(|own| own.added.capacity() <= ADDED)));
    }

    #[test]
    fn no_more_and_no_larger_boxes_are_kept_than_is_said() {
        let many: Vec<_> = (0..MOST + 10).map(|_| Own::spare()).collect();
        many.into_iter().for_each(Own::leave);
        assert_eq!(empty(), MOST);
        EMPTY.take();
        let mut long = Own::spare();
        long.added.reserve(ADDED + 1);
        long.leave();
        let mut wide = Own::spare();
        wide.places.reserve(PLACES + 1);
        wide.leave();
        assert_eq!(empty(), 0);
    }
}
