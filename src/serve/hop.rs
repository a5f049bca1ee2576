//! What belongs to one connection and not to the message: RFC 9110 section 7.6.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    COOKIE, HOST, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROXY_AUTHORIZATION: HeaderName = HeaderName::from_static("proxy-authorization");
const FORWARDED: HeaderName = HeaderName::from_static("forwarded");

/// Fields that `Connection` may not name away, because the message means something else without
/// them.
const KEPT: [HeaderName; 6] = [
    HOST,
    CONTENT_LENGTH,
    AUTHORIZATION,
    COOKIE,
    SET_COOKIE,
    CONTENT_TYPE,
];

/// Removes the fields of one connection from a message, in either direction. `TE: trailers` stays.
pub fn strip(headers: &mut HeaderMap) {
    // Most messages have none of them.
    if !headers.keys().any(of_connection) {
        return;
    }
    if headers.contains_key(CONNECTION) {
        strip_named(headers);
    }
    for name in [KEEP_ALIVE, PROXY_CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    if headers.contains_key(TE) {
        let trailers = headers.get_all(TE).iter().any(accepts_trailers);
        headers.remove(TE);
        if trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
    }
}

fn of_connection(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade" | "te"
    )
}

fn strip_named(headers: &mut HeaderMap) {
    let mut named: SmallVec<[HeaderName; 4]> = SmallVec::new();
    for value in headers.get_all(CONNECTION) {
        for token in value.as_bytes().split(|byte| *byte == b',') {
            let token = token.trim_ascii();
            let usual = [&b"keep-alive"[..], b"close"];
            if !usual.contains(&token)
                && let Ok(name) = HeaderName::from_bytes(token)
                && name != TE
                && !KEPT.contains(&name)
            {
                named.push(name);
            }
        }
    }
    headers.remove(CONNECTION);
    for name in named {
        headers.remove(name);
    }
}

/// Whether a `TE` field says that trailers are understood.
pub fn accepts_trailers(value: &HeaderValue) -> bool {
    let mut parts = value.as_bytes().split(|byte| *byte == b',');
    parts.any(|part| part.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// Removes from trailers what a recipient could take for framing, routing or credentials.
pub fn clean_trailers(trailers: &mut HeaderMap) {
    let forbidden = [
        AUTHORIZATION,
        CONNECTION,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        COOKIE,
        FORWARDED,
        HOST,
        KEEP_ALIVE,
        PROXY_AUTHORIZATION,
        PROXY_CONNECTION,
        SET_COOKIE,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ];
    for name in forbidden {
        trailers.remove(name);
    }
    let asserted: SmallVec<[HeaderName; 2]> = trailers
        .keys()
        .filter(|name| {
            name.as_str().starts_with("x-forwarded-") || name.as_str().starts_with("tollgate-")
        })
        .cloned()
        .collect();
    for name in asserted {
        trailers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: &[(&str, &str)], after: &[(&str, &str)]) {
        let mut headers = HeaderMap::new();
        for (name, value) in before {
            headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        strip(&mut headers);
        let left: Vec<_> = headers
            .iter()
            .map(|(n, v)| (n.as_str(), v.to_str().unwrap()))
            .collect();
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
