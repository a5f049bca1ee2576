//! Encodes spans for OTLP, as one field of a `ScopeSpans` each, and the request that carries them.
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/>, with `trace/v1/trace.proto`.

use std::ops::Range;

use super::trace_parent::{SpanId, TraceParent};
use crate::base::otlp;
use crate::base::proto_message::ProtoMessage;

// The numbers of the fields of each message.
const SPAN_TRACE_ID: u32 = 1;
const SPAN_SPAN_ID: u32 = 2;
const SPAN_TRACE_STATE: u32 = 3;
const SPAN_PARENT_SPAN_ID: u32 = 4;
const SPAN_NAME: u32 = 5;
const SPAN_KIND: u32 = 6;
const SPAN_START_TIME: u32 = 7;
const SPAN_END_TIME: u32 = 8;
const SPAN_ATTRIBUTES: u32 = 9;
const SPAN_STATUS: u32 = 15;
const SPAN_FLAGS: u32 = 16;
const STATUS_CODE: u32 = 3;

/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: u64 = 2;

/// The flag that says that [`REMOTE_PARENT_FLAG`] has a meaning.
const HAS_REMOTE_FLAG: u32 = 0x100;
/// The flag that says that the parent is a span of another process.
const REMOTE_PARENT_FLAG: u32 = 0x200;

/// What a span is about, with the number in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A request that the gateway serves.
    Server = 2,
    /// An exchange with an upstream.
    Client = 3,
}

/// A span to which attributes are appended. Nothing is left out: the caller bounds the texts of clients.
#[derive(Debug)]
pub struct Span(ProtoMessage);

impl Span {
    /// A span of this trace and with this id. Its parent is in another process for [`SpanKind::Server`]. `lifetime` is
    /// in nanoseconds since 1970.
    pub fn new(
        kind: SpanKind,
        (id, parent_id): (&TraceParent, Option<SpanId>),
        name: &str,
        lifetime: Range<u64>,
    ) -> Span {
        let remote_flag = match parent_id {
            Some(_) if kind == SpanKind::Server => REMOTE_PARENT_FLAG,
            _ => 0,
        };
        let mut message = ProtoMessage::default()
            .with_bytes(SPAN_TRACE_ID, &id.trace_id)
            .with_bytes(SPAN_SPAN_ID, &id.span_id)
            .with_string(SPAN_NAME, name)
            .with_uint(SPAN_KIND, kind as u64)
            .with_fixed64(SPAN_START_TIME, lifetime.start)
            .with_fixed64(SPAN_END_TIME, lifetime.end)
            .with_fixed32(
                SPAN_FLAGS,
                HAS_REMOTE_FLAG | remote_flag | u32::from(id.flags()),
            );
        if let Some(parent_id) = parent_id {
            message = message.with_bytes(SPAN_PARENT_SPAN_ID, &parent_id);
        }
        Span(message)
    }

    /// Sets the value of `tracestate`.
    #[must_use]
    pub fn with_trace_state(self, trace_state: &str) -> Span {
        Span(self.0.with_string(SPAN_TRACE_STATE, trace_state))
    }

    /// Appends an attribute with a text.
    #[must_use]
    pub fn with_text(self, key: &str, value: &str) -> Span {
        let attribute = otlp::string_attribute(key, value);
        Span(self.0.with_message(SPAN_ATTRIBUTES, &attribute))
    }

    /// Appends an attribute with a number of at most 63 bits.
    #[must_use]
    pub fn with_number(self, key: &str, value: u64) -> Span {
        let attribute = otlp::int_attribute(key, value);
        Span(self.0.with_message(SPAN_ATTRIBUTES, &attribute))
    }

    /// Marks what the span is about as failed, with the kind of the error.
    #[must_use]
    pub fn with_error(self, error_type: &str) -> Span {
        let status = ProtoMessage::default().with_uint(STATUS_CODE, STATUS_ERROR);
        let span = self.with_text("error.type", error_type);
        Span(span.0.with_message(SPAN_STATUS, &status))
    }

    /// Appends the span to others, as [`encode_spans`] takes them.
    pub fn append_to(self, encoded_spans: ProtoMessage) -> ProtoMessage {
        encoded_spans.with_message(otlp::SCOPE_ITEM, &self.0)
    }
}

/// Encodes an `ExportTraceServiceRequest` with these spans of a service.
pub fn encode_spans(encoded_spans: &[u8], service: &str) -> Vec<u8> {
    let attributes = [otlp::string_attribute("service.name", service)];
    otlp::export_request(attributes, encoded_spans)
}
