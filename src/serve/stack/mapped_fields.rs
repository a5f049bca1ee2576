//! Maps the fields of a response in which an upstream names its own place back to the client's view, where the policy says
//! so. Which values are changed, and how, stands in `route/back_mapping.rs`. `forwarding.rs` calls this file, so responses
//! of the gateway itself never come here.

use crate::http::head::{Fields, Head};
use crate::route::canonical_host::canonical_host;
use crate::route::{BackMapping, ForwardedPlace};

/// Maps the fields of the response to `request`, which is the head that the server got.
#[inline(never)]
pub fn map_response(fields: &mut Fields, mapping: &BackMapping, request: &Head) {
    let Some(host) = request.fields.text("host").and_then(canonical_host) else {
        return;
    };
    let client_host = request.fields.text("x-forwarded-host");
    let client_host = client_host.and_then(canonical_host);
    let place = ForwardedPlace {
        host: &host,
        client_host: client_host.as_deref(),
        is_tls: request.fields.first("x-forwarded-proto") == Some(b"https"),
    };
    let map_url = |value: &[u8]| mapping.map_url(value, place);
    map_fields(fields, "location", map_url);
    map_fields(fields, "content-location", map_url);
    map_fields(fields, "refresh", |value| mapping.map_refresh(value, place));
    map_fields(fields, "set-cookie", |value| {
        mapping.map_cookie(value, place)
    });
}

/// Replaces each field of this name for which `map` returns a value. Their order stays.
fn map_fields(fields: &mut Fields, name: &str, map: impl Fn(&[u8]) -> Option<String>) {
    if !fields.contains(name) {
        return;
    }
    let mapped: Vec<_> = fields.all(name).map(map).collect();
    if mapped.iter().all(Option::is_none) {
        return;
    }
    let unmapped: Vec<_> = fields.all(name).map(<[u8]>::to_vec).collect();
    fields.remove(name);
    for (unmapped, mapped) in unmapped.into_iter().zip(mapped) {
        fields.add(name, &mapped.map_or(unmapped, String::into_bytes));
    }
}
