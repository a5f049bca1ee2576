//! Anonymous zeroed memory, whose pages cost nothing until they are touched. This is the only file of the store with unsafe
//! code: it turns the mapping into atomics and slices. It never hands out two slices of the same words.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use memmap2::{MmapMut, MmapOptions};

/// Zeroed words, page-aligned.
#[derive(Debug)]
pub(super) struct ZeroedMap {
    base: NonNull<u32>,
    words: usize,
    _map: MmapMut,
}

// SAFETY: the mapping is private to this value and lives as long as it. It is reached as atomics, or
// through `words`, whose callers hold the lock of the block.
unsafe impl Send for ZeroedMap {}
// SAFETY: as above.
unsafe impl Sync for ZeroedMap {}

impl ZeroedMap {
    /// Maps `bytes`, a multiple of 8; in huge pages if `huge` is set and the kernel has some.
    pub(super) fn new(bytes: usize, huge: bool) -> io::Result<ZeroedMap> {
        let mut map = MmapOptions::new().len(bytes.max(4_096)).map_anon()?;
        #[cfg(target_os = "linux")]
        if huge {
            // Advice only: a kernel without huge pages serves small ones.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let base =
            NonNull::new(map.as_mut_ptr().cast::<u32>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(ZeroedMap {
            base,
            words: bytes / 4,
            _map: map,
        })
    }

    /// The words of a bucket, the 128 bytes with this number.
    #[inline]
    pub(super) fn bucket(&self, bucket: usize) -> &[AtomicU64; 16] {
        assert!(bucket < self.words / 32);
        // SAFETY: in bounds, and aligned because base is page-aligned; zeroed, so valid as AtomicU64.
        // A map that is used this way is never reached through `words`.
        unsafe {
            &*self
                .base
                .as_ptr()
                .add(bucket * 32)
                .cast::<[AtomicU64; 16]>()
        }
    }

    /// Asks the processor to load a bucket that will be needed.
    #[inline]
    pub(super) fn prefetch(&self, bucket: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint that touches nothing, wherever it points.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let bucket = self.base.as_ptr().wrapping_add(bucket * 32);
            _mm_prefetch::<_MM_HINT_T0>(bucket.cast());
            _mm_prefetch::<_MM_HINT_T0>(bucket.wrapping_add(16).cast());
        }
    }

    /// One word as an atomic, for the links inside free blocks.
    pub(super) fn atomic_word(&self, word: usize) -> &AtomicU32 {
        assert!(word < self.words);
        // SAFETY: in bounds and aligned. The block is free, so nobody holds a slice of it.
        unsafe { &*self.base.as_ptr().add(word).cast::<AtomicU32>() }
    }

    /// The words of a block. `_owner` stands for the locked bucket whose entry names the block; no other entry does. It is
    /// borrowed exclusively, so that no second slice of the block can exist.
    #[allow(clippy::mut_from_ref)]
    pub(super) fn words<'h, T>(
        &'h self,
        _owner: &'h mut T,
        start: usize,
        len: usize,
    ) -> &'h mut [u32] {
        assert!(start.checked_add(len).is_some_and(|end| end <= self.words));
        // SAFETY: in bounds, aligned, initialised (zeroed by the kernel). A live block has one entry, and this thread
        // has locked that entry's bucket. The lock's acquire and release order the accesses of different threads.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(start), len) }
    }

    /// The words of two blocks, to move a state from the first to the second. Each is given by its first word and length.
    #[allow(clippy::mut_from_ref)]
    pub(super) fn two_ranges<'h, T>(
        &'h self,
        _owner: &'h mut T,
        from: (usize, usize),
        to: (usize, usize),
    ) -> (&'h mut [u32], &'h mut [u32]) {
        let ends = |(start, len): (usize, usize)| start.checked_add(len);
        assert!(ends(from).is_some_and(|end| end <= self.words));
        assert!(ends(to).is_some_and(|end| end <= self.words));
        assert!(
            from.0 + from.1 <= to.0 || to.0 + to.1 <= from.0,
            "blocks are disjoint"
        );
        // SAFETY: as in `words`, and the two do not overlap.
        unsafe {
            (
                std::slice::from_raw_parts_mut(self.base.as_ptr().add(from.0), from.1),
                std::slice::from_raw_parts_mut(self.base.as_ptr().add(to.0), to.1),
            )
        }
    }
}
