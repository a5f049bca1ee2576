//! What belongs to one connection and not to the message: RFC 9110 section 7.6.

use http::HeaderMap;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    COOKIE, HOST, HeaderName, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use smallvec::SmallVec;

use super::Fields;

/// What `Connection` may say without naming a field away: its own words, and fields without which the
/// message means something else.
const KEPT: [&[u8]; 8] = [
    b"keep-alive",
    b"close",
    b"host",
    b"content-length",
    b"authorization",
    b"cookie",
    b"set-cookie",
    b"content-type",
];

/// Removes the fields of one connection from a message, in either direction. `TE: trailers` stays.
pub fn strip(fields: &mut Fields) {
    // Most messages have none of them.
    if !fields.names().any(of_connection) {
        return;
    }
    let trailers = fields.all("te").any(accepts_trailers);
    let kept = |token: &&[u8]| KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(token));
    let listed: SmallVec<[Vec<u8>; 2]> = fields
        .all("connection")
        .flat_map(|list| list.split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|token| !kept(token))
        .map(<[u8]>::to_vec)
        .collect();
    let named = |name: &[u8]| listed.iter().any(|token| token.eq_ignore_ascii_case(name));
    fields.retain(|name| !of_connection(name) && !named(name));
    if trailers {
        fields.add("te", b"trailers");
    }
}

fn of_connection(name: &[u8]) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    match name.len() {
        2 => is("te"),
        7 => is("upgrade"),
        10 => is("connection") || is("keep-alive"),
        16 => is("proxy-connection"),
        17 => is("transfer-encoding"),
        _ => false,
    }
}

/// Whether a `TE` field says that trailers are understood.
pub fn accepts_trailers(value: &[u8]) -> bool {
    let mut parts = value.split(|byte| *byte == b',');
    parts.any(|part| part.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// Removes from trailers what a recipient could take for framing, routing or credentials, and what
/// `guarded` says is not the sender's to say.
pub fn clean_trailers(trailers: &mut HeaderMap, guarded: impl Fn(&[u8]) -> bool) {
    let forbidden: SmallVec<[HeaderName; 2]> = trailers
        .keys()
        .filter(|name| FORBIDDEN.contains(name) || guarded(name.as_str().as_bytes()))
        .cloned()
        .collect();
    for name in forbidden {
        trailers.remove(name);
    }
}

/// What never stands in trailers.
const FORBIDDEN: [HeaderName; 16] = [
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
        strip(&mut fields);
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        let left: Vec<_> = fields.iter().map(|(n, v)| (text(n), text(v))).collect();
        assert_eq!(left, after);
    }

    #[test]
    fn fields_of_one_connection_go() {
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
    fn the_message_itself_cannot_be_named_away() {
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
