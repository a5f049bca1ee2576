//! Bounds the memory that the heads and trailers of one connection's requests hold.
//!
//! A client sends a byte or two for a field that it has sent before (RFC 7541). So its heads can be far larger than the
//! bytes that it sends. Large heads that repeat each other share their bytes. All heads and trailers together have a
//! budget.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::http::head::Fields;

/// Bytes of each head that are not charged. The maximum number of open requests bounds their sum. Only larger heads share
/// their bytes.
pub const FREE_HEAD_BYTES: usize = 768;

/// The budget of all heads and trailers of a connection, in bytes, before anything is received. It has space for a hundred
/// ordinary heads that consist of references to earlier fields.
const BASE_BUDGET_BYTES: usize = 64 * 1024;

/// Bytes that each received byte of a compressed block adds to the budget, for the whole life of the connection.
const BUDGET_PER_RECEIVED_BYTE: usize = 4;

/// Number of recent large heads that a new head is compared with. A client can repeat a large field in few bytes only if
/// the decoder's table of 4 KiB has the field. About eight fields of half a large head's size fill this table.
const MAX_RECENT_HEADS: usize = 8;

/// The memory of the heads of one connection.
#[derive(Debug, Default)]
pub struct HeadMemory {
    /// Bytes of compressed blocks that the connection has received so far.
    received_bytes: usize,
    /// Bytes that are charged now. Only the thread of this connection adds. Other threads may subtract when they drop the
    /// last part of a head. Nothing else depends on the value, so relaxed order is enough.
    charged_bytes: Arc<AtomicUsize>,
    /// Recent large heads, the newest last.
    recent_heads: VecDeque<RecentHead>,
}

/// A large head whose bytes later heads may share.
#[derive(Debug)]
struct RecentHead {
    fields: Fields,
    path: Bytes,
}

/// Charges bytes of memory until this value is dropped. The default charges nothing.
#[derive(Debug, Default)]
pub struct HeadCharge {
    bytes: usize,
    /// The sum that `bytes` are part of; `None` if nothing is charged.
    charged_bytes: Option<Arc<AtomicUsize>>,
}

impl Drop for HeadCharge {
    fn drop(&mut self) {
        if let Some(charged_bytes) = self.charged_bytes.take() {
            charged_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
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
    pub fn count_received_block(&mut self, bytes: usize) {
        self.received_bytes = self.received_bytes.saturating_add(bytes);
    }

    /// Forgets recent heads, so that they are not held while no request is open.
    pub fn forget_recent_heads(&mut self) {
        self.recent_heads = VecDeque::new();
    }

    /// Charges bytes of memory; `None` if all charged bytes together would exceed the budget.
    pub fn charge(&self, bytes: usize) -> Option<HeadCharge> {
        if bytes == 0 {
            return Some(HeadCharge::default());
        }
        let earned_bytes = self.received_bytes.saturating_mul(BUDGET_PER_RECEIVED_BYTE);
        let budget_bytes = BASE_BUDGET_BYTES.saturating_add(earned_bytes);
        // Only this thread adds, so the sum cannot grow between the check and the addition.
        let charged_bytes = self.charged_bytes.load(Ordering::Relaxed);
        if charged_bytes.saturating_add(bytes) > budget_bytes {
            return None;
        }
        self.charged_bytes.fetch_add(bytes, Ordering::Relaxed);
        Some(HeadCharge {
            bytes,
            charged_bytes: Some(self.charged_bytes.clone()),
        })
    }

    /// Moves a head out of the temporary `text`, into bytes of its own or of a recent head, to which `fields` then refer.
    /// Returns the head's path and a charge for the bytes that only this request holds; `None` if the budget is exceeded.
    pub fn store_head(
        &mut self,
        fields: &mut Fields,
        text: &[u8],
        path_range: Range<usize>,
    ) -> Option<(Bytes, HeadCharge)> {
        if text.len() <= FREE_HEAD_BYTES {
            let bytes = text.len() + fields.memory_bytes();
            let charge = self.charge(bytes.saturating_sub(FREE_HEAD_BYTES))?;
            let text = Bytes::copy_from_slice(text);
            let path = text.slice(path_range);
            fields.attach_text(text);
            return Some((path, charge));
        }
        self.store_large_head(fields, text, path_range)
    }

    /// Stores a head whose text exceeds [`FREE_HEAD_BYTES`] and may share the bytes of a recent head. Returns the same as
    /// [`HeadMemory::store_head`]. Such heads are rare, so this stays out of the path of ordinary ones.
    #[cold]
    #[inline(never)]
    fn store_large_head(
        &mut self,
        fields: &mut Fields,
        text: &[u8],
        path_range: Range<usize>,
    ) -> Option<(Bytes, HeadCharge)> {
        // Of a head that shares the bytes of a recent head, at most half is copied. Both have the same longest field.
        let max_copied_bytes = text.len() / 2;
        let mut recent_heads = self.recent_heads.iter().rev();
        let sharing = recent_heads.find_map(|recent| {
            let shared_fields = fields.share_with(text, &recent.fields, max_copied_bytes)?;
            Some((shared_fields, &recent.path))
        });
        if let Some((shared_fields, recent_path)) = sharing {
            let path = &text[path_range];
            let (path, copied_bytes) = match path == recent_path {
                true => (recent_path.clone(), 0),
                false => (Bytes::copy_from_slice(path), path.len()),
            };
            let bytes = copied_bytes + shared_fields.memory_bytes();
            let charge = self.charge(bytes.saturating_sub(FREE_HEAD_BYTES))?;
            *fields = shared_fields;
            return Some((path, charge));
        }
        let charge = self.charge(fields.memory_bytes())?;
        let text = Bytes::from_owner(SharedText {
            _charge: self.charge(text.len() - FREE_HEAD_BYTES)?,
            bytes: text.to_vec(),
        });
        let path = text.slice(path_range);
        fields.attach_text(text);
        if self.recent_heads.len() == MAX_RECENT_HEADS {
            self.recent_heads.pop_front();
        }
        self.recent_heads.push_back(RecentHead {
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
        heads.charged_bytes.load(Ordering::Relaxed)
    }

    #[test]
    fn a_shared_text_is_charged_until_its_last_head_is_dropped() {
        let mut heads = HeadMemory::default();
        let value = "v".repeat(5000);
        let first = store(&mut heads, "/", &value).unwrap();
        let charged_once = charged(&heads);
        assert!((4000..6000).contains(&charged_once));
        let second = store(&mut heads, "/", &value).unwrap();
        assert_eq!(charged(&heads), charged_once);
        assert_eq!(first.1.as_ptr(), second.1.as_ptr(), "the path is shared");
        drop(first);
        heads.forget_recent_heads();
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
        let charged_once = charged(&heads);
        let path = format!("/{}", "p".repeat(2000));
        let second = store(&mut heads, &path, &value).unwrap();
        assert!(charged(&heads) > charged_once + 1000);
        drop(second);
        assert_eq!(charged(&heads), charged_once);
    }

    #[test]
    fn the_heads_of_a_connection_have_a_bound() {
        let mut heads = HeadMemory::default();
        let count_heads_that_fit = |heads: &mut HeadMemory| {
            let values = (0..).map(|number| format!("{number:05}").repeat(2000));
            let held_heads: Vec<_> = values
                .map_while(|value| store(heads, "/", &value))
                .collect();
            held_heads.len()
        };
        let single_head = store(&mut heads, "/", &"v".repeat(10_000)).unwrap();
        let bytes_per_head = charged(&heads);
        drop(single_head);
        heads.forget_recent_heads();
        assert_eq!(
            count_heads_that_fit(&mut heads),
            BASE_BUDGET_BYTES / bytes_per_head
        );
        heads.forget_recent_heads();
        assert_eq!(charged(&heads), 0);
        heads.count_received_block(50_000);
        assert_eq!(
            count_heads_that_fit(&mut heads),
            (BASE_BUDGET_BYTES + BUDGET_PER_RECEIVED_BYTE * 50_000) / bytes_per_head
        );
        // Small heads with few fields always fit.
        assert!(store(&mut heads, "/", &"v".repeat(600)).is_some());
    }

    #[test]
    fn some_large_heads_in_turn_are_held_once_each() {
        let mut heads = HeadMemory::default();
        let mut held_heads = Vec::new();
        for round in 0..10 {
            for number in 0..MAX_RECENT_HEADS {
                let value = format!("{number:05}").repeat(200);
                held_heads.push(store(&mut heads, "/", &value).unwrap());
            }
            assert!(charged(&heads) < MAX_RECENT_HEADS * 1100, "round {round}");
        }
    }
}
