//! The members of a JSON line that the gateway file lists in `fields`. A line lacks a member that its request does not
//! have.
//!
//! Texts of clients are cut to a length, and secrets are shown as hashes.

use super::client_text::{ClientText, field_text, protocol, referer};
use super::members::{push_fraction, push_number, push_text};
use crate::limit::CustomIdentity;
use crate::policy::settings::LoggedField;
use crate::route::canonical_host::without_user;
use crate::serve::stack::request_context::RequestContext;

/// The end of a text that was cut.
const CUT_MARK: &str = "\u{2026}";

/// Nanoseconds in a microsecond, the precision of durations.
const NANOS_PER_MICRO: u64 = 1_000;

/// Nanoseconds in a millisecond.
const NANOS_PER_MILLI: u64 = 1_000_000;

/// Writes these members of a request's line.
pub(super) fn write(out: &mut Vec<u8>, fields: &[LoggedField], context: &RequestContext) {
    for field in fields {
        write_member(out, *field, context);
    }
}

fn write_member(out: &mut Vec<u8>, field: LoggedField, context: &RequestContext) {
    let name = field.as_str();
    match field {
        LoggedField::Host => write_text(out, name, host(context)),
        LoggedField::UserAgent => write_text(out, name, field_text(context, "user-agent")),
        LoggedField::Referer => write_text(out, name, referer(context)),
        LoggedField::Protocol => {
            write_text(out, name, protocol(context).map(ClientText::whole));
        }
        LoggedField::Tls => {
            write_text(out, name, context.peer.tls_version.map(ClientText::whole));
        }
        LoggedField::Upstream => {
            write_text(out, name, upstream_name(context).map(ClientText::whole));
        }
        LoggedField::UpstreamMillis => {
            let extra = context.extra.as_ref();
            if let Some(duration) = extra.and_then(|extra| extra.upstream_duration.get()) {
                begin_member(out, name);
                push_number(out, "", duration.0 / NANOS_PER_MILLI);
                let micros = duration.0 % NANOS_PER_MILLI / NANOS_PER_MICRO;
                push_fraction::<3>(out, micros as u32);
            }
        }
        LoggedField::BytesIn => {
            begin_member(out, name);
            push_number(
                out,
                "",
                context.received_bytes().map_or(0, |bytes| bytes.get()),
            );
        }
        LoggedField::Identity(identity) => {
            let text = identity_text(identity, context);
            let text = text.as_ref().map(|text| ClientText::new(text.as_bytes()));
            write_text(out, name, text);
        }
    }
}

/// The host of the target, or else of the field `Host`.
fn host(context: &RequestContext) -> Option<ClientText<'_>> {
    let authority = context.head.as_ref()?.uri.authority();
    match authority {
        Some(authority) => {
            let host = without_user(authority.as_str());
            Some(ClientText::new(host.as_bytes()))
        }
        None => field_text(context, "host"),
    }
}

/// The name of the upstream of the request's route; `None` without a route.
fn upstream_name(context: &RequestContext) -> Option<&str> {
    let ruleset = &context.generation.ruleset;
    let route = ruleset.routes.get(context.route_index.get()?)?;
    let upstream = ruleset.upstreams.get(route.upstream_index()?)?;
    Some(&upstream.name)
}

/// The value of an identity as keys of limits show it: a secret and an address of email as a hash. `None` for a request
/// without the identity, or with an ambiguous one.
fn identity_text(identity: CustomIdentity, context: &RequestContext) -> Option<String> {
    let value = context.client.get()?.custom_value(identity)?;
    context.generation.identifier.format_custom(value)
}

/// Writes a member with a text; nothing for `None`.
fn write_text(out: &mut Vec<u8>, name: &str, text: Option<ClientText<'_>>) {
    let Some(ClientText { text, is_cut }) = text else {
        return;
    };
    begin_member(out, name);
    match is_cut {
        true => push_text(out, "", &(text.into_owned() + CUT_MARK)),
        false => push_text(out, "", &text),
    }
}

/// Writes the name of a member. Names of fields and identities need no escapes.
fn begin_member(out: &mut Vec<u8>, name: &str) {
    for part in [",\"", name, "\":"] {
        out.extend_from_slice(part.as_bytes());
    }
}
