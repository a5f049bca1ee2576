//! The tables of fields that blocks refer to by index: the static one of RFC 7541 appendix A, and a dynamic one with the
//! fields that one side has added (section 2.3.2).

use std::collections::VecDeque;

use super::kind::FieldKind;

/// Bytes of a dynamic table, unless settings change it: RFC 9113 section 6.5.2.
pub const DYNAMIC_TABLE_SIZE: usize = 4096;

/// Bytes that an entry counts beyond its name and value: RFC 7541 section 4.1.
pub const ENTRY_OVERHEAD: usize = 32;

/// The entries of the static table, from index 1 on.
#[rustfmt::skip]
const NAMES_AND_VALUES: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The static table: name, value and kind of each entry, from index 1 on.
pub static STATIC_TABLE: [(&str, &str, FieldKind); 61] = {
    let mut entries = [("", "", FieldKind::Malformed); 61];
    let mut at = 0;
    while at < entries.len() {
        let (name, value) = NAMES_AND_VALUES[at];
        entries[at] = (name, value, FieldKind::of(name.as_bytes()));
        at += 1;
    }
    entries
};

/// A field of the dynamic table.
#[derive(Debug)]
pub struct TableEntry {
    /// Name and value, one after the other.
    text: Box<[u8]>,
    name_length: usize,
    /// The kind of the field.
    pub kind: FieldKind,
    /// The kind that the name alone would have. It differs from `kind` if the value is invalid.
    pub name_kind: FieldKind,
}

impl TableEntry {
    /// An entry whose `name_kind` is the same `kind`.
    pub fn new(kind: FieldKind, name: &[u8], value: &[u8]) -> TableEntry {
        TableEntry {
            text: [name, value].concat().into(),
            name_length: name.len(),
            kind,
            name_kind: kind,
        }
    }

    /// The name of the field.
    pub fn name(&self) -> &[u8] {
        &self.text[..self.name_length]
    }

    /// The value of the field.
    pub fn value(&self) -> &[u8] {
        &self.text[self.name_length..]
    }
}

/// The dynamic table of one direction. Its oldest entries are evicted when it is full.
#[derive(Debug, Default)]
pub struct DynamicTable {
    /// The newest entry first.
    entries: VecDeque<TableEntry>,
    size: usize,
    max_size: usize,
}

impl DynamicTable {
    /// An empty table for `max_size` bytes.
    pub fn new(max_size: usize) -> DynamicTable {
        DynamicTable {
            max_size,
            ..DynamicTable::default()
        }
    }

    /// Changes the maximum size, in bytes, and evicts what no longer fits.
    pub fn resize(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict_for(0);
    }

    /// The entry at `index`, counted from the newest, which has 0.
    pub fn get(&self, index: usize) -> Option<&TableEntry> {
        self.entries.get(index)
    }

    /// Adds an entry and evicts the oldest ones for it. False if the entry is larger than the table, which is then empty.
    pub fn add(&mut self, entry: TableEntry) -> bool {
        let size = entry.text.len() + ENTRY_OVERHEAD;
        self.evict_for(size);
        let fits = size <= self.max_size;
        if fits {
            self.size += size;
            self.entries.push_front(entry);
        }
        fits
    }

    /// Evicts the oldest entries until `size` bytes more fit, or none is left.
    fn evict_for(&mut self, size: usize) {
        while self.size + size > self.max_size
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.text.len() + ENTRY_OVERHEAD;
        }
    }
}
