//! The id of a request, by which its lines in the logs of proxies, gateway and servers are found.
//!
//! The upstream and the client get it in the header field that the gateway file names, and problem documents have it as
//! `request_id`. A trusted proxy may set it; every other request gets a new one. No limit depends on it.

use std::rc::Rc;

use aws_lc_rs::rand;
use bytes::Bytes;
use http::HeaderName;

use super::peer::Peer;
use crate::http::head::{Fields, Head, Response};
use crate::serve::worker::generation::Generation;
use crate::throttle::reject::PROBLEM_JSON;

/// Longest id that is kept, in bytes.
const MAX_ID_BYTES: usize = 128;

/// Random bytes of a new id. So many that two gateways never make the same one.
const RANDOM_BYTES: usize = 16;

/// The id of one request, and the header field that carries it.
#[derive(Debug)]
pub struct RequestId {
    field: HeaderName,
    /// 1 to [`MAX_ID_BYTES`] characters, none of which needs an escape in JSON or in a header field.
    text: Box<str>,
}

impl RequestId {
    /// The id of the request with these fields: the one that a trusted proxy has set, or else a new one. `None` if the
    /// gateway file names no field for it. Also `None` if the system has no random numbers.
    pub fn of_request(fields: &Fields, peer: &Peer, generation: &Generation) -> Option<RequestId> {
        let field = generation.ruleset.identity.request_id_field.as_ref()?;
        let received = || {
            let id = valid_id(fields, field)?;
            let is_proxy = generation.identifier.is_trusted_proxy(peer.remote);
            is_proxy.then(|| id.into())
        };
        Some(RequestId {
            field: field.clone(),
            text: received().or_else(random_id)?,
        })
    }

    /// The id as a text that needs no escape in JSON.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Sets the field of the id, in place of any that are there.
    pub fn set_field(&self, fields: &mut Fields) {
        fields.set(self.field.as_str(), self.text.as_bytes());
    }

    /// A copy of a head with the field of the id. The head itself may serve other requests too.
    pub fn copy_to_head(&self, head: &Head) -> Rc<Head> {
        let mut fields = head.fields.clone();
        self.set_field(&mut fields);
        Rc::new(Head {
            fields,
            ..head.without_fields()
        })
    }

    /// Adds the member `request_id` if the body is a problem document. Any other response is left as it is.
    pub fn add_to_problem(&self, response: &mut Response<Bytes>) {
        let fields = &mut response.head.fields;
        if fields.first("content-type") != Some(PROBLEM_JSON) {
            return;
        }
        let Some(members) = response.body.strip_suffix(b"}") else {
            return;
        };
        let id_member = [b",\"request_id\":\"", self.text.as_bytes(), b"\"}"].concat();
        response.body = [members, &id_member].concat().into();
        // A refusal from the cache states the length that its body has without the id.
        fields.remove("content-length");
    }
}

/// The id in these fields. `None` without one, for several, and for one that is too long or has other characters than
/// [`is_id_byte`] accepts.
fn valid_id<'f>(fields: &'f Fields, field: &HeaderName) -> Option<&'f str> {
    let mut values = fields.all(field.as_str());
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let is_valid = (1..=MAX_ID_BYTES).contains(&value.len()) && value.iter().all(is_id_byte);
    std::str::from_utf8(value).ok().filter(|_| is_valid)
}

/// Whether an id may have this byte. None of these ends a value in a log, a header field or a URL.
fn is_id_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte)
}

/// A new id of 128 random bits, as 32 hexadecimal digits. The generator of the cryptography library has its seed from
/// the operating system, so processes never repeat each other's ids.
fn random_id() -> Option<Box<str>> {
    let mut bytes = [0; RANDOM_BYTES];
    rand::fill(&mut bytes).ok()?;
    Some(format!("{:032x}", u128::from_be_bytes(bytes)).into())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[track_caller]
    fn check(values: &[&[u8]], expected: Option<&str>) {
        let field = HeaderName::from_static("x-request-id");
        let mut fields = Fields::default();
        for value in values {
            fields.add("X-Request-ID", value);
        }
        assert_eq!(valid_id(&fields, &field), expected);
    }

    #[test]
    fn only_one_short_and_plain_value_is_an_id() {
        let longest = "a".repeat(MAX_ID_BYTES);
        check(
            &[b"Root=1-67891233-ab:c/d+e@f_g.h"],
            Some("Root=1-67891233-ab:c/d+e@f_g.h"),
        );
        check(&[longest.as_bytes()], Some(&longest));
        check(&[], None);
        check(&[b""], None);
        check(&[b"a", b"b"], None);
        check(&[b"a", b"a"], None);
        check(&["a".repeat(MAX_ID_BYTES + 1).as_bytes()], None);
        for byte in (0..=u8::MAX).filter(|byte| !is_id_byte(byte)) {
            check(&[&[b'a', byte]], None);
        }
        assert!(!b"\"\\{}<>,; \t\r\n\0%&?#'`".iter().any(is_id_byte));
    }

    #[test]
    fn new_ids_are_long_and_differ() {
        let ids: HashSet<_> = (0..10_000).filter_map(|_| random_id()).collect();
        assert_eq!(ids.len(), 10_000);
        let is_hex = |id: &str| id.bytes().all(|byte| b"0123456789abcdef".contains(&byte));
        assert!(ids.iter().all(|id| id.len() == 32 && is_hex(id)));
    }
}
