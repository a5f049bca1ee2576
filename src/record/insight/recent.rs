//! What one worker has counted and not told yet. Clients come again and again, and to count each of their requests where
//! all workers do takes as long as to decide about it.
//!
//! Bound: [`PLACES`] keys for each worker, with whom each is of until it is told.

use std::cell::RefCell;

/// Keys whose counts wait. One that finds another in its place has that one told.
pub const PLACES: usize = 1 << BITS;
const BITS: u32 = 10;

/// Somebody who is counted.
pub trait Whom {
    /// Passes on how often it was asked about since the last time, and how often refused.
    fn tell(&self, hash: u64, asked: u32, refused: u32);
}

/// See the module. What is left is told in the end.
pub struct Recent<W: Whom>(RefCell<Vec<Option<Counted<W>>>>);

struct Counted<W> {
    hash: u64,
    asked: u32,
    refused: u32,
    whom: W,
}

impl<W: Whom> Default for Recent<W> {
    fn default() -> Recent<W> {
        let places = std::iter::repeat_with(|| None);
        Recent(RefCell::new(places.take(PLACES).collect()))
    }
}

impl<W: Whom> Recent<W> {
    /// Counts a key by its hash, which must look random. Where `is_same` says that what is told of it has changed, what
    /// was counted before is told first.
    #[inline]
    pub fn count(
        &self,
        hash: u64,
        refused: bool,
        is_same: impl FnOnce(&W) -> bool,
        whom: impl FnOnce() -> W,
    ) {
        let place = &mut self.0.borrow_mut()[place(hash)];
        match place {
            Some(counted) if counted.hash == hash && is_same(&counted.whom) => {
                counted.asked += 1;
                counted.refused += u32::from(refused);
            }
            _ => {
                let counted = Counted {
                    hash,
                    asked: 1,
                    refused: refused.into(),
                    whom: whom(),
                };
                if let Some(before) = place.replace(counted) {
                    before.tell();
                }
            }
        }
    }

    /// Tells of all keys. To be done often enough that no count overflows.
    pub fn tell(&self) {
        let mut places = self.0.borrow_mut();
        places
            .iter_mut()
            .filter_map(Option::take)
            .for_each(|counted| counted.tell());
    }
}

impl<W: Whom> Drop for Recent<W> {
    fn drop(&mut self) {
        self.tell();
    }
}

/// Mixed again: two limits that count one key may agree in some bits of their hashes, and do then for all keys.
fn place(hash: u64) -> usize {
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BITS)) as usize
}

impl<W: Whom> Counted<W> {
    fn tell(&self) {
        self.whom.tell(self.hash, self.asked, self.refused);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use super::*;

    #[derive(Clone, Default)]
    struct Book(Rc<RefCell<BTreeMap<u64, (u32, u32)>>>);

    impl Whom for Book {
        fn tell(&self, hash: u64, asked: u32, refused: u32) {
            let mut book = self.0.borrow_mut();
            let line = book.entry(hash).or_default();
            *line = (line.0 + asked, line.1 + refused);
        }
    }

    #[test]
    fn every_count_is_told_once() {
        let (book, recent) = (Book::default(), Recent::default());
        let told = || book.0.borrow().clone();
        let other = (9..).find(|other| place(*other) == place(7)).unwrap_or(0);
        for refused in [false, true, true] {
            recent.count(7, refused, |_| true, || book.clone());
            recent.count(8, false, |_| true, || book.clone());
        }
        assert!(told().is_empty());
        recent.count(other, true, |_| true, || book.clone());
        assert_eq!(told(), [(7, (3, 2))].into());
        recent.tell();
        recent.tell();
        assert_eq!(told(), [(7, (3, 2)), (8, (3, 0)), (other, (1, 1))].into());
        recent.count(7, false, |_| true, || book.clone());
        let before = told();
        recent.count(7, false, |_| false, || book.clone());
        assert_ne!(told(), before);
        drop(recent);
        assert_eq!(told()[&7], (5, 2));
    }

    #[test]
    fn two_limits_on_the_same_keys_leave_each_other_alone() {
        let (book, recent) = (Book::default(), Recent::default());
        for key in 1..=32_u64 {
            let hash = key.wrapping_mul(0xd129_0d35_4f3a_9d6b);
            for mark in [0x1f00, 0x2f00 << 40] {
                recent.count(hash ^ mark, false, |_| true, || book.clone());
            }
        }
        assert!(book.0.borrow().len() < 8);
    }
}
