//! The messages of Envoy's rate limit service, version 3, in the wire format of protocol buffers. Nothing here decides.
//!
//! Sources: `envoy/service/ratelimit/v3/rls.proto` and `envoy/extensions/common/ratelimit/v3/ratelimit.proto` of Envoy's
//! API. Unknown fields are skipped. What cannot be read is an error; no input panics. Bytes that are not UTF-8 are replaced:
//! a client chooses values, and could make the caller's request an error otherwise.

use std::borrow::Cow;
use std::time::Duration;

use crate::base::proto_message::{ProtoFields, ProtoMessage, ProtoValue};
use crate::http::head::Fields;

/// Maximum number of descriptors of a request.
pub const MAX_DESCRIPTORS: usize = 100;
/// Maximum number of entries of all descriptors together.
const MAX_ENTRIES: usize = 1_600;

/// A request for a decision. Texts borrow from the message.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RateLimitRequest<'a> {
    /// The domain, not empty.
    pub domain: Cow<'a, str>,
    /// The descriptors, from 1 to [`MAX_DESCRIPTORS`].
    pub descriptors: Vec<Descriptor<'a>>,
    /// The units that each descriptor without units of its own takes, at least 1.
    pub hits: u32,
}

/// One descriptor of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Descriptor<'a> {
    /// The entries, each a key and a value.
    pub entries: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The units that the descriptor takes in place of those of the request. With 0 it takes none, and it gives none back
    /// where it asks for that. `None` without units of its own.
    pub hits: Option<u64>,
}

/// Why a message is not a request that can be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// It is no message.
    Malformed,
    /// It names no domain.
    NoDomain,
    /// It has no descriptor.
    NoDescriptor,
    /// It has more than [`MAX_DESCRIPTORS`] descriptors, or too many entries.
    TooMany,
}

impl RequestError {
    /// The sentence for the caller.
    pub fn detail(self) -> &'static str {
        match self {
            RequestError::Malformed => "the message cannot be read",
            RequestError::NoDomain => "the request names no domain",
            RequestError::NoDescriptor => "the request has no descriptor",
            RequestError::TooMany => {
                "the request has more than 100 descriptors or 1600 entries: send fewer"
            }
        }
    }
}

impl<'a> RateLimitRequest<'a> {
    /// Decodes a request. Of a field that occurs twice the last value counts.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn decode(message: &'a [u8]) -> Result<RateLimitRequest<'a>, RequestError> {
        let mut request = RateLimitRequest::default();
        let mut entry_count = 0;
        for field in ProtoFields::new(message) {
            match field.ok_or(RequestError::Malformed)? {
                (1, ProtoValue::Bytes(text)) => request.domain = String::from_utf8_lossy(text),
                (2, ProtoValue::Bytes(descriptor)) => {
                    let descriptor = Descriptor::decode(descriptor, &mut entry_count)?;
                    if request.descriptors.len() == MAX_DESCRIPTORS {
                        return Err(RequestError::TooMany);
                    }
                    request.descriptors.push(descriptor);
                }
                // Bits beyond 32 are dropped, as the format demands.
                (3, ProtoValue::Number(hits)) => request.hits = hits as u32,
                _ => {}
            }
        }
        // The format cannot tell 0 from an absent number.
        request.hits = request.hits.max(1);
        match (&*request.domain, request.descriptors.as_slice()) {
            ("", _) => Err(RequestError::NoDomain),
            (_, []) => Err(RequestError::NoDescriptor),
            _ => Ok(request),
        }
    }
}

impl<'a> Descriptor<'a> {
    fn decode(message: &'a [u8], entry_count: &mut usize) -> Result<Descriptor<'a>, RequestError> {
        let mut descriptor = Descriptor::default();
        let mut is_negative = false;
        for field in ProtoFields::new(message) {
            match field.ok_or(RequestError::Malformed)? {
                (1, ProtoValue::Bytes(entry)) => {
                    *entry_count += 1;
                    if *entry_count > MAX_ENTRIES {
                        return Err(RequestError::TooMany);
                    }
                    descriptor.entries.push(decode_entry(entry)?);
                }
                // A limit that the caller states is not obeyed: see `docs/envoy.md`.
                (3, ProtoValue::Bytes(wrapper)) => {
                    descriptor.hits = Some(decode_number(wrapper)?);
                }
                (4, ProtoValue::Number(number)) => is_negative = number != 0,
                _ => {}
            }
        }
        if is_negative {
            descriptor.hits = Some(0);
        }
        Ok(descriptor)
    }
}

/// The key and the value of an entry.
fn decode_entry(message: &[u8]) -> Result<(Cow<'_, str>, Cow<'_, str>), RequestError> {
    let (mut key, mut value) = (Cow::default(), Cow::default());
    for field in ProtoFields::new(message) {
        match field.ok_or(RequestError::Malformed)? {
            (1, ProtoValue::Bytes(text)) => key = String::from_utf8_lossy(text),
            (2, ProtoValue::Bytes(text)) => value = String::from_utf8_lossy(text),
            _ => {}
        }
    }
    Ok((key, value))
}

/// The number in a `google.protobuf.UInt64Value`; 0 for an empty one.
fn decode_number(message: &[u8]) -> Result<u64, RequestError> {
    let mut number = 0;
    for field in ProtoFields::new(message) {
        if let (1, ProtoValue::Number(value)) = field.ok_or(RequestError::Malformed)? {
            number = value;
        }
    }
    Ok(number)
}

/// The service that a request of `grpc.health.v1.Health/Check` names; `None` for a message that cannot be read. Empty for
/// the server as a whole.
pub fn decode_health_request(message: &[u8]) -> Option<&str> {
    let mut service = "";
    for field in ProtoFields::new(message) {
        if let (1, ProtoValue::Bytes(text)) = field? {
            service = std::str::from_utf8(text).ok()?;
        }
    }
    Some(service)
}

/// What is decided about a request or about one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionCode {
    /// Within the limits.
    Ok = 1,
    /// A limit refuses the request.
    OverLimit = 2,
}

/// The unit of time of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A second.
    Second = 1,
    /// 60 seconds.
    Minute = 2,
    /// 60 minutes.
    Hour = 3,
    /// 24 hours, or a day of the calendar.
    Day = 4,
    /// A month of the calendar.
    Month = 5,
    /// A year of the calendar.
    Year = 6,
}

/// The status of one descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorStatus {
    /// Whether the descriptor's limits admit it.
    pub code: DecisionCode,
    /// The units, their unit of time and the name of the limit that decides; `None` if no limit applies, if clients may not
    /// see it, or if its window is not one unit of time.
    pub current_limit: Option<(u32, Unit, String)>,
    /// The units that remain; 0 without a limit.
    pub limit_remaining: u32,
    /// The time until more units are free, or until the limits that refuse the descriptor are expected to admit it. `None`
    /// without a limit, and where waiting cannot help.
    pub until_reset: Option<Duration>,
}

impl DescriptorStatus {
    /// The status of a descriptor that no limit counts.
    pub fn unlimited() -> DescriptorStatus {
        DescriptorStatus {
            code: DecisionCode::Ok,
            current_limit: None,
            limit_remaining: 0,
            until_reset: None,
        }
    }

    fn encode(&self) -> ProtoMessage {
        let mut message = ProtoMessage::default().with_uint(1, self.code as u64);
        if let Some((units, unit, name)) = &self.current_limit {
            let limit = ProtoMessage::default()
                .with_uint(1, u64::from(*units))
                .with_uint(2, *unit as u64)
                .with_string(3, name);
            message = message.with_message(2, &limit);
        }
        if self.limit_remaining > 0 {
            message = message.with_uint(3, u64::from(self.limit_remaining));
        }
        if let Some(duration) = self.until_reset {
            let duration = ProtoMessage::default()
                .with_uint(1, duration.as_secs())
                .with_uint(2, u64::from(duration.subsec_nanos()));
            message = message.with_message(4, &duration);
        }
        message
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct RateLimitResponse {
    /// Whether the caller may serve its client.
    pub overall_code: DecisionCode,
    /// One status for each descriptor, in their order.
    pub statuses: Vec<DescriptorStatus>,
    /// Fields that the caller adds to its response.
    pub response_fields: Fields,
    /// Fields that the caller adds to the request that it serves.
    pub request_fields: Fields,
    /// Texts that the caller keeps as dynamic metadata, by name.
    pub metadata: Vec<(&'static str, String)>,
}

impl RateLimitResponse {
    /// The encoded message.
    pub fn encode(&self) -> Vec<u8> {
        let mut message = ProtoMessage::default().with_uint(1, self.overall_code as u64);
        for status in &self.statuses {
            message = message.with_message(2, &status.encode());
        }
        for (number, fields) in [(3, &self.response_fields), (4, &self.request_fields)] {
            for (name, value) in fields.iter() {
                let field = ProtoMessage::default()
                    .with_bytes(1, name)
                    .with_bytes(2, value);
                message = message.with_message(number, &field);
            }
        }
        if !self.metadata.is_empty() {
            let entries = self.metadata.iter().map(|(name, text)| {
                let value = ProtoMessage::default().with_string(3, text);
                ProtoMessage::default()
                    .with_string(1, name)
                    .with_message(2, &value)
            });
            let metadata = entries.fold(ProtoMessage::default(), |metadata, entry| {
                metadata.with_message(1, &entry)
            });
            message = message.with_message(6, &metadata);
        }
        message.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: &str) -> ProtoMessage {
        ProtoMessage::default()
            .with_string(1, key)
            .with_string(2, value)
    }

    fn descriptor(entries: &[(&str, &str)]) -> ProtoMessage {
        let entries = entries.iter().map(|(key, value)| entry(key, value));
        entries.fold(ProtoMessage::default(), |message, entry| {
            message.with_message(1, &entry)
        })
    }

    #[test]
    fn a_request_is_read_and_unknown_fields_are_skipped() {
        let hits = ProtoMessage::default().with_uint(1, 0);
        let message = ProtoMessage::default()
            .with_fixed64(90, 7)
            .with_string(1, "edge")
            .with_message(2, &descriptor(&[("a", "1"), ("a", "")]).with_fixed32(77, 1))
            .with_message(2, &descriptor(&[("b", "ü")]).with_message(3, &hits))
            .with_uint(3, 5)
            .into_bytes();
        let request = RateLimitRequest::decode(&message).unwrap();
        assert_eq!(request.domain, "edge");
        assert_eq!(request.hits, 5);
        let texts =
            |entries: &[(&'static str, &'static str)]| -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
                let entries = entries.iter();
                entries
                    .map(|(key, value)| ((*key).into(), (*value).into()))
                    .collect()
            };
        assert_eq!(
            request.descriptors[0].entries,
            texts(&[("a", "1"), ("a", "")])
        );
        assert_eq!(request.descriptors[0].hits, None);
        assert_eq!(request.descriptors[1].hits, Some(0));
        // No part of a message is another request with the same meaning, and none panics.
        for end in 0..message.len() {
            let _ = RateLimitRequest::decode(&message[..end]);
        }
    }

    #[test]
    fn what_cannot_be_decided_is_an_error() {
        let check = |message: ProtoMessage, expected| {
            let message = message.into_bytes();
            assert_eq!(RateLimitRequest::decode(&message), Err(expected));
        };
        let domain = || ProtoMessage::default().with_string(1, "edge");
        check(ProtoMessage::default(), RequestError::NoDomain);
        check(domain(), RequestError::NoDescriptor);
        check(domain().with_bytes(2, &[0xff]), RequestError::Malformed);
        let many = (0..=MAX_DESCRIPTORS).fold(domain(), |message, _| message.with_bytes(2, &[]));
        check(many, RequestError::TooMany);
        let entries = vec![("a", "b"); MAX_ENTRIES + 1];
        let many = domain().with_message(2, &descriptor(&entries));
        check(many, RequestError::TooMany);
    }

    #[test]
    fn what_a_client_chooses_is_no_error() {
        let hits = ProtoMessage::default().with_uint(1, 7);
        let entry = ProtoMessage::default()
            .with_string(1, "a")
            .with_bytes(2, b"x\xff");
        let descriptor = ProtoMessage::default()
            .with_message(1, &entry)
            .with_message(3, &hits)
            .with_uint(4, 1);
        let message = ProtoMessage::default()
            .with_string(1, "edge")
            .with_message(2, &descriptor)
            .into_bytes();
        let request = RateLimitRequest::decode(&message).unwrap();
        assert_eq!(request.descriptors[0].entries[0].1, "x\u{fffd}");
        assert_eq!(request.descriptors[0].hits, Some(0));
    }

    #[test]
    fn a_request_without_units_asks_for_one() {
        let message = ProtoMessage::default()
            .with_string(1, "edge")
            .with_bytes(2, &[])
            .with_uint(3, 0)
            .into_bytes();
        assert_eq!(RateLimitRequest::decode(&message).unwrap().hits, 1);
    }
}
