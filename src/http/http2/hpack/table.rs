//! What both sides know from the start, RFC 7541 Appendix A, and what they learn, section 2.3.2.

use std::collections::VecDeque;

use super::kind::FieldKind;

/// Bytes of a table that each side keeps of the other's fields, unless settings say otherwise: RFC 9113
/// section 6.5.2.
pub const DYNAMIC_TABLE_SIZE: usize = 4096;

/// Bytes that an entry of a table counts beyond its name and value: RFC 7541 section 4.1.
pub const ENTRY_OVERHEAD: usize = 32;

/// The entries with the indices from 1.
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

/// The same, with what each name means.
pub static STATIC_TABLE: [(&str, &str, FieldKind); 61] = {
    let mut all = [("", "", FieldKind::Malformed); 61];
    let mut at = 0;
    while at < all.len() {
        let (name, value) = NAMES_AND_VALUES[at];
        all[at] = (name, value, FieldKind::of(name.as_bytes()));
        at += 1;
    }
    all
};

/// A field of the dynamic table.
#[derive(Debug)]
pub struct TableEntry {
    /// Name and value, one after the other.
    text: Box<[u8]>,
    name: usize,
    /// What the field is.
    pub kind: FieldKind,
    /// What its name says, where the value is one that no field has.
    pub named: FieldKind,
}

impl TableEntry {
    /// An entry of its own.
    pub fn new(kind: FieldKind, name: &[u8], value: &[u8]) -> TableEntry {
        TableEntry {
            text: [name, value].concat().into(),
            name: name.len(),
            kind,
            named: kind,
        }
    }

    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.text[..self.name]
    }

    /// Its value.
    pub fn value(&self) -> &[u8] {
        &self.text[self.name..]
    }
}

/// What one side has taught the other, the newest first.
#[derive(Debug, Default)]
pub struct DynamicTable {
    entries: VecDeque<TableEntry>,
    size: usize,
    most: usize,
}

impl DynamicTable {
    /// Nothing, with room for so many bytes.
    pub fn new(most: usize) -> DynamicTable {
        DynamicTable {
            most,
            ..DynamicTable::default()
        }
    }

    /// Gives it another size.
    pub fn resize(&mut self, most: usize) {
        self.most = most;
        self.make_room(0);
    }

    /// The entry that came so many before the newest.
    pub fn get(&self, before: usize) -> Option<&TableEntry> {
        self.entries.get(before)
    }

    /// Adds one, and forgets the oldest where there is no room; says whether there is for this one.
    pub fn add(&mut self, entry: TableEntry) -> bool {
        let size = entry.text.len() + ENTRY_OVERHEAD;
        self.make_room(size);
        let fits = size <= self.most;
        if fits {
            self.size += size;
            self.entries.push_front(entry);
        }
        fits
    }

    fn make_room(&mut self, size: usize) {
        while self.size + size > self.most
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.text.len() + ENTRY_OVERHEAD;
        }
    }
}
