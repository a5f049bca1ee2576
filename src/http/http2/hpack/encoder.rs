//! What this side says. A field is added to the table when it comes a second time, and then takes one
//! byte or two. A field whose value differs each time is never added. Nothing is coded by Huffman's code,
//! which would save less in bytes than it costs in time.

use super::integer::write_number;
use super::kind::FieldKind;
use super::table::{DYNAMIC_TABLE_SIZE, DynamicTable, STATIC_TABLE, TableEntry};

/// Fields that are remembered, by their hash.
const REMEMBERED: usize = 64;

/// Most bytes of a value that is added to the table, so that none drives out all others.
const SHORT: usize = 256;

/// The other side's idea of this side's fields.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable,
    /// By a hash's last bits: the hash of the last such field, and its number among those added, from 1; 0 if it was
    /// not added.
    seen: Box<[(u64, u32)]>,
    /// Fields added since the connection began.
    count: u32,
    /// Sizes that the other side has to be told, the least and the last one.
    resized: Option<(usize, usize)>,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder {
            table: DynamicTable::new(DYNAMIC_TABLE_SIZE),
            seen: [(0, 0); REMEMBERED].into(),
            count: 0,
            resized: None,
        }
    }
}

impl Encoder {
    /// The other side keeps so many bytes.
    pub fn resize(&mut self, most: usize) {
        let most = most.min(DYNAMIC_TABLE_SIZE);
        let least = self.resized.map_or(most, |(least, _)| least.min(most));
        self.resized = Some((least, most));
        self.table.resize(most);
    }

    /// Begins a block: section 4.2.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some((least, last)) = self.resized.take() {
            if least < last {
                write_number(out, 0x20, 5, least);
            }
            write_number(out, 0x20, 5, last);
        }
    }

    /// `:status`
    pub fn status(&mut self, out: &mut Vec<u8>, status: u16) {
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let digits = [status / 100, status / 10 % 10, status % 10];
                let text = digits.map(|digit| b'0' + digit as u8);
                return self.field(out, b":status", &text);
            }
        };
        out.push(0x80 | index);
    }

    /// Any other field. Its name is written without capitals.
    pub fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let hash = hash(name, value);
        let place = hash as usize % REMEMBERED;
        let (known, number) = self.seen[place];
        if known == hash && number > 0 {
            let before = (self.count - number) as usize;
            let entry = self.table.get(before);
            if entry.is_some_and(|entry| is(entry, name, value)) {
                return write_number(out, 0x80, 7, STATIC_TABLE.len() + 1 + before);
            }
        }
        if is_secret(name) {
            return literal(out, 0x10, 4, name, value);
        }
        if known != hash || value.len() > SHORT || self.count == u32::MAX {
            self.seen[place] = (hash, 0);
            return literal(out, 0x00, 4, name, value);
        }
        literal(out, 0x40, 6, name, value);
        let name = name.to_ascii_lowercase();
        // The other side forgets what has no room as this one does.
        let added = self
            .table
            .add(TableEntry::new(FieldKind::Regular, &name, value));
        self.count += u32::from(added);
        self.seen[place] = (hash, if added { self.count } else { 0 });
    }
}

fn is(entry: &TableEntry, name: &[u8], value: &[u8]) -> bool {
    entry.value() == value && entry.name().eq_ignore_ascii_case(name)
}

/// What is never to stand in a table, where its neighbours could guess it: section 7.1.3.
fn is_secret(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"set-cookie")
}

/// One that does not differ in the case of the name. Two fields may share it.
fn hash(name: &[u8], value: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    const CASE: u64 = 0x2020_2020_2020_2020;
    let mix = |hash: u64, part: u64| (hash.rotate_left(23) ^ part).wrapping_mul(ODD);
    let mut hash = mix(name.len() as u64, value.len() as u64);
    for (text, case) in [(name, CASE), (value, 0)] {
        let (whole, rest) = text.as_chunks();
        for part in whole {
            hash = mix(hash, u64::from_le_bytes(*part) | case);
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = mix(hash, u64::from_le_bytes(last) | case);
    }
    hash ^ (hash >> 32)
}

/// A field of which at most the name is known: section 6.2.
fn literal(out: &mut Vec<u8>, first: u8, bits: u32, name: &[u8], value: &[u8]) {
    match static_index(name) {
        Some(index) => write_number(out, first, bits, index),
        None => {
            out.push(first);
            write_number(out, 0, 7, name.len());
            out.extend(name.iter().map(u8::to_ascii_lowercase));
        }
    }
    write_number(out, 0, 7, value.len());
    out.extend_from_slice(value);
}

/// The index of a name in the static table, RFC 7541 appendix A.
fn static_index(name: &[u8]) -> Option<usize> {
    const FIRST: usize = 7;
    let candidates = &STATIC_TABLE[FIRST..];
    let same = |(known, ..): &(&str, &str, FieldKind)| {
        known.len() == name.len() && known.as_bytes().eq_ignore_ascii_case(name)
    };
    candidates.iter().position(same).map(|at| at + FIRST + 1)
}
