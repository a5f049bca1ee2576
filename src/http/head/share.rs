//! Large heads of one connection that say the same, held once: compressed fields take a client a byte each, whatever
//! their length.

use super::Fields;
use super::layout::{FieldSpan, Text};

impl Fields {
    /// Fields whose places are in `head`, before they are settled in it: lines that stand in the head of `other` too are
    /// found there, and only the rest are copied. Nothing when that is more than `most` bytes, or when the longest of them
    /// is not there.
    pub fn sharing(&self, head: &[u8], other: &Fields, most: usize) -> Option<Fields> {
        let (own, theirs) = (self.own.as_ref()?, other.own.as_ref()?);
        let longest = own.places.iter().max_by_key(|place| place.value_length)?;
        let value = Text(head, &[]).value(longest);
        let mut alike = theirs
            .places
            .iter()
            .filter(|place| place.tag == longest.tag && place.value_length == longest.value_length);
        if !alike.any(|place| Text(&theirs.head, &[]).value(place) == value) {
            return None;
        }
        let mut shared = Fields::with_capacity(own.places.len());
        let into = shared.own();
        into.head = theirs.head.clone();
        let (text, there) = (Text(head, &[]), Text(&theirs.head, &[]));
        let others = &theirs.places;
        // Most heads say the same in the same order, so the next line is most likely the one after the last. One
        // line is compared for each.
        let mut next = 0;
        for place in &own.places {
            let alike = |at: &usize| {
                let other = &others[*at];
                other.tag == place.tag && other.value_length == place.value_length
            };
            let same = |at: &usize| {
                let other = &others[*at];
                text.value(place) == there.value(other) && text.name(place) == there.name(other)
            };
            let found = (next..others.len()).chain(0..next).find(alike);
            match found.filter(same) {
                Some(at) => {
                    next = at + 1;
                    into.marks |= place.tag.mark();
                    into.places.push(others[at]);
                }
                None => {
                    let (name, value) = (text.name(place), text.value(place));
                    let start = into.head.len() + into.added.len();
                    for part in [name, b": ", value, b"\r\n"] {
                        into.added.extend_from_slice(part);
                    }
                    if into.added.len() > most {
                        return None;
                    }
                    into.place(name, start, start + name.len() + 2, value.len());
                }
            }
        }
        into.added.shrink_to_fit();
        Some(shared)
    }

    /// Bytes of memory that these fields hold beside the head they stand in.
    pub fn weight(&self) -> usize {
        self.own.as_ref().map_or(0, |own| {
            own.added.capacity() + own.places.len() * size_of::<FieldSpan>()
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// What is not settled yet, and in what it is to be.
    fn head(fields: &[(&str, &str)]) -> (Fields, Bytes) {
        let (mut text, mut head) = (Vec::new(), Fields::with_capacity(4));
        text.extend_from_slice(b"/path");
        for (name, value) in fields {
            let start = text.len();
            text.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            let value_at = start + name.len() + 2;
            head.place(name.as_bytes(), start, value_at, value.len());
        }
        (head, Bytes::from(text))
    }

    fn lines(fields: &Fields) -> String {
        let mut lines = Vec::new();
        fields.write_lines(&mut lines);
        String::from_utf8(lines).unwrap()
    }

    #[test]
    fn what_is_shared_says_the_same_and_holds_only_what_differs() {
        let (long, other) = ("v".repeat(4000), "w".repeat(4000));
        let (mut first, text) = head(&[("host", "a"), ("x", &long), ("cookie", "c=1"), ("y", "1")]);
        first.settle(text);
        let cases: [(&[(&str, &str)], usize); 5] = [
            (
                &[("host", "a"), ("x", &long), ("cookie", "c=1"), ("y", "1")],
                0,
            ),
            (&[("y", "1"), ("x", &long), ("x", &long), ("host", "a")], 0),
            (&[("host", "a"), ("x", &long), ("y", "2")], "y: 2\r\n".len()),
            (&[("x", &long), ("X", &long)], 4005),
            (&[("x", &other), ("x", &long)], 4005),
        ];
        for (fields, apart) in cases {
            let (mut plain, text) = head(fields);
            let shared = plain.sharing(&text, &first, 5000).unwrap();
            plain.settle(text);
            assert_eq!(lines(&shared), lines(&plain));
            assert_eq!(shared.first("x"), plain.first("x"));
            assert_eq!(shared.contains("host"), plain.contains("host"));
            let places = fields.len() * size_of::<FieldSpan>();
            assert_eq!(shared.weight(), apart + places);
            // What the gateway adds comes behind it.
            let (mut shared, mut plain) = (shared, plain);
            for fields in [&mut shared, &mut plain] {
                fields.remove("x");
                fields.add("via", b"1");
            }
            assert_eq!(lines(&shared), lines(&plain));
        }
        let (apart, text) = head(&[("host", "a"), ("x", &other)]);
        assert!(apart.sharing(&text, &first, 5000).is_none());
        let (more, text) = head(&[("x", &other), ("x", &long)]);
        assert!(more.sharing(&text, &first, 4000).is_none());
        assert!(more.sharing(&text, &Fields::default(), 5000).is_none());
    }
}
