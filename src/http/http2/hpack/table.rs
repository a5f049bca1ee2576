//! The tables of fields that blocks refer to by index: the static one of RFC 7541 appendix A, and a dynamic one with
//! the fields that one side has added (section 2.3.2).

use std::collections::VecDeque;

use super::field_kind::FieldKind;

/// Largest size of a dynamic table in bytes, as settings have it by default (RFC 9113 section 6.5.2). The gateway never
/// uses more.
pub const DYNAMIC_TABLE_BYTES: usize = 4096;

/// Bytes that an entry counts beyond its name and value: RFC 7541 section 4.1.
pub const ENTRY_OVERHEAD_BYTES: usize = 32;

/// The names and values of the static table, from index 1 on.
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

/// A field of the static table.
#[derive(Clone, Copy, Debug)]
pub struct StaticEntry {
    /// The name of the field.
    pub name: &'static str,
    /// The value of the field; empty if the entry is for its name alone.
    pub value: &'static str,
    /// What the field means to HTTP/2.
    pub kind: FieldKind,
}

/// The static table. The entry with index 1 is the first.
pub static STATIC_TABLE: [StaticEntry; NAMES_AND_VALUES.len()] = {
    let empty = StaticEntry {
        name: "",
        value: "",
        kind: FieldKind::Malformed,
    };
    let mut entries = [empty; NAMES_AND_VALUES.len()];
    let mut position = 0;
    while position < entries.len() {
        let (name, value) = NAMES_AND_VALUES[position];
        entries[position] = StaticEntry {
            name,
            value,
            kind: FieldKind::of(name.as_bytes()),
        };
        position += 1;
    }
    entries
};

/// A field of the dynamic table.
#[derive(Debug)]
pub struct TableEntry {
    /// The name and the value, one after the other.
    text: Box<[u8]>,
    /// The length of the name, in bytes.
    name_length: usize,
    /// What the field means to HTTP/2; [`FieldKind::Malformed`] if its name or value is invalid.
    pub kind: FieldKind,
    /// The kind that the name alone would have. It differs from `kind` if the value is invalid.
    pub name_kind: FieldKind,
}

impl TableEntry {
    /// An entry whose `name_kind` is `kind` too.
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
    /// The entries, the newest first.
    entries: VecDeque<TableEntry>,
    /// The size of all entries: their names and values, and [`ENTRY_OVERHEAD_BYTES`] for each.
    size_bytes: usize,
    /// The largest size of all entries, in bytes.
    max_bytes: usize,
}

impl DynamicTable {
    /// An empty table for `max_bytes` bytes.
    pub fn new(max_bytes: usize) -> DynamicTable {
        DynamicTable {
            max_bytes,
            ..DynamicTable::default()
        }
    }

    /// Changes the maximum size, and evicts the oldest entries that no longer fit.
    pub fn resize(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
        self.evict_until_fits(0);
    }

    /// The entry at `index`, counted from the newest, which has 0; `None` if there are fewer entries.
    pub fn get(&self, index: usize) -> Option<&TableEntry> {
        self.entries.get(index)
    }

    /// Adds an entry and evicts the oldest ones for it. Returns false if the entry is larger than the table, which is
    /// then empty.
    pub fn add(&mut self, entry: TableEntry) -> bool {
        let size = entry.text.len() + ENTRY_OVERHEAD_BYTES;
        self.evict_until_fits(size);
        let fits = size <= self.max_bytes;
        if fits {
            self.size_bytes += size;
            self.entries.push_front(entry);
        }
        fits
    }

    /// Evicts the oldest entries until an entry of `entry_bytes` fits, or the table is empty.
    fn evict_until_fits(&mut self, entry_bytes: usize) {
        while self.size_bytes + entry_bytes > self.max_bytes
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size_bytes -= oldest.text.len() + ENTRY_OVERHEAD_BYTES;
        }
    }
}
