//! The normal form of a path is stable, has no dot segment, empty segment or parameter, and escaping
//! what need not be escaped does not change it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::route::normalise;

fuzz_target!(|path: &str| {
    let Ok(normal) = normalise(path) else { return };
    assert!(normal.starts_with('/'));
    assert!(normal.bytes().all(|byte| byte.is_ascii_graphic()));
    assert!(!normal.contains("//") && !normal.contains(';') && !normal.contains('\\'));
    assert!(
        !normal
            .split('/')
            .any(|segment| segment == "." || segment == "..")
    );
    assert_eq!(normalise(&normal).as_deref(), Ok(&*normal));

    // Every byte spelled as an escape, but for those of escapes and the first slash.
    let mut spelled = String::from("/");
    let mut rest = path[1..].bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            spelled.push('%');
            spelled.extend(rest.by_ref().take(2).map(char::from));
        } else {
            spelled.push_str(&format!("%{byte:02x}"));
        }
    }
    assert_eq!(normalise(&spelled).as_deref(), Ok(&*normal));
});
