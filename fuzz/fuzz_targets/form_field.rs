//! A field that is there once is found in any form, and a second one of the name makes both absent.
#![no_main]

use http::HeaderValue;
use libfuzzer_sys::fuzz_target;
use tollgate::identity::email::{Settings, find, normalise};
use tollgate::identity::form::{Found, field};

fuzz_target!(|body: &[u8]| {
    let settings = Settings {
        field: "email".into(),
        max_body: 8192,
    };
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    let found = find(&settings, Some(&form), body);
    if let Some(found) = &found {
        assert_eq!(normalise(found).as_ref(), Some(found));
    }
    let there = field(body, |name| name.eq_ignore_ascii_case(b"email")) != Found::Absent;
    assert!(there || found.is_none());
    let more = [body, b"&e%6Dail=Ann%40example.com"].concat();
    let expected = (!there && more.len() <= 8192).then_some("ann@example.com");
    assert_eq!(find(&settings, Some(&form), &more).as_deref(), expected);
});
