//! What is found in a JSON body is what a whole JSON parser finds at that path, if it reads the body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tollgate::identity::FieldValue;
use tollgate::identity::body::{BodyField, find_field};

fuzz_target!(|body: &[u8]| {
    let types = std::iter::once(&b"application/json"[..]);
    let found = find_field(&BodyField::new("user.email"), types, body);
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    // What stands beside the path is skipped and not judged: bad UTF-8 there, or a number without end.
    let Ok(whole) = serde_json::from_slice::<Value>(body) else {
        return;
    };
    let plain = ["user", "email"]
        .iter()
        .try_fold(&whole, |value, name| value.get(name));
    match (plain, found) {
        (Some(Value::String(text)), FieldValue::Single(value)) => assert_eq!(text.as_bytes(), &*value),
        (Some(Value::String(text)), FieldValue::Absent) => panic!("{text} was not found"),
        _ => {}
    }
});
