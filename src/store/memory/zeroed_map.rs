//! Anonymous zeroed memory for the table and the arena. Its pages cost nothing until they are touched. This is the only
//! file of the store with unsafe code: it turns the mapping into atomics and slices. No two slices of the same words exist
//! at a time.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use memmap2::{MmapMut, MmapOptions};

/// Words of 32 bits of a bucket, which has 128 bytes.
const BUCKET_U32_COUNT: usize = 32;
/// Words of 64 bits of a bucket.
const BUCKET_U64_COUNT: usize = BUCKET_U32_COUNT / 2;
/// Bytes of the smallest mapping: one page of the usual size. The system maps no empty range.
const MIN_MAP_BYTES: usize = 4_096;

/// A mapping of zeroed words of 32 bits, page-aligned.
#[derive(Debug)]
pub(super) struct ZeroedMap {
    start: NonNull<u32>,
    word_count: usize,
    /// Keeps the memory mapped for as long as `start` is used.
    _map: MmapMut,
}

/// The words of a block in the mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct WordSpan {
    /// The index of the first word.
    pub(super) first_word: usize,
    /// The number of words.
    pub(super) word_count: usize,
}

impl WordSpan {
    /// The index behind the last word; `None` where that overflows.
    fn end(self) -> Option<usize> {
        self.first_word.checked_add(self.word_count)
    }
}

// SAFETY: the mapping is private to this value and lives as long as it. It is reached as atomics, or
// through `words_of`, whose callers hold the lock of the block.
unsafe impl Send for ZeroedMap {}
// SAFETY: as above.
unsafe impl Sync for ZeroedMap {}

impl ZeroedMap {
    /// Maps `byte_count` bytes, a multiple of 8. On Linux the pages are huge if `wants_huge_pages` is set and the kernel
    /// has some. Fails if the system gives no memory.
    pub(super) fn new(byte_count: usize, wants_huge_pages: bool) -> io::Result<ZeroedMap> {
        let mut map = MmapOptions::new()
            .len(byte_count.max(MIN_MAP_BYTES))
            .map_anon()?;
        #[cfg(target_os = "linux")]
        if wants_huge_pages {
            // Advice only: a kernel without huge pages serves small ones.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let start =
            NonNull::new(map.as_mut_ptr().cast::<u32>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(ZeroedMap {
            start,
            word_count: byte_count / size_of::<u32>(),
            _map: map,
        })
    }

    /// The sixteen words of 64 bits of the bucket with this index. Panics if there is no such bucket.
    #[inline]
    pub(super) fn bucket(&self, bucket_index: usize) -> &[AtomicU64; BUCKET_U64_COUNT] {
        assert!(bucket_index < self.word_count / BUCKET_U32_COUNT);
        // SAFETY: in bounds, and aligned because the mapping is page-aligned; zeroed, so valid as AtomicU64.
        // A map that is used this way is never reached through `words_of`.
        unsafe {
            &*self
                .start
                .as_ptr()
                .add(bucket_index * BUCKET_U32_COUNT)
                .cast::<[AtomicU64; BUCKET_U64_COUNT]>()
        }
    }

    /// Asks the processor to load the two cache lines of a bucket, without waiting for them. Does nothing on processors
    /// other than x86-64.
    #[inline]
    pub(super) fn prefetch(&self, bucket_index: usize) {
        #[cfg(not(target_arch = "x86_64"))]
        let _ = bucket_index;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint that touches nothing, wherever it points.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let first_line = self
                .start
                .as_ptr()
                .wrapping_add(bucket_index * BUCKET_U32_COUNT);
            let second_line = first_line.wrapping_add(BUCKET_U32_COUNT / 2);
            _mm_prefetch::<_MM_HINT_T0>(first_line.cast());
            _mm_prefetch::<_MM_HINT_T0>(second_line.cast());
        }
    }

    /// One word of a free block as an atomic. Free blocks are linked through such words. Panics if there is no such word.
    pub(super) fn atomic_word(&self, word_index: usize) -> &AtomicU32 {
        assert!(word_index < self.word_count);
        // SAFETY: in bounds and aligned. The block is free, so nobody holds a slice of it.
        unsafe { &*self.start.as_ptr().add(word_index).cast::<AtomicU32>() }
    }

    /// The words of a block. `_owner` stands for the locked bucket whose entry names the block; no other entry does. The
    /// owner is borrowed exclusively, so that no second slice of the block can exist. Panics if the span is not in the map.
    #[allow(clippy::mut_from_ref)]
    pub(super) fn words_of<'h, T>(&'h self, _owner: &'h mut T, span: WordSpan) -> &'h mut [u32] {
        assert!(span.end().is_some_and(|end| end <= self.word_count));
        // SAFETY: in bounds, aligned, initialised (zeroed by the kernel). A live block has one entry, and this thread
        // has locked that entry's bucket. The lock's acquire and release order the accesses of different threads.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.start.as_ptr().add(span.first_word),
                span.word_count,
            )
        }
    }

    /// The words of two blocks, to move a state from the first to the second. Panics if they overlap.
    #[allow(clippy::mut_from_ref)]
    pub(super) fn words_of_two<'h, T>(
        &'h self,
        _owner: &'h mut T,
        from: WordSpan,
        to: WordSpan,
    ) -> (&'h mut [u32], &'h mut [u32]) {
        assert!(from.end().is_some_and(|end| end <= self.word_count));
        assert!(to.end().is_some_and(|end| end <= self.word_count));
        assert!(
            from.first_word + from.word_count <= to.first_word
                || to.first_word + to.word_count <= from.first_word,
            "blocks are disjoint"
        );
        // SAFETY: as in `words_of`, and the two do not overlap.
        unsafe {
            (
                std::slice::from_raw_parts_mut(
                    self.start.as_ptr().add(from.first_word),
                    from.word_count,
                ),
                std::slice::from_raw_parts_mut(
                    self.start.as_ptr().add(to.first_word),
                    to.word_count,
                ),
            )
        }
    }
}
