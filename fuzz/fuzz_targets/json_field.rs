//! What is found in a JSON body is what a whole JSON parser finds at that path, if it reads the body.
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
    // What stands beside the path is skipped and not judged: bad UTF-8 there, or a number without end.
    let Ok(whole) = serde_json::from_slice::<Value>(body) else {
        return;
    };
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
