//! What is found in a JSON body is what a whole JSON parser finds at that path.
#![no_main]

use http::HeaderValue;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tollgate::identity::email::{Settings, find, normalise};

fuzz_target!(|body: &[u8]| {
    let settings = Settings {
        field: "user.email".into(),
        max_body: 4096,
    };
    let json = HeaderValue::from_static("application/json");
    let Some(found) = find(&settings, Some(&json), body) else {
        return;
    };
    assert_eq!(normalise(&found).as_ref(), Some(&found));

    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let whole: Value = serde_json::from_slice(body).expect("found only in JSON");
    let at = ["user", "email"].iter().try_fold(&whole, |value, name| {
        value
            .as_object()?
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, v)| v)
    });
    let text = at.and_then(Value::as_str).expect("a string at the path");
    assert_eq!(normalise(text), Some(found));
});
