//! Bounds the memory that the heads of one connection's requests hold.
//!
//! A client sends a byte or two for a field that it has sent before (RFC 7541). So its heads can be far larger than what
//! it sends. Large heads that repeat each other share their bytes, and all heads together have a budget.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::http::head::Fields;

/// Bytes of each head that are not charged. Larger heads share their bytes.
pub const FREE_HEAD_BYTES: usize = 768;

/// The budget of all heads of a connection, in bytes, before anything is received. A hundred ordinary heads fit that
/// consist of references.
const BASE_BUDGET: usize = 64 * 1024;

/// Bytes that each received byte of a compressed block adds to the budget.
const BUDGET_PER_RECEIVED_BYTE: usize = 4;

/// Number of recent large heads that a new one is compared with. A table entry that makes up most of a large head has half
/// its size. Eight such entries fill the decoder's table of 4 KiB.
const MAX_RECENT_HEADS: usize = 8;

/// The memory of the heads of one connection.
#[derive(Debug, Default)]
pub struct HeadMemory {
    /// Bytes of compressed blocks that were received so far.
    received: usize,
    charged: Arc<AtomicUsize>,
    /// Recent large heads, the newest last.
    recent: VecDeque<RecentHead>,
}

/// A large head whose bytes later heads may share.
#[derive(Debug)]
struct RecentHead {
    fields: Fields,
    path: Bytes,
}

/// Charges bytes of memory until it is dropped.
#[derive(Debug, Default)]
pub struct HeadCharge(Option<(usize, Arc<AtomicUsize>)>);

impl Drop for HeadCharge {
    fn drop(&mut self) {
        if let Some((bytes, charged)) = self.0.take() {
            charged.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// The text of a head, charged until the last head that shares it is dropped.
struct SharedText {
    bytes: Vec<u8>,
    _charge: HeadCharge,
}

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl HeadMemory {
    /// Counts the bytes of a compressed block, which add to the budget.
    pub fn count_block(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes);
    }

    /// Forgets recent heads, so that they are not held while no request is open.
    pub fn forget_recent(&mut self) {
        self.recent = VecDeque::new();
    }

    /// Charges bytes of memory; `None` if they exceed the budget.
    pub fn charge(&self, bytes: usize) -> Option<HeadCharge> {
        if bytes == 0 {
            return Some(HeadCharge::default());
        }
        let earned = self.received.saturating_mul(BUDGET_PER_RECEIVED_BYTE);
        let budget = BASE_BUDGET.saturating_add(earned);
        // Only the thread of this connection adds, so the sum cannot grow between the check and the addition.
        if self.charged.load(Ordering::Relaxed).saturating_add(bytes) > budget {
            return None;
        }
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        Some(HeadCharge(Some((bytes, self.charged.clone()))))
    }

    /// Moves a head out of the temporary `text`, into bytes of its own or of a recent head. Returns its path and a charge
    /// for what only this request holds; `None` if that exceeds the budget.
    pub fn store_head(
        &mut self,
        fields: &mut Fields,
        text: &[u8],
        path: Range<usize>,
    ) -> Option<(Bytes, HeadCharge)> {
        if text.len() <= FREE_HEAD_BYTES {
            let bytes = text.len() + fields.memory_bytes();
            let charge = self.charge(bytes.saturating_sub(FREE_HEAD_BYTES))?;
            let text = Bytes::copy_from_slice(text);
            let path = text.slice(path);
            fields.attach_text(text);
            return Some((path, charge));
        }
        self.store_large_head(fields, text, path)
    }

    #[cold]
    #[inline(never)]
    fn store_large_head(
        &mut self,
        fields: &mut Fields,
        text: &[u8],
        path: Range<usize>,
    ) -> Option<(Bytes, HeadCharge)> {
        // A head is shared if it differs from a recent one in less than half of its bytes.
        let max_copied = text.len() / 2;
        let mut recent = self.recent.iter().rev();
        let shared = recent.find_map(|other| {
            let shared = fields.share_with(text, &other.fields, max_copied)?;
            Some((shared, &other.path))
        });
        if let Some((shared, other_path)) = shared {
            let path = &text[path];
            let (path, copied) = match path == other_path {
                true => (other_path.clone(), 0),
                false => (Bytes::copy_from_slice(path), path.len()),
            };
            let bytes = copied + shared.memory_bytes();
            let charge = self.charge(bytes.saturating_sub(FREE_HEAD_BYTES))?;
            *fields = shared;
            return Some((path, charge));
        }
        let charge = self.charge(fields.memory_bytes())?;
        let text = Bytes::from_owner(SharedText {
            _charge: self.charge(text.len() - FREE_HEAD_BYTES)?,
            bytes: text.to_vec(),
        });
        let path = text.slice(path);
        fields.attach_text(text);
        if self.recent.len() == MAX_RECENT_HEADS {
            self.recent.pop_front();
        }
        self.recent.push_back(RecentHead {
            fields: fields.clone(),
            path: path.clone(),
        });
        Some((path, charge))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores a head of a path and one field.
    fn store(
        heads: &mut HeadMemory,
        path: &str,
        value: &str,
    ) -> Option<(Fields, Bytes, HeadCharge)> {
        let text = format!("{path}x: {value}\r\n");
        let mut fields = Fields::with_capacity(1);
        fields.add_span(b"x", path.len(), path.len() + 3, value.len());
        let (path, charge) = heads.store_head(&mut fields, text.as_bytes(), 0..path.len())?;
        assert_eq!(fields.text("x"), Some(value));
        Some((fields, path, charge))
    }

    fn charged(heads: &HeadMemory) -> usize {
        heads.charged.load(Ordering::Relaxed)
    }

    #[test]
    fn a_shared_text_is_charged_until_its_last_head_is_dropped() {
        let mut heads = HeadMemory::default();
        let value = "v".repeat(5000);
        let first = store(&mut heads, "/", &value).unwrap();
        let once = charged(&heads);
        assert!((4000..6000).contains(&once));
        let second = store(&mut heads, "/", &value).unwrap();
        assert_eq!(charged(&heads), once);
        assert_eq!(first.1.as_ptr(), second.1.as_ptr(), "the path is shared");
        drop(first);
        heads.forget_recent();
        assert!(charged(&heads) > 4000);
        let (fields, path, charge) = second;
        drop((fields, charge));
        assert!(charged(&heads) > 4000, "the path stands in the same text");
        drop(path);
        assert_eq!(charged(&heads), 0);
    }

    #[test]
    fn a_path_of_its_own_is_charged() {
        let mut heads = HeadMemory::default();
        let value = "v".repeat(5000);
        let _first = store(&mut heads, "/", &value).unwrap();
        let once = charged(&heads);
        let path = format!("/{}", "p".repeat(2000));
        let second = store(&mut heads, &path, &value).unwrap();
        assert!(charged(&heads) > once + 1000);
        drop(second);
        assert_eq!(charged(&heads), once);
    }

    #[test]
    fn what_a_connection_holds_has_a_bound() {
        let mut heads = HeadMemory::default();
        let many = |heads: &mut HeadMemory| {
            let values = (0..).map(|n| format!("{n:05}").repeat(2000));
            let held: Vec<_> = values
                .map_while(|value| store(heads, "/", &value))
                .collect();
            held.len()
        };
        let one = store(&mut heads, "/", &"v".repeat(10_000)).unwrap();
        let each = charged(&heads);
        drop(one);
        heads.forget_recent();
        assert_eq!(many(&mut heads), BASE_BUDGET / each);
        heads.forget_recent();
        assert_eq!(charged(&heads), 0);
        heads.count_block(50_000);
        assert_eq!(
            many(&mut heads),
            (BASE_BUDGET + BUDGET_PER_RECEIVED_BYTE * 50_000) / each
        );
        // Small heads with few fields always fit.
        assert!(store(&mut heads, "/", &"v".repeat(600)).is_some());
    }

    #[test]
    fn some_large_heads_in_turn_are_held_once_each() {
        let mut heads = HeadMemory::default();
        let mut held = Vec::new();
        for round in 0..10 {
            for n in 0..MAX_RECENT_HEADS {
                let value = format!("{n:05}").repeat(200);
                held.push(store(&mut heads, "/", &value).unwrap());
            }
            assert!(charged(&heads) < MAX_RECENT_HEADS * 1100, "round {round}");
        }
    }
}
