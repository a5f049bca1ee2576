//! The memory that the heads of one connection's requests hold. Heads that repeat each other share their bytes, and what
//! they hold together has a bound: a client that refers to fields it has sent before (RFC 7541) sends a byte for each.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::http::head::Fields;

/// Bytes of each head that are not charged. Larger heads share their bytes.
pub const FREE: usize = 768;

/// Bytes that all heads of a connection may hold beyond [`FREE`] for each: these, and [`TIMES`] the bytes of all header
/// blocks received. A hundred ordinary heads that consist of references fit.
const FIXED: usize = 64 * 1024;
const TIMES: usize = 4;

/// Large heads that others are compared with. Entries that make up most of a large head have half its size, and as many
/// fit into the table of the decoder (4 KiB).
const RECENT: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub struct Heads {
    /// Bytes of header blocks.
    received: usize,
    charged: Arc<AtomicUsize>,
    /// The newest last.
    recent: VecDeque<RecentHead>,
}

/// A head that others may share.
#[derive(Debug)]
struct RecentHead {
    fields: Fields,
    path: Bytes,
}

/// Bytes of memory, charged until this is dropped.
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

impl Heads {
    /// Counts the bytes of a header block.
    pub fn received(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes);
    }

    /// Shares nothing with heads so far: no request is open.
    pub fn rest(&mut self) {
        self.recent = VecDeque::new();
    }

    /// Charges bytes of memory; nothing when there is no room for them.
    pub fn charge(&self, bytes: usize) -> Option<HeadCharge> {
        if bytes == 0 {
            return Some(HeadCharge::default());
        }
        let most = FIXED.saturating_add(self.received.saturating_mul(TIMES));
        // Only this connection's thread adds, so that nothing comes between.
        if self.charged.load(Ordering::Relaxed).saturating_add(bytes) > most {
            return None;
        }
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        Some(HeadCharge(Some((bytes, self.charged.clone()))))
    }

    /// Has `fields`, which stand in `text` as the `path` does, stand in bytes of their own or of recent heads. Returns the
    /// path and a charge for what only this request holds; nothing when there is no room.
    pub fn settle(
        &mut self,
        fields: &mut Fields,
        text: &[u8],
        path: Range<usize>,
    ) -> Option<(Bytes, HeadCharge)> {
        if text.len() <= FREE {
            let charge = self.charge((text.len() + fields.weight()).saturating_sub(FREE))?;
            let text = Bytes::copy_from_slice(text);
            let path = text.slice(path);
            fields.settle(text);
            return Some((path, charge));
        }
        self.settle_large(fields, text, path)
    }

    #[cold]
    #[inline(never)]
    fn settle_large(
        &mut self,
        fields: &mut Fields,
        text: &[u8],
        path: Range<usize>,
    ) -> Option<(Bytes, HeadCharge)> {
        let most = text.len() / 2;
        let mut recent = self.recent.iter().rev();
        let shared = recent.find_map(|other| {
            let shared = fields.sharing(text, &other.fields, most)?;
            Some((shared, &other.path))
        });
        if let Some((shared, other_path)) = shared {
            let said = &text[path];
            let (path, copied) = match said == other_path {
                true => (other_path.clone(), 0),
                false => (Bytes::copy_from_slice(said), said.len()),
            };
            let charge = self.charge((copied + shared.weight()).saturating_sub(FREE))?;
            *fields = shared;
            return Some((path, charge));
        }
        let charge = self.charge(fields.weight())?;
        let text = Bytes::from_owner(SharedText {
            _charge: self.charge(text.len() - FREE)?,
            bytes: text.to_vec(),
        });
        let path = text.slice(path);
        fields.settle(text);
        if self.recent.len() == RECENT {
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

    /// Settles a head of a path and one field.
    fn settle(heads: &mut Heads, path: &str, value: &str) -> Option<(Fields, Bytes, HeadCharge)> {
        let text = format!("{path}x: {value}\r\n");
        let mut fields = Fields::with_capacity(1);
        fields.place(b"x", path.len(), path.len() + 3, value.len());
        let (path, charge) = heads.settle(&mut fields, text.as_bytes(), 0..path.len())?;
        assert_eq!(fields.text("x"), Some(value));
        Some((fields, path, charge))
    }

    fn charged(heads: &Heads) -> usize {
        heads.charged.load(Ordering::Relaxed)
    }

    #[test]
    fn a_shared_text_is_charged_until_its_last_head_is_dropped() {
        let mut heads = Heads::default();
        let value = "v".repeat(5000);
        let first = settle(&mut heads, "/", &value).unwrap();
        let once = charged(&heads);
        assert!((4000..6000).contains(&once));
        let second = settle(&mut heads, "/", &value).unwrap();
        assert_eq!(charged(&heads), once);
        assert_eq!(first.1.as_ptr(), second.1.as_ptr(), "the path is shared");
        drop(first);
        heads.rest();
        assert!(charged(&heads) > 4000);
        let (fields, path, charge) = second;
        drop((fields, charge));
        assert!(charged(&heads) > 4000, "the path stands in the same text");
        drop(path);
        assert_eq!(charged(&heads), 0);
    }

    #[test]
    fn a_path_of_its_own_is_charged() {
        let mut heads = Heads::default();
        let value = "v".repeat(5000);
        let _first = settle(&mut heads, "/", &value).unwrap();
        let once = charged(&heads);
        let path = format!("/{}", "p".repeat(2000));
        let second = settle(&mut heads, &path, &value).unwrap();
        assert!(charged(&heads) > once + 1000);
        drop(second);
        assert_eq!(charged(&heads), once);
    }

    #[test]
    fn what_a_connection_holds_has_a_bound() {
        let mut heads = Heads::default();
        let many = |heads: &mut Heads| {
            let values = (0..).map(|n| format!("{n:05}").repeat(2000));
            let held: Vec<_> = values
                .map_while(|value| settle(heads, "/", &value))
                .collect();
            held.len()
        };
        let one = settle(&mut heads, "/", &"v".repeat(10_000)).unwrap();
        let each = charged(&heads);
        drop(one);
        heads.rest();
        assert_eq!(many(&mut heads), FIXED / each);
        heads.rest();
        assert_eq!(charged(&heads), 0);
        heads.received(50_000);
        assert_eq!(many(&mut heads), (FIXED + TIMES * 50_000) / each);
        // Small heads with few fields always fit.
        assert!(settle(&mut heads, "/", &"v".repeat(600)).is_some());
    }

    #[test]
    fn some_large_heads_in_turn_are_held_once_each() {
        let mut heads = Heads::default();
        let mut held = Vec::new();
        for round in 0..10 {
            for n in 0..RECENT {
                let value = format!("{n:05}").repeat(200);
                held.push(settle(&mut heads, "/", &value).unwrap());
            }
            assert!(charged(&heads) < RECENT * 1100, "round {round}");
        }
    }
}
