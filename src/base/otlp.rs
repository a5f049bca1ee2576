//! The messages of OTLP that metrics and traces share: the request of an export, with its resource and its scope,
//! attributes, and the response. The numbers of these fields are the same for both.
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/>, with `common/v1/common.proto` and `resource/v1/resource.proto`.

use crate::base::proto_message::{ProtoMessage, ProtoValue, find_field};

/// The header field that the protocol requires.
pub const HEADER_FIELDS: [(&str, &str); 1] = [("content-type", "application/x-protobuf")];

/// The number of the field that has one metric of `ScopeMetrics`, or one span of `ScopeSpans`.
pub const SCOPE_ITEM: u32 = 2;

// The numbers of the fields of each message.
const EXPORT_REQUEST_OF_RESOURCE: u32 = 1;
const OF_RESOURCE_RESOURCE: u32 = 1;
const OF_RESOURCE_OF_SCOPE: u32 = 2;
const OF_SCOPE_SCOPE: u32 = 1;
const SCOPE_NAME: u32 = 1;
const SCOPE_VERSION: u32 = 2;
const RESOURCE_ATTRIBUTES: u32 = 1;
const KEY_VALUE_KEY: u32 = 1;
const KEY_VALUE_VALUE: u32 = 2;
const ANY_VALUE_STRING: u32 = 1;
const ANY_VALUE_INT: u32 = 3;
const EXPORT_RESPONSE_PARTIAL_SUCCESS: u64 = 1;
const PARTIAL_SUCCESS_REJECTED_ITEMS: u64 = 1;
const PARTIAL_SUCCESS_ERROR_MESSAGE: u64 = 2;

/// Encodes the request of an export: one resource with these attributes, and one scope, which is the gateway.
/// `encoded_items` has the metrics or the spans, each as a field [`SCOPE_ITEM`].
pub fn export_request(
    attributes: impl IntoIterator<Item = ProtoMessage>,
    encoded_items: &[u8],
) -> Vec<u8> {
    let attributes = attributes.into_iter();
    let resource = attributes.fold(ProtoMessage::default(), |resource, attribute| {
        resource.with_message(RESOURCE_ATTRIBUTES, &attribute)
    });
    let scope = ProtoMessage::default()
        .with_string(SCOPE_NAME, "tollgate")
        .with_string(SCOPE_VERSION, env!("CARGO_PKG_VERSION"));
    let of_scope = ProtoMessage::default()
        .with_message(OF_SCOPE_SCOPE, &scope)
        .with_fields_of(encoded_items);
    let of_resource = ProtoMessage::default()
        .with_message(OF_RESOURCE_RESOURCE, &resource)
        .with_message(OF_RESOURCE_OF_SCOPE, &of_scope);
    ProtoMessage::default()
        .with_message(EXPORT_REQUEST_OF_RESOURCE, &of_resource)
        .into_bytes()
}

/// Builds an attribute with a string.
pub fn string_attribute(key: &str, value: &str) -> ProtoMessage {
    attribute(
        key,
        &ProtoMessage::default().with_string(ANY_VALUE_STRING, value),
    )
}

/// Builds an attribute with a number of at most 63 bits.
pub fn int_attribute(key: &str, value: u64) -> ProtoMessage {
    attribute(
        key,
        &ProtoMessage::default().with_uint(ANY_VALUE_INT, value),
    )
}

/// Builds a `KeyValue` with an `AnyValue`.
fn attribute(key: &str, any_value: &ProtoMessage) -> ProtoMessage {
    ProtoMessage::default()
        .with_string(KEY_VALUE_KEY, key)
        .with_message(KEY_VALUE_VALUE, any_value)
}

/// Reads from the response to an export how many data points or spans were rejected, and why. Returns `None` if all were
/// accepted, or if the response cannot be read. The reason may be empty.
pub fn rejected_items(response: &[u8]) -> Option<(u64, String)> {
    let Some(ProtoValue::Bytes(partial_success)) =
        find_field(response, EXPORT_RESPONSE_PARTIAL_SUCCESS)
    else {
        return None;
    };
    let Some(ProtoValue::Number(count)) =
        find_field(partial_success, PARTIAL_SUCCESS_REJECTED_ITEMS)
    else {
        return None;
    };
    let reason = match find_field(partial_success, PARTIAL_SUCCESS_ERROR_MESSAGE) {
        Some(ProtoValue::Bytes(text)) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    };
    (count > 0).then_some((count, reason))
}
