//! Which bodies are read ahead, by their type and their first bytes.

use super::super::{is_stream, may_have_field};
use crate::http::head::Fields;

const FORM: &str = "application/x-www-form-urlencoded";

const JSON: &str = "application/json";

/// Which bodies of other types are read ahead, by how they begin.
#[test]
fn fields_in_bodies_of_other_types() {
    let check = |lines: &[(&str, &str)], begin: &[u8], expected: bool| {
        let mut fields = Fields::default();
        for (name, value) in lines {
            fields.add(name, value.as_bytes());
        }
        let judge = |begin, whole| may_have_field(&"email".into(), &fields, begin, whole);
        let name = format!("{lines:?} {}", begin.escape_ascii());
        assert_eq!(judge(begin, true), Some(expected), "{name}");
        // However it is cut.
        let mut cuts = (0..=begin.len()).filter_map(|end| judge(&begin[..end], false));
        assert!(cuts.all(|may| may == expected), "{name}");
    };
    for typed in [
        FORM,
        JSON,
        "text/x-json",
        "application/jsonrequest",
        "application/x-www-form-urlencodedx",
        "multipart/mixed; boundary=x",
        "text/plain; charset=utf-7",
        "",
    ] {
        check(&[("content-type", typed)], b"\x89PNG", true);
    }
    check(&[], b"\x89PNG", true);
    for other in [
        "text/plain",
        "text/event-stream; charset=utf-8",
        "application/x-ndjson",
        "application/x-protobuf",
        "application/grpc",
        "TEXT/HTML; charset=utf-8",
        "application/octet-stream",
        "image/png",
        "application/jsonl",
        "application/grpc+json",
    ] {
        let text = other.to_ascii_lowercase().starts_with("text");
        let check = |begin: &[u8], expected| check(&[("content-type", other)], begin, expected);
        for object in [
            &b""[..],
            b" \r\n",
            b"\xef\xbb",
            b"{",
            b" {\n\"",
            b"\xef\xbb\xbf{\"email\":\"a@b\"}",
            b"{\"a\":[{}],\"Email\":\"a@b\"}\n{}",
            b"[ {\"email\":\"a@b\"}]",
            b"{\"\xff\":1",
            b"\xff\xfe{\0\"\0",
            b"\0{\0\"",
            b"\0\0\0{\0\0\0\"\0\0\0a",
            b"\0\0\xfe\xff\0\0\0{\0\0\0\"",
            b"{\0\0\0'\0\0\0",
            b" \xef\xbb\xbf\xc2\xa0{\"",
            b"{email:1}",
            b"{ 'email':1}",
            b"{/**/email:1}",
            b"{\\u0065mail:1}",
        ] {
            check(object, true);
        }
        for other in [
            &b"\x89PNG\r\n"[..],
            b"\xff\xd8\xff\xe0",
            b"\0\0\0\x18ftypmp42\0",
            b"\0\0\0\0\0\0\0\0",
            b"\0\0\0\0\x1f{\"email\":\"a@b\"}",
            b"\0\0\0\x20\x1f{\"email\":\"a@b\"}",
            b"\0\0\0\0\x1a{\"email\":\"a@b\"}",
            b"\x01\0\0\0\x1a{\"email\":\"a@b\"}",
            b"GIF89a\x01\0",
            b"{}",
            b"{\"a\":1}",
            b"{\"a\":1}\n{\"email\":\"a@b\"}",
            b"{{ a }}",
            b"{\\rtf1",
            b"[error] x",
            b"2026-11-25 a",
            b"<a b=c>",
            b"<svg>a=b",
            b"<!--a=b",
            b"a,b\nc=d",
        ] {
            check(other, text);
        }
        for form in [
            &b"email=a@b"[..],
            b"abc",
            b"\r\ne%6dail[]=",
            b"a&email=a@b",
            b"a!=1&email=",
            b"a b=1&email=",
            b"a,b=1&email=",
            b"<x=1&email=",
            b"<=1&email=",
            b"\xc3\xa9=1&email=",
        ] {
            check(form, text);
        }
    }
    let coded = [("content-type", "image/png"), ("content-encoding", "gzip")];
    check(&coded, b"\x1f\x8b", true);
}

#[test]
fn streams_whose_client_may_wait() {
    let check = |kind: &str, expected: bool| {
        let mut fields = Fields::default();
        fields.add("content-type", kind.as_bytes());
        assert_eq!(is_stream(&fields), expected, "{kind}");
    };
    for kind in [
        "application/grpc",
        "Application/gRPC+proto; x=y",
        "application/grpc-web-text",
        "application/connect+proto",
    ] {
        check(kind, true);
    }
    for kind in [
        "application/grpc+json",
        "application/connect+json",
        "application/x-ndjson",
        "text/event-stream",
        "image/png; x=application/grpc",
        "",
    ] {
        check(kind, false);
    }
}
