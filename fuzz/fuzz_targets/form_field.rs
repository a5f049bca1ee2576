//! A field that is there once is found in any form, and a second one of the name makes both ambiguous.
#![no_main]

use std::borrow::Cow;

use libfuzzer_sys::fuzz_target;
use tollgate::identity::FieldValue;
use tollgate::identity::body::FieldName;
use tollgate::identity::form::find_field;
use tollgate::identity::mailbox::{Fold, MAX_ADDRESS_BYTES, Mailbox, parse};

fuzz_target!(|body: &[u8]| {
    let name = FieldName::new("email");
    let found = find_field(body, &name);
    if let FieldValue::Single(value) = &found {
        let text = std::str::from_utf8(value).expect("a value is text");
        let folded = parse(text, Fold::default());
        assert!(!matches!(folded, Mailbox::Address(whole) if whole.len() > MAX_ADDRESS_BYTES));
    }
    let more = [body, b"&e%6Dail=Ann%40example.com"].concat();
    let expected = match found {
        FieldValue::Absent => FieldValue::Single(Cow::Borrowed(&b"Ann@example.com"[..])),
        _ => FieldValue::Ambiguous,
    };
    assert_eq!(find_field(&more, &name), expected);
});
