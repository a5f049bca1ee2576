//! Normal forms of paths, and the other readings of them.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(path: &str, expected: Result<&str, PathError>) {
    let got = normalise(path);
    assert_eq!(got.as_deref().map_err(|e| *e), expected, "{path:?}");
    if let (Ok(normal), Ok(expected)) = (&got, expected) {
        assert_eq!(normalise(normal).as_deref(), Ok(expected), "twice {path:?}");
        assert_eq!(
            matches!(normal, Cow::Borrowed(_)),
            path == expected,
            "borrows {path:?}"
        );
    }
}

#[test]
fn paths_behind_an_authority() {
    let check = |path: &str, expected: Option<&str>| {
        assert_eq!(path_after_authority(path), expected, "{path}");
    };
    check("//x/login", Some("/login"));
    check("///x:80//login", Some("//login"));
    check("/\\x\\login", Some("\\login"));
    check("//x", None);
    check("/x//login", None);
    check("/", None);
}

#[test]
fn normal_paths_are_borrowed() {
    for path in [
        "/",
        "/a",
        "/a/",
        "/a/b.c",
        "/.well-known/x",
        "/...",
        "/a/..b",
        "/%C3%A9",
        "/a%20b",
        "/u/@me",
        "/a:b",
        "/%252F",
    ] {
        check(path, Ok(path));
    }
}

#[test]
fn spellings_of_one_path() {
    for path in [
        "//api/users",
        "/api//users",
        "/api/./users",
        "/api/x/../users",
        "/api/%75sers",
        "/%61pi/users",
        "/api%2Fusers",
        "/api%2fusers",
        "/api\\users",
        "/api%5Cusers",
        "/api/%2e/users",
        "/api/x/%2E%2e/users",
        "/api/x/.%2e/users",
        "/../api/users",
        "/api/../../api/users",
        "/api;v=1/users",
        "/api/users;jsessionid=1",
        "/;x/api/users",
        "/api/users%3Bx",
        "/api/x/..%2Fusers",
        "/api/x\\..\\users",
    ] {
        check(path, Ok("/api/users"));
    }
}

#[test]
fn escapes() {
    check("/%e9", Ok("/%E9"));
    check("/é", Ok("/%C3%A9"));
    check("/a b\"{}", Ok("/a%20b%22%7B%7D"));
    check("/%40me", Ok("/@me"));
    check("/%2525", Ok("/%2525"));
    check("/%25%32%46", Ok("/%252F"));
    check("/a?b", Ok("/a%3Fb"));
    check("/a%3fb", Ok("/a%3Fb"));
    check("/a/..", Ok("/"));
    check("/a/b/..", Ok("/a/"));
    check("/a/.", Ok("/a/"));
    check("/a;x", Ok("/a"));
}

#[test]
fn refused() {
    for path in ["", "a", "*", "%2Fa", "\\a"] {
        check(path, Err(PathError::NotAbsolute));
    }
    for path in ["/%00", "/a%0d%0aX:", "/%7f", "/\u{1}", "/;%00", "/a\tb"] {
        check(path, Err(PathError::ControlCharacter));
    }
    for path in ["/%", "/%1", "/%g0", "/%0g", "/a%", "/%%41", "/%é", "/;%"] {
        check(path, Err(PathError::InvalidEscape));
    }
    for path in [
        "/a/..;/b",
        "/..;x",
        "/.;/b",
        "/%2e.;x/b",
        "/..%3Bx/b",
        "/a/%2e%3b/b",
    ] {
        check(path, Err(PathError::AmbiguousDots));
    }
}

#[test]
fn literal() {
    let check = |path: &str, expected: &[&str]| {
        let got = literal_readings(path, false).unwrap();
        let normal = normalise(path).unwrap();
        let others: Vec<_> = got.iter().filter(|reading| **reading != normal).collect();
        assert_eq!(others, expected, "{path}");
    };
    check("/a/;x", &["/a/%3Bx"]);
    check("/a/%3bx=1;y/b", &["/a/%3Bx=1%3By/b", "/a/", "/a/%3Bx=1"]);
    check("/a/b;x/c\\", &["/a/b%3Bx/c%5C", "/a/b"]);
    check("/a;/b", &["/a%3B/b", "/a"]);
    check("/a/%2f", &["/a/%2F", "/a///"]);
    check("/a/x%2Fy", &["/a/x%2Fy"]);
    check("/a/../b/.", &["/a/../b/.", "/a/b/"]);
    check("/a/;x/..", &["/a/%3Bx/..", "/a/%3Bx/", "/a/"]);
    check("/a/x%2F..", &["/a/x%2F..", "/a/x/..", "/a/x/"]);
    check("/a/..", &["/a/..", "/a/"]);
    check("/../a", &["/../a"]);
    check("/a/../../b", &["/a/../../b", "/a/b"]);
    check("/a/%2e%2E", &["/a/%25%2E%25%2E", "/a/..", "/a/"]);
    check("/a//../b", &["/a//../b", "/a/../b", "/a//b", "/a/b"]);
    check("/a//b", &["/a//b"]);
    check("//a", &["//a"]);
    check("/a/", &[]);
    check("/a//", &["/a///"]);
    check("/a/%62%C3%A9", &["/a/%25%62%C3%A9"]);
    let each = ["/a//%25%2E%25%7E", "/a//.~", "/a/%25%2E%25%7E"];
    check("/a//%2e%7E", &each);
    check("/caf%c3%a9/x", &[]);
}

#[test]
fn encoded_slashes() {
    let check = |path: &str, expected: Option<&str>| {
        assert_eq!(with_encoded_slashes(path).as_deref(), expected, "{path}");
    };
    check("/a%2fb", Some("/a%2Fb"));
    check("//p/%67%2Fb%2F/../q%2F//x;y", Some("/p/q%2F/x"));
    check("/a%252Fb", None);
    check("/a/b", None);
    for path in [
        "/a%2F..",
        "/a%2F%2e%2Fb",
        "/%2e%2e%2fa",
        "/a%2F\\b",
        "/a%2F%5cb",
        "/%2F%00",
    ] {
        check(path, None);
    }
}

proptest! {
    /// No reading is left out that differs from the normal form.
    #[test]
    fn literal_readings_are_all_there(path in "/[a/.;%2eEfF5cC3bB6\\\\]{0,16}") {
        let Ok(normal) = normalise(&path) else { return Ok(()) };
        let given = literal_readings(&path, false).unwrap();
        for bits in 0..24_u8 {
            let kept = KeptSpellings {
                delimiters: true,
                encoded_slashes: bits & 1 > 0,
                empty_segments: bits & 2 > 0,
                plain_escapes: bits & 4 > 0,
                dots: [DotSegments::Kept, DotSegments::Dropped, DotSegments::Resolved][usize::from(bits / 8)],
            };
            let reading = rewrite(path.as_bytes(), kept).ok();
            let is_listed = |reading: &String| *reading == *normal || given.contains(reading);
            prop_assert!(reading.as_ref().is_none_or(is_listed), "{} {:?}", path, reading);
        }
    }

    #[test]
    fn normal_form_is_stable(path in "/[a/.;%2eEfF5cC\\\\é \u{0}]{0,24}") {
        if let Ok(once) = normalise(&path) {
            prop_assert!(once.starts_with('/'));
            prop_assert!(!once.contains("//") && !once.contains(';') && !once.contains('\\'));
            prop_assert!(!once.split('/').any(|segment| segment == "." || segment == ".."));
            let twice = normalise(&once);
            prop_assert_eq!(twice.as_deref(), Ok(&*once));
        }
    }
}
