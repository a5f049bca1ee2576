//! Lets large heads of one connection share the bytes of equal fields.
//!
//! With compressed fields a client can repeat a long field for a byte or two. Without sharing the gateway would hold it
//! once for each open request.

use super::Fields;
use super::layout::{FieldSpan, Text};

impl Fields {
    /// A copy of these fields that refers to the bytes of `other` for fields that `other` has too. The remaining fields
    /// are copied, and so are a few equal ones, because the search is bounded.
    ///
    /// The spans of `self` must refer to `received`, which is not attached yet. Returns `None` if more than
    /// `max_copied_bytes` would be copied, or if `other` does not have the longest field. Also `None` if one of the two
    /// has no received fields.
    pub fn share_with(
        &self,
        received: &[u8],
        other: &Fields,
        max_copied_bytes: usize,
    ) -> Option<Fields> {
        let (own, theirs) = (self.own.as_ref()?, other.own.as_ref()?);
        let own_text = Text::received(received);
        let their_text = Text::received(&theirs.received);
        let longest_span = own.spans.iter().max_by_key(|span| span.value_length)?;
        let longest_value = own_text.value(longest_span);
        let mut candidates = theirs.spans.iter().filter(|span| {
            span.tag == longest_span.tag && span.value_length == longest_span.value_length
        });
        if !candidates.any(|span| their_text.value(span) == longest_value) {
            return None;
        }
        let mut shared = Fields::with_capacity(own.spans.len());
        let target = shared.own_mut();
        target.received = theirs.received.clone();
        let their_spans = &theirs.spans;
        // Most heads have the same fields in the same order, so the search begins after the last match. Only the first
        // field with the same tag and length is compared, to bound the work.
        let mut search_start = 0;
        for span in &own.spans {
            let has_same_shape = |index: &usize| {
                let their_span = &their_spans[*index];
                their_span.tag == span.tag && their_span.value_length == span.value_length
            };
            let is_equal = |index: &usize| {
                let their_span = &their_spans[*index];
                own_text.value(span) == their_text.value(their_span)
                    && own_text.name(span) == their_text.name(their_span)
            };
            let candidate = (search_start..their_spans.len())
                .chain(0..search_start)
                .find(has_same_shape);
            match candidate.filter(is_equal) {
                Some(index) => {
                    search_start = index + 1;
                    target.filter |= span.tag.filter_bit();
                    target.spans.push(their_spans[index]);
                }
                None => {
                    let (name, value) = (own_text.name(span), own_text.value(span));
                    let start = target.received.len() + target.added.len();
                    for part in [name, b": ", value, b"\r\n"] {
                        target.added.extend_from_slice(part);
                    }
                    if target.added.len() > max_copied_bytes {
                        return None;
                    }
                    target.add_span(name, start, start + name.len() + 2, value.len());
                }
            }
        }
        target.added.shrink_to_fit();
        Some(shared)
    }

    /// Bytes of memory that these fields hold alone: added lines and positions, without received and shared bytes.
    pub fn memory_bytes(&self) -> usize {
        self.own.as_ref().map_or(0, |own| {
            own.added.capacity() + own.spans.len() * size_of::<FieldSpan>()
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Fields without their text, and the text.
    fn head(fields: &[(&str, &str)]) -> (Fields, Bytes) {
        let (mut text, mut head) = (Vec::new(), Fields::with_capacity(4));
        text.extend_from_slice(b"/path");
        for (name, value) in fields {
            let start = text.len();
            text.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            let value_start = start + name.len() + 2;
            head.add_span(name.as_bytes(), start, value_start, value.len());
        }
        (head, Bytes::from(text))
    }

    fn lines(fields: &Fields) -> String {
        let mut lines = Vec::new();
        fields.write_lines(&mut lines);
        String::from_utf8(lines).unwrap()
    }

    #[test]
    fn shared_fields_are_the_same_and_hold_only_what_differs() {
        let (long, other) = ("v".repeat(4000), "w".repeat(4000));
        let (mut first, text) = head(&[("host", "a"), ("x", &long), ("cookie", "c=1"), ("y", "1")]);
        first.attach_text(text);
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
            let shared = plain.share_with(&text, &first, 5000).unwrap();
            plain.attach_text(text);
            assert_eq!(lines(&shared), lines(&plain));
            assert_eq!(shared.first("x"), plain.first("x"));
            assert_eq!(shared.contains("host"), plain.contains("host"));
            let spans = fields.len() * size_of::<FieldSpan>();
            assert_eq!(shared.memory_bytes(), apart + spans);
            // Fields that the gateway adds come behind these.
            let (mut shared, mut plain) = (shared, plain);
            for fields in [&mut shared, &mut plain] {
                fields.remove("x");
                fields.add("via", b"1");
            }
            assert_eq!(lines(&shared), lines(&plain));
        }
        let (apart, text) = head(&[("host", "a"), ("x", &other)]);
        assert!(apart.share_with(&text, &first, 5000).is_none());
        let (more, text) = head(&[("x", &other), ("x", &long)]);
        assert!(more.share_with(&text, &first, 4000).is_none());
        assert!(more.share_with(&text, &Fields::default(), 5000).is_none());
    }
}
