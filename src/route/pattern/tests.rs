//! Patterns, good and bad.

use http::Method;

use super::*;

#[track_caller]
fn check(text: &str, expected: Result<&str, (usize, &str)>) {
    let got = Pattern::parse(text);
    let shown = got.as_ref().map(ToString::to_string);
    let expected = expected
        .map(str::to_owned)
        .map_err(|(offset, word)| (offset, word.to_owned()));
    let shown = shown.map_err(|error| {
        let debug = format!("{:?}", error.kind);
        (
            error.offset,
            debug.split('(').next().unwrap_or_default().to_owned(),
        )
    });
    assert_eq!(shown, expected, "{text:?}");
    if let Ok(pattern) = got {
        assert_eq!(
            Pattern::parse(&pattern.to_string()),
            Ok(pattern),
            "{text:?} reads back"
        );
    }
}

#[test]
fn patterns() {
    check("/", Ok("/"));
    check("/api/**", Ok("/api/**"));
    check("/**", Ok("/**"));
    check("GET /api/{id}/*", Ok("GET /api/{id}/*"));
    check(" POST,GET   /login ", Ok("GET,POST /login"));
    check("PURGE /x", Ok("PURGE /x"));
    check("/login/", Ok("/login"));
    check("/a%20b/%C3%A9", Ok("/a%20b/%C3%A9"));
    check("/.well-known/x", Ok("/.well-known/x"));
    check("M-SEARCH /u/@me:1", Ok("M-SEARCH /u/@me:1"));
}

#[test]
fn mistakes_and_where() {
    check("", Err((0, "Empty")));
    check("  ", Err((0, "Empty")));
    check("get /x", Err((0, "LowerCase")));
    check("GET,post /x", Err((4, "LowerCase")));
    check("GET, POST /x", Err((4, "UnknownMethod")));
    check("GET,GET /x", Err((4, "RepeatedMethod")));
    check("1 /x", Err((0, "UnknownMethod")));
    check("GET", Err((3, "NoPath")));
    check(" GET ", Err((4, "NoPath")));
    check("GET/x", Err((0, "NoPath")));
    check("api/users", Err((0, "NoSlash")));
    check("GET api", Err((4, "NoSlash")));
    check("GET POST /x", Err((4, "NoSlash")));
    check("/a b", Err((2, "Space")));
    check("GET /a /b", Err((6, "Space")));
    check("/a?b=1", Err((2, "Query")));
    check("/**/a", Err((1, "DoubleStarInside")));
    check("GET /a/**/", Err((7, "DoubleStarInside")));
    check("/a*", Err((2, "PartialStar")));
    check("/a/***", Err((3, "PartialStar")));
    check("/a/{", Err((3, "BadName")));
    check("/a/x{id}", Err((4, "BadName")));
    check("/a/{}", Err((3, "BadName")));
    check("/a/{é}", Err((3, "BadName")));
    check("//a", Err((1, "NotNormal")));
    check("/a/../b", Err((1, "NotNormal")));
    check("/%61", Err((1, "NotNormal")));
    check("/a/%c3", Err((4, "NotNormal")));
    check("/é", Err((1, "NotNormal")));
    check("/{id}/a;b", Err((7, "NotNormal")));
    check("/a%", Err((0, "Path")));
    check("/a%00", Err((0, "Path")));
    check(
        &"/a".repeat(MAX_SEGMENTS + 1),
        Err((1 + 2 * MAX_SEGMENTS, "TooDeep")),
    );
}

#[test]
fn not_normal_says_what_to_write() {
    let message = |text| Pattern::parse(text).map_err(|e| e.to_string()).unwrap_err();
    assert_eq!(
        message("/é/{id}/**"),
        "requests are matched in normal form; write `/%C3%A9/{id}/**`"
    );
    assert_eq!(message("get /x"), "methods are upper case: `GET`");
}

#[test]
fn methods() {
    let set = |text| MethodSet::parse(text).unwrap();
    assert!(set("GET").contains(&Method::HEAD));
    assert!(!set("GET").contains(&Method::POST));
    assert!(!set("HEAD").contains(&Method::GET));
    assert!(MethodSet::any().contains(&Method::from_bytes(b"purge").unwrap()));
    assert!(set("GET,PURGE").contains(&Method::from_bytes(b"PURGE").unwrap()));
    assert_eq!(
        set("POST,GET").iter().collect::<Vec<_>>(),
        ["GET", "HEAD", "POST"]
    );
    assert!(set("GET,POST").has_conflict_with(&set("POST")));
    assert!(!set("GET").has_conflict_with(&set("HEAD")));
    assert!(!set("GET").has_conflict_with(&MethodSet::any()));
    assert!(MethodSet::any().has_conflict_with(&MethodSet::any()));
}

#[test]
fn hosts() {
    let read = |text: &str| HostPattern::parse(text).map(|host| host.to_string());
    let check = |text: &str, shown: &str| assert_eq!(read(text), Ok(shown.into()), "{text}");
    check("API.example.com.", "api.example.com");
    check("*.Example.com", "*.example.com");
    check("*", "*");
    check("[::1]", "[::1]");
    check("[0:0::1]", "[::1]");
    check("10.0.0.1", "10.0.0.1");
    for (text, offset) in [
        ("", 0),
        ("*.", 2),
        ("a..b", 2),
        ("a.*", 2),
        ("http://a", 4),
        ("a:80", 1),
        ("é.com", 0),
        ("[::1", 0),
        ("*.[::1]", 2),
        ("*.10.0.0.1", 2),
        ("127.1", 0),
        ("[::1%eth0]", 0),
        (".", 0),
    ] {
        assert_eq!(read(text).map_err(|e| e.offset), Err(offset), "{text:?}");
    }
}

#[test]
fn host_matching() {
    let takes = |pattern: &str, host: &str| {
        let host = crate::route::canonical_host::canonical_host(host);
        HostPattern::parse(pattern).unwrap().takes(host.as_deref())
    };
    for host in [
        "api.example.com",
        "API.Example.COM",
        "api.example.com:8080",
        "api.example.com.",
    ] {
        assert!(takes("api.example.com", host), "{host}");
        assert!(takes("*.example.com", host), "{host}");
        assert!(takes("*", host), "{host}");
    }
    assert!(takes("*.example.com", "a.b.example.com"));
    assert!(takes("[::1]", "[::1]:80"));
    assert!(takes("[0::1]", "[::0:1]"));
    for host in [
        "example.com",
        ".example.com",
        "xexample.com",
        "",
        ":80",
        "a.example.com,b",
    ] {
        assert!(!takes("*.example.com", host), "{host}");
    }
    assert!(!takes("a.com", &"a".repeat(300)));
}
