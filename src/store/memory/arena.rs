//! [`Arena`]: blocks for states that outgrow a table entry. Memory is divided into pages of 16 KiB, and each page in use
//! into blocks of one size class. A block larger than all classes gets a run of whole pages.
//!
//! A page whose last block is freed is free for all classes again, unless its class has no other page with room. Blocks
//! have no header, because the page's record has their size. The arena never moves a block.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use super::zeroed_map::{WordSpan, ZeroedMap};
use crate::base::locks::Mutex;
use crate::store::Settings;

/// Bytes of a page.
pub(super) const PAGE_BYTES: usize = 16_384;
/// Bytes of a granule, the unit in which blocks are addressed. Every block begins at a multiple of it.
const GRANULE_BYTES: usize = 16;
/// Bytes of a word of a state.
const WORD_BYTES: usize = size_of::<u32>();
/// Bytes of a block, by class. Above 32 each size is at most about half as large again as the one before. So in the class
/// that fits, little more than a third of a block above 16 bytes is wasted. Of a run at most half is wasted.
const CLASS_BYTES: [usize; 18] = [
    16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048, 3_072, 4_096, 5_456,
    8_192,
];
/// The class of a page that starts a run of pages.
const RUN_CLASS: u32 = CLASS_BYTES.len() as u32;
/// The class of a free page.
const FREE_CLASS: u32 = RUN_CLASS + 1;
/// The index of no page and the id of no block.
const NO_INDEX: u32 = u32::MAX;
/// Most pages: with more, a block's id would exceed 32 bits, or be [`NO_INDEX`].
const MAX_PAGES: usize = NO_INDEX as usize / (PAGE_BYTES / GRANULE_BYTES);
// The largest budget has one page more, which the arena does not use.
const _: () = assert!(Settings::MAX_BUDGET_BYTES / 2 / PAGE_BYTES <= MAX_PAGES + 1);
/// Bytes that the arena keeps outside the mapping for each page.
pub(super) const PAGE_RECORD_BYTES: usize = size_of::<Page>();

/// How entries name blocks: the index of a block's first granule.
pub(super) type BlockId = u32;

/// The record of a page. The class changes under the pool's lock only. The other fields change under the lock of the page's
/// class, or under the pool's lock while the page is free or in a run. The locks order all changes, so relaxed ordering
/// suffices.
#[derive(Debug)]
struct Page {
    /// The index in [`CLASS_BYTES`], [`RUN_CLASS`] or [`FREE_CLASS`].
    class: AtomicU32,
    /// Blocks in use; for the first page of a run, the number of pages of the run.
    live_blocks: AtomicU32,
    /// The first of the freed blocks, or [`NO_INDEX`]. Freed blocks are linked through their first words.
    first_freed: AtomicU32,
    /// The number of blocks that were ever in use since the page got its class. They are the first ones of the page.
    touched_blocks: AtomicU32,
    /// The neighbours in a [`PageList`], or [`NO_INDEX`].
    next: AtomicU32,
    previous: AtomicU32,
}

/// A list of pages, linked through their records.
#[derive(Debug)]
struct PageList {
    head: u32,
}

/// The free pages: those that were in use, and those that never were.
#[derive(Debug)]
struct PagePool {
    free_pages: PageList,
    /// The first page that was never in use; all pages behind it never were.
    first_untouched: u32,
}

/// All pages, in a mapping of fixed size.
#[derive(Debug)]
pub(super) struct Arena {
    mapping: ZeroedMap,
    pages: Box<[Page]>,
    /// The pages of each class that have free blocks.
    pages_with_room: [Mutex<PageList>; CLASS_BYTES.len()],
    pool: Mutex<PagePool>,
    /// Bytes of pages that are not free.
    used_bytes: AtomicUsize,
}

impl Arena {
    /// An arena of at most `max_bytes`. The records of its pages are not part of them. Fails if the system gives no memory.
    pub(super) fn new(max_bytes: usize) -> io::Result<Arena> {
        let page_count = (max_bytes / PAGE_BYTES).min(MAX_PAGES);
        let free_page = || Page {
            class: AtomicU32::new(FREE_CLASS),
            live_blocks: AtomicU32::new(0),
            first_freed: AtomicU32::new(NO_INDEX),
            touched_blocks: AtomicU32::new(0),
            next: AtomicU32::new(NO_INDEX),
            previous: AtomicU32::new(NO_INDEX),
        };
        Ok(Arena {
            mapping: ZeroedMap::new(page_count * PAGE_BYTES, false)?,
            pages: (0..page_count).map(|_| free_page()).collect(),
            pages_with_room: std::array::from_fn(|_| Mutex::new(PageList { head: NO_INDEX })),
            pool: Mutex::new(PagePool {
                free_pages: PageList { head: NO_INDEX },
                first_untouched: 0,
            }),
            used_bytes: AtomicUsize::new(0),
        })
    }

    /// Bytes of pages that are not free.
    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Relaxed)
    }

    /// Allocates a block of at least `word_count` words, which keep their former contents. Takes a block of a larger class
    /// when the fitting class has no block left. Returns `None` if no class and no run has room.
    pub(super) fn alloc(&self, word_count: usize) -> Option<BlockId> {
        let bytes = word_count.checked_mul(WORD_BYTES)?;
        match CLASS_BYTES.iter().position(|size| *size >= bytes) {
            Some(fitting_class) => {
                (fitting_class..CLASS_BYTES.len()).find_map(|class| self.alloc_in_class(class))
            }
            None => self.alloc_run(bytes.div_ceil(PAGE_BYTES)),
        }
    }

    /// Allocates a block of this class; `None` if no page of the class has a free block and the pool has no page.
    fn alloc_in_class(&self, class: usize) -> Option<BlockId> {
        let mut list = self.pages_with_room[class].lock();
        if list.head == NO_INDEX {
            let page_index = self.take_page(class)?;
            list.push(&self.pages, page_index);
        }
        let page_index = list.head;
        let page = &self.pages[page_index as usize];
        let freed_block = page.first_freed.load(Relaxed);
        let block = if freed_block == NO_INDEX {
            let block_index = page.touched_blocks.fetch_add(1, Relaxed) as usize;
            let start_byte = page_index as usize * PAGE_BYTES + block_index * CLASS_BYTES[class];
            (start_byte / GRANULE_BYTES) as u32
        } else {
            let next_freed = self
                .mapping
                .atomic_word(first_word_index(freed_block))
                .load(Relaxed);
            page.first_freed.store(next_freed, Relaxed);
            freed_block
        };
        let live_blocks = page.live_blocks.fetch_add(1, Relaxed) as usize + 1;
        if live_blocks == PAGE_BYTES / CLASS_BYTES[class] {
            list.remove(&self.pages, page_index);
        }
        Some(block)
    }

    /// Takes a page out of the pool. It gets this class before the pool is unlocked, because [`Arena::find_free_run`] tells
    /// free pages by their class. Returns its index; `None` where the pool is empty.
    fn take_page(&self, class: usize) -> Option<u32> {
        let mut pool = self.pool.lock();
        let page_index = if pool.free_pages.head != NO_INDEX {
            let page_index = pool.free_pages.head;
            pool.free_pages.remove(&self.pages, page_index);
            page_index
        } else {
            let page_index = pool.first_untouched;
            self.pages.get(page_index as usize)?;
            pool.first_untouched += 1;
            page_index
        };
        let page = &self.pages[page_index as usize];
        page.class.store(class as u32, Relaxed);
        page.live_blocks.store(0, Relaxed);
        page.first_freed.store(NO_INDEX, Relaxed);
        page.touched_blocks.store(0, Relaxed);
        self.used_bytes.fetch_add(PAGE_BYTES, Relaxed);
        Some(page_index)
    }

    /// Allocates a block of `page_count` pages in a row, for states that outgrow every class; `None` if no such run is
    /// free.
    fn alloc_run(&self, page_count: usize) -> Option<BlockId> {
        let mut pool = self.pool.lock();
        let start = if pool.first_untouched as usize + page_count <= self.pages.len() {
            let start = pool.first_untouched as usize;
            pool.first_untouched += page_count as u32;
            start
        } else {
            let start = self.find_free_run(pool.first_untouched as usize, page_count)?;
            for page_index in start..start + page_count {
                pool.free_pages.remove(&self.pages, page_index as u32);
            }
            start
        };
        for page in &self.pages[start..start + page_count] {
            page.class.store(RUN_CLASS, Relaxed);
        }
        self.pages[start]
            .live_blocks
            .store(page_count as u32, Relaxed);
        self.used_bytes.fetch_add(page_count * PAGE_BYTES, Relaxed);
        Some((start * PAGE_BYTES / GRANULE_BYTES) as u32)
    }

    /// The first of `page_count` free pages in a row, all before the page `end`; `None` if there is no such row. The caller
    /// has locked the pool.
    fn find_free_run(&self, end: usize, page_count: usize) -> Option<usize> {
        let mut run_length = 0;
        for page_index in 0..end {
            let is_free = self.pages[page_index].class.load(Relaxed) == FREE_CLASS;
            run_length = if is_free { run_length + 1 } else { 0 };
            if run_length == page_count {
                return Some(page_index + 1 - page_count);
            }
        }
        None
    }

    /// Frees a block that no entry names any more.
    pub(super) fn free(&self, block: BlockId) {
        let page_index = block as usize * GRANULE_BYTES / PAGE_BYTES;
        let page = &self.pages[page_index];
        let class = page.class.load(Relaxed);
        if class == RUN_CLASS {
            let page_count = page.live_blocks.load(Relaxed) as usize;
            let mut pool = self.pool.lock();
            for page_index in page_index..page_index + page_count {
                self.return_page(&mut pool, page_index as u32);
            }
            return;
        }
        let mut list = self.pages_with_room[class as usize].lock();
        let next_freed = page.first_freed.load(Relaxed);
        let link_word = self.mapping.atomic_word(first_word_index(block));
        link_word.store(next_freed, Relaxed);
        page.first_freed.store(block, Relaxed);
        let live_before = page.live_blocks.fetch_sub(1, Relaxed) as usize;
        if live_before == PAGE_BYTES / CLASS_BYTES[class as usize] {
            list.push(&self.pages, page_index as u32);
        }
        // A page stays with its class while no other page of the class has room. So a single key that comes and goes does
        // not move a page between class and pool each time.
        let is_last_with_room =
            list.head == page_index as u32 && page.next.load(Relaxed) == NO_INDEX;
        if live_before == 1 && !is_last_with_room {
            list.remove(&self.pages, page_index as u32);
            self.return_page(&mut self.pool.lock(), page_index as u32);
        }
    }

    /// Returns a page to the pool.
    fn return_page(&self, pool: &mut PagePool, page_index: u32) {
        self.pages[page_index as usize]
            .class
            .store(FREE_CLASS, Relaxed);
        pool.free_pages.push(&self.pages, page_index);
        self.used_bytes.fetch_sub(PAGE_BYTES, Relaxed);
    }

    /// The words of a block in the mapping. Needs no lock: the class and the run's length stay while the block is in use.
    #[inline]
    pub(super) fn span(&self, block: BlockId) -> WordSpan {
        let page = &self.pages[block as usize * GRANULE_BYTES / PAGE_BYTES];
        let class = page.class.load(Relaxed);
        let bytes = match CLASS_BYTES.get(class as usize) {
            Some(size) => *size,
            None => page.live_blocks.load(Relaxed) as usize * PAGE_BYTES,
        };
        WordSpan {
            first_word: first_word_index(block),
            word_count: bytes / WORD_BYTES,
        }
    }

    /// The words of a block. `owner` is the caller's exclusive access to it; see [`ZeroedMap::words_of`].
    #[allow(clippy::mut_from_ref)]
    pub(super) fn words<'h, T>(&'h self, owner: &'h mut T, block: BlockId) -> &'h mut [u32] {
        self.words_at(owner, self.span(block))
    }

    /// [`Arena::words`] for a block whose span is known.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(super) fn words_at<'h, T>(&'h self, owner: &'h mut T, span: WordSpan) -> &'h mut [u32] {
        self.mapping.words_of(owner, span)
    }

    /// The words of two different blocks, to move a state. `owner` as in [`Arena::words`].
    #[allow(clippy::mut_from_ref)]
    pub(super) fn two_blocks<'h, T>(
        &'h self,
        owner: &'h mut T,
        from: BlockId,
        to: BlockId,
    ) -> (&'h mut [u32], &'h mut [u32]) {
        self.mapping
            .words_of_two(owner, self.span(from), self.span(to))
    }
}

/// The index of a block's first word in the mapping.
fn first_word_index(block: BlockId) -> usize {
    block as usize * GRANULE_BYTES / WORD_BYTES
}

impl PageList {
    fn push(&mut self, pages: &[Page], page_index: u32) {
        let page = &pages[page_index as usize];
        page.previous.store(NO_INDEX, Relaxed);
        page.next.store(self.head, Relaxed);
        if let Some(former_head) = pages.get(self.head as usize) {
            former_head.previous.store(page_index, Relaxed);
        }
        self.head = page_index;
    }

    fn remove(&mut self, pages: &[Page], page_index: u32) {
        let page = &pages[page_index as usize];
        let (next, previous) = (page.next.load(Relaxed), page.previous.load(Relaxed));
        match pages.get(previous as usize) {
            Some(previous_page) => previous_page.next.store(next, Relaxed),
            None => self.head = next,
        }
        if let Some(next_page) = pages.get(next as usize) {
            next_page.previous.store(previous, Relaxed);
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
            assert!(arena.used_bytes() <= 1 << 20);
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
        assert!(
            arena.used_bytes() <= CLASS_BYTES.len() * PAGE_BYTES,
            "pages come back"
        );
        assert!(
            arena.alloc(3 * PAGE_BYTES / 4).is_some(),
            "a run of freed pages"
        );
    }

    #[test]
    fn threads_never_share_a_block() {
        let arena = Arena::new(64 * PAGE_BYTES).unwrap();
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
