//! Removes fields that belong to one connection and not to the message, and fields that must not be trailers: RFC 9110
//! sections 7.6.1 and 6.5.1.

use http::HeaderMap;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    COOKIE, HOST, HeaderName, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use smallvec::SmallVec;

use super::Fields;

/// Options of `Connection` for which no field of that name is removed. The first two are about the connection itself.
/// If one of the other fields were removed, the message would mean something else.
const NEVER_REMOVED: [&[u8]; 8] = [
    b"keep-alive",
    b"close",
    b"host",
    b"content-length",
    b"authorization",
    b"cookie",
    b"set-cookie",
    b"content-type",
];

/// Removes the fields of one connection from a message, and the fields that its `Connection` fields list. If a `TE`
/// field lists `trailers`, a field `TE: trailers` is added.
pub fn strip_connection_fields(fields: &mut Fields) {
    strip_connection_fields_except(fields, |_| false);
}

/// Does the same as [`strip_connection_fields`], but a listed field stays if `is_kept` is true for its name.
pub fn strip_connection_fields_except(fields: &mut Fields, is_kept: impl Fn(&[u8]) -> bool) {
    // Most messages have no field of one connection, and then none that lists others.
    if !fields.names().any(is_connection_field) {
        return;
    }
    let has_te_trailers = fields.all("te").any(accepts_trailers);
    let is_removable = |option: &&[u8]| {
        !NEVER_REMOVED
            .iter()
            .any(|name| name.eq_ignore_ascii_case(option))
            && !is_kept(option)
    };
    let listed_options: SmallVec<[Vec<u8>; 2]> = fields
        .all("connection")
        .flat_map(|list| list.split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(is_removable)
        .map(<[u8]>::to_vec)
        .collect();
    let is_listed = |name: &[u8]| {
        listed_options
            .iter()
            .any(|option| option.eq_ignore_ascii_case(name))
    };
    fields.retain(|name| !is_connection_field(name) && !is_listed(name));
    if has_te_trailers {
        fields.add("te", b"trailers");
    }
}

/// Whether a field of this name belongs to one connection.
pub fn is_connection_field(name: &[u8]) -> bool {
    let is_field = |field_name: &str| name.eq_ignore_ascii_case(field_name.as_bytes());
    match name.len() {
        2 => is_field("te"),
        7 => is_field("upgrade"),
        10 => is_field("connection") || is_field("keep-alive"),
        16 => is_field("proxy-connection"),
        17 => is_field("transfer-encoding"),
        _ => false,
    }
}

/// Whether the value of a `TE` field lists `trailers`, without a parameter.
pub fn accepts_trailers(value: &[u8]) -> bool {
    let mut codings = value.split(|byte| *byte == b',');
    codings.any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// Removes from trailers the fields that must not be trailers, and those for whose name `is_guarded` is true.
pub fn strip_forbidden_trailers(trailers: &mut HeaderMap, is_guarded: impl Fn(&[u8]) -> bool) {
    let forbidden: SmallVec<[HeaderName; 2]> = trailers
        .keys()
        .filter(|name| FORBIDDEN_TRAILERS.contains(name) || is_guarded(name.as_str().as_bytes()))
        .cloned()
        .collect();
    for name in forbidden {
        trailers.remove(name);
    }
}

/// Fields that must not be trailers, because recipients use them for framing, routing, credentials or the content: RFC
/// 9110 section 6.5.1.
const FORBIDDEN_TRAILERS: [HeaderName; 16] = [
    AUTHORIZATION,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    COOKIE,
    HOST,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    SET_COOKIE,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: &[(&str, &str)], after: &[(&str, &str)]) {
        let mut fields = Fields::default();
        for (name, value) in before {
            fields.add(name, value.as_bytes());
        }
        strip_connection_fields(&mut fields);
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        let left: Vec<_> = fields.iter().map(|(n, v)| (text(n), text(v))).collect();
        assert_eq!(left, after);
    }

    #[test]
    fn fields_of_one_connection_are_removed() {
        check(
            &[
                ("host", "a"),
                ("connection", "keep-alive"),
                ("keep-alive", "1"),
            ],
            &[("host", "a")],
        );
        check(
            &[
                ("connection", "close, X-Secret"),
                ("x-secret", "1"),
                ("b", "2"),
            ],
            &[("b", "2")],
        );
        check(
            &[("connection", "x-a"), ("connection", "x-b"), ("x-b", "1")],
            &[],
        );
        check(
            &[("te", "gzip, trailers"), ("connection", "te")],
            &[("te", "trailers")],
        );
        check(&[("te", "gzip")], &[]);
        check(
            &[
                ("upgrade", "h2c"),
                ("connection", "upgrade"),
                ("proxy-connection", "x"),
            ],
            &[],
        );
    }

    #[test]
    fn connection_options_cannot_remove_fields_of_the_message() {
        let kept = [
            ("host", "a"),
            ("content-length", "3"),
            ("authorization", "b"),
        ];
        let mut all = kept.to_vec();
        all.push(("connection", "host, content-length, authorization"));
        check(&all, &kept);
    }
}
