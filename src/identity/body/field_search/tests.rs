//! Fields of bodies, as upstreams were seen to read them.

use super::*;

/// `expected` is the value, or `?` for an ambiguous one.
#[track_caller]
fn check(field: &str, content_type: &str, body: impl AsRef<[u8]>, expected: Option<&str>) {
    let types = (!content_type.is_empty()).then_some(content_type.as_bytes());
    let body = body.as_ref();
    let actual = find_field(&BodyField::new(field), types.into_iter(), body);
    let expected = match expected {
        None => FieldValue::Absent,
        Some("?") => FieldValue::Ambiguous,
        Some(text) => FieldValue::Single(text.as_bytes().into()),
    };
    let shown = String::from_utf8_lossy(body);
    assert_eq!(actual, expected, "{field} {content_type:?} {shown}");
}

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json; charset=utf-8";

#[test]
fn json_bodies() {
    let json = |field: &str, body: &str, expected| check(field, JSON, body, expected);
    json("email", "", None);
    json("email", "{}", None);
    json("email", "1", None);
    json("email", r#"{"email": " a@b "}"#, Some(" a@b "));
    json(
        "email",
        r#"{"a": [1, {"email": "x@y"}], "email": "a@b", "c": null}"#,
        Some("a@b"),
    );
    json("email", "\u{feff} {\"email\":\"a@b\"}", Some("a@b"));
    json(
        "user.email",
        r#"{"user": {"id": 1, "email": "a@b"}}"#,
        Some("a@b"),
    );
    json("user.email", r#"{"user": "a@b", "email": "a@b"}"#, None);
    json("user.email", r#"{"email": {"user": "a@b"}}"#, None);
    // Spellings of a name that some reader takes.
    for name in [
        "email",
        "Email",
        "\\u0065mail",
        "e_mail",
        "email\\u0000x",
        " email",
        "email[]",
    ] {
        json("email", &format!(r#"{{"{name}": "a@b"}}"#), Some("a@b"));
        json(
            "email",
            &format!(r#"{{"{name}": "a@b", "email": "a@b"}}"#),
            Some("?"),
        );
        json(
            "email",
            &format!(r#"{{"email": null, "{name}": "a@b"}}"#),
            Some("?"),
        );
    }
    json("user.email", r#"{"user.email": "a@b"}"#, Some("a@b"));
    json(
        "user.email",
        r#"{"user[email]": "x@y", "user": {"email": "a@b"}}"#,
        Some("?"),
    );
    json(
        "user.email",
        r#"{"user": {"email": "a@b"}, "user": {}}"#,
        Some("?"),
    );
    // Nested and array forms count as the name.
    for value in [
        r#"["a@b"]"#,
        r#"[["a@b"]]"#,
        r#"{"x": "a@b"}"#,
        r#"{"$in": ["a@b", null]}"#,
    ] {
        json("email", &format!(r#"{{"email": {value}}}"#), Some("a@b"));
    }
    json("email", r#"[{"email": "a@b"}]"#, Some("a@b"));
    json("user.email", r#"{"user": [{"email": "a@b"}]}"#, Some("a@b"));
    for twice in [
        r#"{"email": ["a@b", "c@d"]}"#,
        r#"{"email": {"x": "a@b", "y": "c@d"}}"#,
        r#"{"email": {"x": "a@b", "x": "c@d"}}"#,
        r#"[{"email": "a@b"}, {"email": "c@d"}]"#,
    ] {
        json("email", twice, Some("?"));
    }
    for (value, text) in [("1", "1"), ("1.0", "1"), ("-1", "-1"), ("true", "true")] {
        json("id", &format!(r#"{{"id": {value}}}"#), Some(text));
    }
    json("email", r#"{"email": null}"#, None);
    json("email", r#"{"email": []}"#, None);
}

/// What a lenient reader takes and a strict one does not.
#[test]
fn what_is_not_json() {
    for body in [
        "{",
        r#"{"email":"a@b""#,
        r#"{"email":"a@b"} x"#,
        r#"{"email":"a@b"}{"email":"c@d"}"#,
        "{'email':'a@b'}",
        r#"{email:"a@b"}"#,
        r#"{"email":"a@b",}"#,
        r#"{"email":"a@b","x":NaN}"#,
        r#"/* */{"email":"a@b"}"#,
        "// x\n{\"email\":\"a@b\"}",
        "\u{feff}\u{feff}{\"email\":\"a@b\"}",
        "\u{b}{\"email\":\"a@b\"}",
        "{\"email\":\"a\n@b\"}",
        r#"{"em\ud800ail":"a@b"}"#,
        r#"{"email":"\ud800@b"}"#,
        "email=a@b",
    ] {
        check("email", JSON, body, Some("?"));
    }
    for body in [
        "{",
        r#"{"email":"a@b"} x"#,
        "{'email':'a@b'}",
        "/**/{\"email\":\"a@b\"}",
        "[x",
    ] {
        for content_type in ["", "text/plain", FORM] {
            check("email", content_type, body, Some("?"));
        }
    }
    let deep = format!("{}{}", r#"{"x":"#.repeat(200), "}".repeat(200));
    check("x.x", JSON, deep, Some("?"));
    // What stands beside the path is skipped and not judged, as by lenient upstreams.
    let body = r#"{"x": "\ud800", "email": "a@b", "y": 1e999}"#;
    check("email", JSON, body, Some("a@b"));
    let utf16 = |text: &str| {
        text.encode_utf16()
            .flat_map(u16::to_be_bytes)
            .collect::<Vec<u8>>()
    };
    for content_type in [JSON, "", FORM, "application/json; charset=utf-16"] {
        check(
            "email",
            content_type,
            utf16(r#"{"email":"a@b"}"#),
            Some("?"),
        );
        check(
            "email",
            content_type,
            utf16("\u{feff}{\"email\":\"a@b\"}"),
            Some("?"),
        );
    }
}

#[test]
fn form_bodies() {
    let form = |body: &str, expected| check("email", FORM, body, expected);
    form("a=b&email=Ann%40Example.com", Some("Ann@Example.com"));
    form("email=a@b&email_confirmation=a@b", Some("a@b"));
    form("email=a@b&e%6dail=c@d", Some("?"));
    form("email=r1@x&+email=anna@x", Some("?"));
    form("email=%ff@b", Some("?"));
    form("_charset_=UTF-8&email=a@b", Some("a@b"));
    form("_charset_=utf-7&email=a@b", Some("?"));
    form("email=a@b&_charset_=utf-8&_charset_=utf-8", Some("?"));
    for (field, body) in [
        ("user.email", "user[email]=a@b"),
        ("user.email", "user%5Bemail%5D=a@b"),
        ("user.email", "user.email=a@b"),
        ("user_email", "user.email=a@b"),
        ("user.email", "user[][email]=a@b"),
        ("user.email", "user[0][email][]=a@b"),
    ] {
        check(field, FORM, body, Some("a@b"));
    }
}

/// A reader that does not look at the type, or takes another, sees no other value.
#[test]
fn readers_that_do_not_look_at_the_type() {
    let smuggled = r#"{"email":"anna@x","x":"&email=r1@x"}"#;
    for content_type in [FORM, "", "text/plain", "application/octet-stream"] {
        check("email", content_type, r#"{"email":"a@b"}"#, Some("a@b"));
        check("email", content_type, "email=a@b", Some("a@b"));
        check("email", content_type, smuggled, Some("?"));
        check(
            "email",
            content_type,
            format!(" \t\r\n{smuggled}"),
            Some("?"),
        );
        check(
            "email",
            content_type,
            r#"[{"email":"a@b"}]&email=c@d"#,
            Some("?"),
        );
        check("email", content_type, "[email]=a@b", Some("?"));
        let parts = "--x\r\nContent-Disposition: form-data; name=\"email\"\r\n\r\na@b\r\n--x--";
        check("email", content_type, parts, Some("?"));
    }
    check("email", JSON, smuggled, Some("?"));
    check(
        "email",
        JSON,
        r#"{"email":"anna@x","x":"&email"}"#,
        Some("anna@x"),
    );
    check("email", "text/xml", "<email>a@b</email>", None);
    let hidden = "<!--&email=r1@x&--><login><email>anna@x</email></login>";
    for content_type in [
        "application/xml",
        "text/xml",
        "application/soap+xml; charset=utf-8",
        "image/png",
    ] {
        check("email", content_type, hidden, Some("?"));
        check("email", content_type, r#"{"email":"a@b"}"#, Some("a@b"));
    }
    check("email", "image/png", [0x89, b'P', b'N', b'G', 0xff], None);
    check(
        "email",
        "multipart/form-data; boundary=x",
        smuggled,
        Some("?"),
    );
    check("email", "multipart/form-data", "email=a@b", Some("?"));
    check("email", "application/json, text/plain", smuggled, Some("?"));
}

/// One part, by its header fields and its value.
fn part(headers: &str, value: &str) -> String {
    format!("--x\r\n{headers}\r\n\r\n{value}\r\n")
}

fn multipart(body: impl AsRef<[u8]>, expected: Option<&str>) {
    check("email", "multipart/form-data; boundary=x", body, expected);
}

const NAMED: &str = "Content-Disposition: form-data; name=\"email\"";

#[test]
fn multipart_bodies() {
    let other = part(
        "Content-Disposition: form-data; name=\"a\"; filename=\"a;b.png\"\r\nContent-Type: image/png",
        "\0\r\n--y",
    );
    let named = part(NAMED, "a@b");
    multipart(format!("{other}{named}--x--\r\n"), Some("a@b"));
    multipart(format!("{named}{other}--x--"), Some("a@b"));
    multipart(format!("{other}--x--\r\n"), None);
    multipart("--x--\r\n", None);
    let quoted = part(
        "Content-Disposition: form-data; name=\"a\"; filename=\"a\\\"b\\\".png\"",
        "x",
    );
    multipart(format!("{quoted}{named}--x--"), Some("a@b"));
    let latin = part(
        "Content-Disposition: form-data; name=\"a\"; filename=\"content-type.csv\"\r\nContent-Type: text/csv; charset=windows-1250",
        "x",
    );
    let charset = part(
        "Content-Disposition: form-data; name=\"_charset_\"",
        "UTF-8",
    );
    multipart(format!("{latin}{charset}{named}--x--"), Some("a@b"));
    for headers in [
        "content-disposition:FORM-DATA;NAME=\"email\"",
        "Content-Disposition: form-data; name=email",
        "Content-Disposition: form-data; name=\"email[]\"",
        "Content-Disposition: form-data; name=\" Email\"",
        "Content-Type: text/plain; charset=UTF-8\r\nContent-Disposition: form-data; name=\"email\"",
        "Content-Disposition: form-data; name=\"email\"\r\nContent-Transfer-Encoding: 8bit",
        "X-Part: 1\r\nContent-Disposition: form-data; name=\"email\"",
    ] {
        let part = part(headers, "a@b");
        multipart(format!("{part}--x--\r\n"), Some("a@b"));
        multipart(format!("{part}{named}--x--\r\n"), Some("?"));
        multipart(format!("{named}{part}--x--\r\n"), Some("?"));
    }
}

/// Each of these is another field, or another value, to one of PHP, Go, Rack, Django, Werkzeug and Starlette.
#[test]
fn multipart_bodies_with_several_readings() {
    for disposition in [
        "form-data; name*=utf-8''email",
        "form-data; name=\"x\"; name*=utf-8''email",
        "form-data; name=\"x\"; name=\"email\"",
        "form-data; name=\"email\"; name=\"x\"",
        "form-data; name='email'",
        "form-data; name=\"e\\mail\"",
        "form-data; name=\"email\"; filename=\"f\"",
        "form-data; name=\"email\"; filename=\"\"",
        "form-data; name=\"email\"; filename*=utf-8''f",
        "attachment; name=\"email\"",
        "; name=\"email\"",
        "form-data; name=\"y;name=email\"",
        "form-data; name=\"y\"; filename=\"; name=email\"",
        "form-data; filename=\"f\"",
        "form-data; name=\"%65mail\"",
        "form-data; name=\"=?utf-8?Q?email?=\"",
        "form-data; name=\"x\" name=\"email\"",
        "form-data; x=\"\\\"; name=\"email\"",
        "form-data; name=\"x\"; filename=\"a\\\"; name=\\\"email\"",
        "form-data; name=\"x\"; filename=\"a\\\"b\"; y=\"; name=email; z=\"",
        "form-data; filename=\"a\\\"b\"; name=\"x\"",
        "form-data; name=\"x\"; filename=\"a\\\\\"b\"",
        "form-data; name=\"x\\\"y\"",
        "form-data; name=\"x\"; filename=\"a\\\"",
        "form-data; name=\"x\"; name",
        "form-data; name=\"x\"\r\nContent-Disposition: form-data; name=\"email\"",
        "form-data;\r\n name=\"email\"",
        "form-data; name=\"email\"\r\nContent-Transfer-Encoding: base64",
        "form-data; name=\"email\"\r\nContent-Type: text/plain; charset=utf-16le",
        "form-data; name=em\"ail\"",
        "form-data; name=email,z",
        "form-data; name=email:",
        "form-data; name=email/z",
        "form-data; name=email=z",
        "form-data; name=email(z",
        "form-data; name=email?z",
        "form-data; name=email<",
        "form-data; name=email@z",
        "form-data; name=email{z",
        "form-data; name=\"email;z\"",
        "form-data; xname=\"email\"; name=\"z\"",
        "form-data; name=\"z\"; x-name=email",
        "form-data; name=\"z\"\r\nX-Content-Disposition: form-data; name=\"email\"",
        "form-data; name=\"z\"\r\nContent-Disposition-X: form-data; name=\"email\"",
        "form-data; name=\"z\"\r\nx: content-disposition: form-data; name=\"email\"",
        "form-data; name=\"Content-Disposition: form-data\"",
        "form-data; name=\"email\"\r\nX-Content-Type: text/plain; charset=utf-7",
        "form-data; name=\"email\"\r\nx: Content-Transfer-Encoding: base64",
        "form-data; name=\"z\"\r\nx: y\u{2028}Content: z",
        "form-data; name=\"z\"\r\n content-disposition: form-data; name=\"email\"",
        "form-data; name=\"z\"\rContent-Disposition: form-data; name=\"email\"",
        "form-data; name=\"z\"\0Content-Disposition: form-data; name=\"email\"",
        "form-data; name=\"+AGU-mail\"\r\nContent-Type: text/plain; charset=utf-7",
        "form-data; name=\"_charset_\"",
        "form-data; name=\"email\"\r\nContent-Type: multipart/mixed; boundary=y",
    ] {
        let part = part(&format!("Content-Disposition: {disposition}"), "a@b");
        multipart(format!("{part}--x--\r\n"), Some("?"));
    }
    let named = part(NAMED, "a@b");
    let typed = "multipart/form-data; boundary=x; charset=utf-7";
    let encoded = part(
        "Content-Disposition: form-data; name=\"+AGU-mail\"",
        "anna@x",
    );
    check(
        "email",
        typed,
        format!("{named}{encoded}--x--\r\n"),
        Some("?"),
    );
    for body in [
        format!("hi\r\n{named}--x--\r\n"),
        format!("\r\n{named}--x--\r\n"),
        format!("{named}--x--\r\n{named}--x--\r\n"),
        format!("{named}--x--x"),
        format!("{named}--x--\r\nx"),
        named.clone(),
        format!("{named}--x"),
        format!("{named}--x--\r\n").replace("\r\n", "\n"),
        format!("{}--x--", part(NAMED, "a@b\n--x\n")),
        format!("{}--x--", part(NAMED, "a@b\r\n--xy")),
        format!("{}--x--", part(NAMED, "a@b--x")),
        format!("{}--x--", part("X: y", "a@b")),
        format!(
            "{}--x--",
            part("Content-Disposition : form-data; name=\"email\"", "a@b")
        ),
        "--x  \r\nContent-Disposition: form-data; name=\"email\"\r\n\r\na@b\r\n--x--".into(),
        "--x\r\n\r\na@b\r\n--x--".into(),
    ] {
        multipart(body, Some("?"));
    }
}
