//! Blocks for states that outgrow a table entry. Memory is cut into pages of 16 KiB, each page into blocks of one size class.
//! A page whose last block is freed is free for all classes again. Blocks have no header: the page knows their size.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::map::ZeroedMap;
use crate::store::Settings;

/// Bytes of a page.
const PAGE: usize = 16_384;
/// Bytes of a granule, the unit in which blocks are addressed.
const GRANULE: usize = 16;
/// Bytes of a block, by class; larger blocks get pages of their own.
const CLASSES: [usize; 18] = [
    16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048, 3_072, 4_096, 5_456,
    8_192,
];
/// The class of a page that starts a run of pages.
const RUN: u32 = CLASSES.len() as u32;
/// The class of a free page.
const FREE: u32 = RUN + 1;
/// No page, no block.
const NONE: u32 = u32::MAX;
/// Most pages: with more, a block's number would not fit, or would be [`NONE`].
const MOST: usize = NONE as usize / (PAGE / GRANULE);
const _: () = assert!(Settings::MOST / 2 / PAGE <= MOST + 1);
/// Bytes that the arena keeps outside the mapping for each page.
pub(super) const PAGE_RECORD: usize = size_of::<Page>();

/// A granule's number: how entries name blocks.
pub(super) type BlockId = u32;

/// The first of a block's words, and how many they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockSpan(usize, usize);

/// The record of a page. Its class changes under the pool's lock only, the rest under the lock of its class.
#[derive(Debug)]
struct Page {
    class: AtomicU32,
    /// Blocks given out; for the first page of a run, its pages.
    live: AtomicU32,
    /// First freed block, linked through the blocks' first words.
    free: AtomicU32,
    /// Blocks handed out at least once.
    fresh: AtomicU32,
    next: AtomicU32,
    prev: AtomicU32,
}

/// Pages with room, as a list through the pages' records.
#[derive(Debug)]
struct PageList {
    head: u32,
}

#[derive(Debug)]
struct PagePool {
    free: PageList,
    /// Pages never given out start here.
    fresh: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Arena {
    map: ZeroedMap,
    pages: Box<[Page]>,
    classes: [Mutex<PageList>; CLASSES.len()],
    pool: Mutex<PagePool>,
    used: AtomicUsize,
}

impl Arena {
    pub(super) fn new(bytes: usize) -> io::Result<Arena> {
        let count = (bytes / PAGE).min(MOST);
        let page = || Page {
            class: AtomicU32::new(FREE),
            live: AtomicU32::new(0),
            free: AtomicU32::new(NONE),
            fresh: AtomicU32::new(0),
            next: AtomicU32::new(NONE),
            prev: AtomicU32::new(NONE),
        };
        Ok(Arena {
            map: ZeroedMap::new(count * PAGE, false)?,
            pages: (0..count).map(|_| page()).collect(),
            classes: std::array::from_fn(|_| Mutex::new(PageList { head: NONE })),
            pool: Mutex::new(PagePool {
                free: PageList { head: NONE },
                fresh: 0,
            }),
            used: AtomicUsize::new(0),
        })
    }

    /// Bytes of pages given out.
    pub(super) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// A block of at least `words` words, which keep their former contents. A larger class serves when the fitting one is
    /// exhausted.
    pub(super) fn alloc(&self, words: usize) -> Option<BlockId> {
        let bytes = words.checked_mul(4)?;
        match CLASSES.iter().position(|size| *size >= bytes) {
            Some(fitting) => (fitting..CLASSES.len()).find_map(|class| self.alloc_in(class)),
            None => self.alloc_run(bytes.div_ceil(PAGE)),
        }
    }

    fn alloc_in(&self, class: usize) -> Option<BlockId> {
        let mut list = self.classes[class].lock();
        if list.head == NONE {
            let number = self.new_page(class)?;
            list.push(&self.pages, number);
        }
        let number = list.head;
        let page = &self.pages[number as usize];
        let freed = page.free.load(Relaxed);
        let block = if freed == NONE {
            let at = page.fresh.fetch_add(1, Relaxed) as usize;
            ((number as usize * PAGE + at * CLASSES[class]) / GRANULE) as u32
        } else {
            page.free.store(
                self.map.atomic(freed as usize * GRANULE / 4).load(Relaxed),
                Relaxed,
            );
            freed
        };
        let live = page.live.fetch_add(1, Relaxed) as usize + 1;
        if live == PAGE / CLASSES[class] {
            list.remove(&self.pages, number);
        }
        Some(block)
    }

    /// A page of the pool, which is no longer free when the pool is unlocked.
    fn new_page(&self, class: usize) -> Option<u32> {
        let mut pool = self.pool.lock();
        let number = if pool.free.head != NONE {
            let number = pool.free.head;
            pool.free.remove(&self.pages, number);
            number
        } else {
            let number = pool.fresh;
            self.pages.get(number as usize)?;
            pool.fresh += 1;
            number
        };
        let page = &self.pages[number as usize];
        page.class.store(class as u32, Relaxed);
        page.live.store(0, Relaxed);
        page.free.store(NONE, Relaxed);
        page.fresh.store(0, Relaxed);
        self.used.fetch_add(PAGE, Relaxed);
        Some(number)
    }

    fn alloc_run(&self, count: usize) -> Option<BlockId> {
        let mut pool = self.pool.lock();
        let start = if pool.fresh as usize + count <= self.pages.len() {
            let start = pool.fresh as usize;
            pool.fresh += count as u32;
            start
        } else {
            let start = self.free_run(pool.fresh as usize, count)?;
            for number in start..start + count {
                pool.free.remove(&self.pages, number as u32);
            }
            start
        };
        for page in &self.pages[start..start + count] {
            page.class.store(RUN, Relaxed);
        }
        self.pages[start].live.store(count as u32, Relaxed);
        self.used.fetch_add(count * PAGE, Relaxed);
        Some((start * PAGE / GRANULE) as u32)
    }

    fn free_run(&self, end: usize, count: usize) -> Option<usize> {
        let mut length = 0;
        for number in 0..end {
            // Whether a page is free changes under the pool's lock only, which the caller holds.
            let free = self.pages[number].class.load(Relaxed) == FREE;
            length = if free { length + 1 } else { 0 };
            if length == count {
                return Some(number + 1 - count);
            }
        }
        None
    }

    /// Frees a block that no entry names any more.
    pub(super) fn free(&self, block: BlockId) {
        let number = block as usize * GRANULE / PAGE;
        let page = &self.pages[number];
        let class = page.class.load(Relaxed);
        if class == RUN {
            let count = page.live.load(Relaxed) as usize;
            let mut pool = self.pool.lock();
            for number in number..number + count {
                self.give_back(&mut pool, number as u32);
            }
            return;
        }
        let mut list = self.classes[class as usize].lock();
        self.map
            .atomic(block as usize * GRANULE / 4)
            .store(page.free.load(Relaxed), Relaxed);
        page.free.store(block, Relaxed);
        let live = page.live.fetch_sub(1, Relaxed) as usize;
        if live == PAGE / CLASSES[class as usize] {
            list.push(&self.pages, number as u32);
        }
        // The last page with room stays with its class, so that a single key that comes and goes is cheap.
        let alone = list.head == number as u32 && page.next.load(Relaxed) == NONE;
        if live == 1 && !alone {
            list.remove(&self.pages, number as u32);
            self.give_back(&mut self.pool.lock(), number as u32);
        }
    }

    fn give_back(&self, pool: &mut PagePool, number: u32) {
        self.pages[number as usize].class.store(FREE, Relaxed);
        pool.free.push(&self.pages, number);
        self.used.fetch_sub(PAGE, Relaxed);
    }

    /// Where the words of a block are.
    #[inline]
    pub(super) fn span(&self, block: BlockId) -> BlockSpan {
        let page = &self.pages[block as usize * GRANULE / PAGE];
        let class = page.class.load(Relaxed);
        let bytes = match CLASSES.get(class as usize) {
            Some(size) => *size,
            None => page.live.load(Relaxed) as usize * PAGE,
        };
        BlockSpan(block as usize * GRANULE / 4, bytes / 4)
    }

    /// The words of a block, for the holder of the lock that guards it.
    #[allow(clippy::mut_from_ref)]
    pub(super) fn words<'h, T>(&'h self, owner: &'h mut T, block: BlockId) -> &'h mut [u32] {
        self.words_at(owner, self.span(block))
    }

    /// [`Arena::words`] for a block whose words are known.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(super) fn words_at<'h, T>(&'h self, owner: &'h mut T, span: BlockSpan) -> &'h mut [u32] {
        self.map.words(owner, span.0, span.1)
    }

    /// The words of two different blocks.
    #[allow(clippy::mut_from_ref)]
    pub(super) fn both<'h, T>(
        &'h self,
        owner: &'h mut T,
        from: BlockId,
        to: BlockId,
    ) -> (&'h mut [u32], &'h mut [u32]) {
        let (from, to) = (self.span(from), self.span(to));
        self.map.both(owner, (from.0, from.1), (to.0, to.1))
    }
}

impl PageList {
    fn push(&mut self, pages: &[Page], number: u32) {
        let page = &pages[number as usize];
        page.prev.store(NONE, Relaxed);
        page.next.store(self.head, Relaxed);
        if let Some(next) = pages.get(self.head as usize) {
            next.prev.store(number, Relaxed);
        }
        self.head = number;
    }

    fn remove(&mut self, pages: &[Page], number: u32) {
        let page = &pages[number as usize];
        let (next, prev) = (page.next.load(Relaxed), page.prev.load(Relaxed));
        match pages.get(prev as usize) {
            Some(before) => before.next.store(next, Relaxed),
            None => self.head = next,
        }
        if let Some(after) = pages.get(next as usize) {
            after.prev.store(prev, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_come_back() {
        let arena = Arena::new(1 << 20).unwrap();
        let mut owner = ();
        let mut held: Vec<(BlockId, u32)> = Vec::new();
        let mut seed = 7u64;
        for round in 0..20_000u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let dice = (seed >> 33) as usize;
            if !dice.is_multiple_of(3) || held.is_empty() {
                if let Some(block) = arena.alloc(1 + dice % 700) {
                    arena.words(&mut owner, block).fill(round);
                    held.push((block, round));
                }
            } else {
                let (block, mark) = held.swap_remove(dice % held.len());
                assert!(
                    arena
                        .words(&mut owner, block)
                        .iter()
                        .all(|word| *word == mark)
                );
                arena.free(block);
            }
            assert!(arena.used() <= 1 << 20);
        }
        for (block, mark) in held {
            assert!(
                arena
                    .words(&mut owner, block)
                    .iter()
                    .all(|word| *word == mark)
            );
            arena.free(block);
        }
        assert!(arena.used() <= CLASSES.len() * PAGE, "pages come back");
        assert!(arena.alloc(3 * PAGE / 4).is_some(), "a run of freed pages");
    }

    #[test]
    fn threads_never_share_a_block() {
        let arena = Arena::new(64 * PAGE).unwrap();
        std::thread::scope(|scope| {
            for thread in 1..=4u32 {
                let arena = &arena;
                scope.spawn(move || {
                    let mut owner = ();
                    for round in 0..50_000 {
                        // Runs of two pages among pages of one block: both find what is free.
                        let words = if (round + thread) % 2 == 0 {
                            5_000
                        } else {
                            2_048
                        };
                        let blocks: Vec<BlockId> =
                            (0..4).filter_map(|_| arena.alloc(words)).collect();
                        for block in &blocks {
                            arena.words(&mut owner, *block)[..2].fill(thread);
                        }
                        for block in blocks {
                            assert_eq!(arena.words(&mut owner, block)[..2], [thread; 2]);
                            arena.free(block);
                        }
                    }
                });
            }
        });
    }
}
