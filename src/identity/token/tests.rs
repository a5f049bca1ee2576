//! Spellings of one credential.

use super::*;

/// `expected` is the credential, or `?` for an ambiguous one.
#[track_caller]
fn check(source: &TokenSource, uri: &str, headers: &[(&str, &str)], expected: Option<&str>) {
    let mut head = Head {
        uri: uri.parse().unwrap(),
        ..Head::default()
    };
    for (name, value) in headers {
        // As it comes over the wire: one byte a character.
        let value: Vec<u8> = value.chars().map(|c| u8::try_from(c).unwrap()).collect();
        head.fields.add(name, &value);
    }
    let expected = match expected {
        None => FieldValue::Absent,
        Some("?") => FieldValue::Ambiguous,
        Some(text) => FieldValue::Single(text.as_bytes().into()),
    };
    assert_eq!(
        find_credential(source, &head),
        expected,
        "{source:?} {uri} {headers:?}"
    );
}

#[test]
fn headers() {
    let source = TokenSource::Header(HeaderName::from_static("x-api-key"));
    let long = "k".repeat(MAX_CREDENTIAL_BYTES);
    let check = |values: &[&str], expected| {
        let headers: Vec<_> = values.iter().map(|value| ("x-api-key", *value)).collect();
        check(&source, "/", &headers, expected);
    };
    check(&[], None);
    check(&[""], None);
    check(&[" k "], Some("k"));
    check(&["k", "k"], Some("?"));
    check(&["", "k"], Some("?"));
    check(&["k,x"], Some("k,x"));
    check(&[&long], Some(&long));
    check(&[&(long.clone() + "k")], Some("?"));
    // Blanks of Latin-1, which Node and Python pass on, and which their trim functions remove.
    for odd in [
        "k\u{a0}",
        "\u{a0}k",
        "\u{85}k",
        "k\u{85}",
        "\u{a0}\u{85}",
        "k, k",
        "k ,x",
        "k,",
        ",k",
    ] {
        check(&[odd], Some("?"));
    }
    // The same in UTF-8: one key.
    for blank in [
        "\u{c2}\u{a0}",
        "\u{c2}\u{85}",
        "\u{e2}\u{80}\u{83}",
        "\u{ef}\u{bb}\u{bf}",
        "\t",
    ] {
        check(&[&format!("{blank}k{blank}")], Some("k"));
    }
}

#[test]
fn bearers() {
    let check = |value, expected| {
        check(
            &TokenSource::Bearer,
            "/",
            &[("authorization", value)],
            expected,
        )
    };
    check("Bearer t", Some("t"));
    check("bEARER   t ", Some("t"));
    check("Bearer\tt", Some("t"));
    check("Bearer a1-._~+/|:==", Some("a1-._~+/|:=="));
    check("Bearer", None);
    check("Bearer ", None);
    check("Basic YTpi", None);
    for ambiguous in [
        "Bearer t x",
        "Bearer t\tx",
        "Bearer t,x",
        "Bearer t , x",
        "Bearer t;x",
        "Bearer \"t\"",
        "Bearer 't'",
        "Bearer t\\",
        "Bearer token=t",
        "Bearer =",
        "Bearert",
        "t",
        "Basic t",
        "Token t",
        "X t",
        "Bearer t\u{a0}",
        "Digest username=\"x\", nonce=\"y\"",
        "Basic YTpi x",
        "Basic YTpi=",
        "Basic YTpj\u{a0}",
    ] {
        check(ambiguous, Some("?"));
    }
}

#[test]
fn schemes() {
    let header = AUTHORIZATION;
    let source = TokenSource::Scheme {
        header: header.clone(),
        scheme: "Token".into(),
    };
    let with = |source, value, expected| check(source, "/", &[("authorization", value)], expected);
    with(&source, "token  t", Some("t"));
    with(&source, "Bearer t", Some("?"));
    with(&source, "Basic YTpi", None);
    with(&source, "Token", None);
    // Any scheme gives the same credential as an upstream that ignores the scheme.
    let source = TokenSource::Header(header);
    for value in ["Token t", "token  t", "x\tt", "t"] {
        with(&source, value, Some("t"));
    }
    with(&source, "Basic YTpi", Some("YTpi"));
    with(&source, "BASIC  YTpi ", Some("YTpi"));
    for ambiguous in [
        "Basic YTp-i",
        "Basic YTpi\u{a0}",
        "t x y",
        "Token token=\"t\"",
        "A t,u",
    ] {
        with(&source, ambiguous, Some("?"));
    }
    assert_eq!(source.normalise("Token  t "), "t");
    assert_eq!(source.normalise("t"), "t");
    assert_eq!(TokenSource::Bearer.normalise("Bearer t"), "t");
}

#[test]
fn queries() {
    let source = TokenSource::Query("key".into());
    let check = |uri: &str, expected| check(&source, uri, &[], expected);
    check("/", None);
    check("/?key=a%2Bb", Some("a+b"));
    check("/?key=", None);
    check("/?key=+k%20", Some("k"));
    check("/?KEY=k", Some("k"));
    check("/?key[]=k", Some("k"));
    check("/a;keys=1?key=k", Some("k"));
    for ambiguous in [
        "/?key=a&key=b",
        "/?key=a&+key=b",
        "/?key=a&key%00=b",
        "/?key=a&key[]=b",
        "/?key=a&Key=b",
        "/?key=a;b",
        "/?x=1;key=a",
        "/?key=a%00b",
        "/?key=a%0ab",
        "/?key=%zz",
        "/a;key=a&x=?key=b",
        "/a;key=a",
        "/a;key=?key=a",
        "/a;x/b;%6bey=a?key=b",
    ] {
        check(ambiguous, Some("?"));
    }
}

/// Some frameworks look for a query parameter in cookies too, or read the query in the charset of the body.
#[test]
fn queries_beside_other_fields() {
    let source = TokenSource::Query("key".into());
    for (uri, header, value, expected) in [
        ("/", "cookie", "key=k", Some("k")),
        ("/?key=", "cookie", "key=", None),
        ("/?key=k", "cookie", "a=b; key=k", Some("k")),
        ("/?key=k", "cookie", "a=b; key=", Some("k")),
        ("/?key=k", "cookie", "keys=l; xkey=l", Some("k")),
        ("/?key=k", "cookie", "key=l", Some("?")),
        ("/?key=k", "cookie", "a=b;KEY[]=l", Some("?")),
        ("/?key=k", "cookie", "k%65y=l", Some("?")),
        (
            "/?key=k",
            "content-type",
            "text/plain; charset=utf-8",
            Some("k"),
        ),
        (
            "/?key=k",
            "content-type",
            "text/plain; charset=utf-7",
            Some("?"),
        ),
        ("/?a=b", "content-type", "a/b;charset=utf-16;", Some("?")),
        ("/", "content-type", "text/plain; charset=utf-7", None),
    ] {
        check(&source, uri, &[(header, value)], expected);
    }
    check(&TokenSource::Bearer, "/?a=b", &[("cookie", "key=l")], None);
}

#[test]
fn masks() {
    let query = TokenSource::Query("key".into());
    let masked =
        |target: &'static str| mask_credentials(std::slice::from_ref(&query), target.into());
    assert_eq!(masked("/a?b=1&key=k&%6Bey=l"), "/a?b=1&key=***&%6Bey=***");
    assert_eq!(masked("/a?+key=k&x;key[]=l;m"), "/a?+key=***&x;key[]=***");
    assert_eq!(masked("/key?keys=1&key"), "/key?keys=1&key=***");
    assert_eq!(masked("/key"), "/key");
    assert_eq!(masked("/a;key=k&x=?key=l"), "/a;key=***&x=?key=***");
    assert_eq!(masked("/a;x;key=k/b"), "/a;x;key=***");
    assert_eq!(
        mask_credentials(&[TokenSource::Bearer], "/a?key=k".into()),
        "/a?key=k"
    );
}

#[test]
fn cookies() {
    let source = TokenSource::Cookie("sid".into());
    let all = |values: &[&str], expected| {
        let headers: Vec<_> = values.iter().map(|value| ("cookie", *value)).collect();
        check(&source, "/", &headers, expected);
    };
    let one = |value: &str, expected| all(&[value], expected);
    one("a=b; sid=x=y; c", Some("x=y"));
    all(&["a=b", "sid=\"x\""], Some("x"));
    one("xsid=y; sids=1; si=2", None);
    one("sid", None);
    for spelling in [
        "sid=t0ken",
        "sid=%740ken",
        "sid=t%30ken",
        "sid=\"t0ken\"",
        "sid=\"\\1640ken\"",
        "sid=\"t0\\ken\"",
        "sid=\"%740ken\"",
        "sid = t0ken ",
        "sid=t0ken\t",
        " sid=t0ken",
        "sid=%20t0ken",
        "SID=t0ken",
        "sid=j:\"t0ken\"",
        "sid=j:%22t0ken%22",
        "sid=j:%20%22t0ken%22",
        "sid=j:%20%20%20%22t0ken%22%20",
        "sid=%6a:%09\"t0ken\"",
        "sid=j:\"\\u00740ken\"",
        "sid[]=t0ken",
        "sid[x]=t0ken",
        "sid.x=t0ken",
        "[sid]=t0ken",
        "%73id=t0ken",
    ] {
        one(spelling, Some("t0ken"));
    }
    for spelling in [
        "sid=a+b",
        "sid=a%2Bb",
        "sid=a%20b",
        "sid=\"a b\"",
        "sid=\"a\\040b\"",
    ] {
        one(spelling, Some("a+b"));
    }
    one("sid=100%", Some("100%"));
    one("sid=t\\056", Some("t\\056"));
    for ambiguous in [
        "sid=x;sid=y",
        "sid;sid=t",
        "sid=t;sid",
        "sid=t; sid[]=u",
        "sid=t; SID=u",
        "sid=a b",
        "sid=j:{\"a\":1}",
        "sid=t x=1",
        "sid=t, x=1",
        "a=b, sid=t",
        "a=b, sid = t",
        "a sid=t",
        "sid=\"t",
        "sid=\"a;b\"",
        "sid=\"a\"b\"",
        "sid=%74%zz",
        "sid=%ff",
        "sid=a%00b",
        "sid=t\u{a0}",
        "sid=t; a=b sid=u",
    ] {
        one(ambiguous, Some("?"));
    }
    let source = TokenSource::Cookie("s_id".into());
    for name in ["s.id", "s id", "s_id", "s[id"] {
        check(&source, "/", &[("cookie", &format!("{name}=t"))], Some("t"));
        check(
            &source,
            "/",
            &[("cookie", &format!("s_id=t; {name}=u"))],
            Some("?"),
        );
    }
}
