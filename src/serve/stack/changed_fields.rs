//! Makes the changes of header fields that policies ask for: in requests before they are forwarded, and in final
//! responses before the client gets them. It never changes a field that the gateway needs; `policy` refuses their names.
//!
//! Values of requests are escaped, so that none can end a field or look like another element of a list: see
//! [`write_escaped`]. A field whose value names what is absent is not added.

use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use super::peer::Peer;
use super::request_context::RequestContext;
use super::request_id::RequestId;
use super::routing::read_host;
use crate::http::head::{Fields, Head, ResponseHead};
use crate::identity::ClientIdentity;
use crate::identity::custom_value::IdentityValue;
use crate::identity::strip::is_alike_any;
use crate::limit::Identity;
use crate::policy::Ruleset;
use crate::route::{AddedField, FieldChanges, TemplatePart, ValueTemplate, Variable};

/// Fields that describe the content of a response or how long it may be kept. In responses of the gateway itself they
/// stay as they are, because they are wrong for another content.
const CONTENT_FIELDS: [&str; 9] = [
    "age",
    "cache-control",
    "content-encoding",
    "content-language",
    "content-location",
    "content-type",
    "etag",
    "expires",
    "last-modified",
];

/// What the values of fields may name.
pub struct NamedValues<'a> {
    /// The client; `None` if the request was refused before it was identified.
    pub client: Option<&'a ClientIdentity>,
    /// The host of the request in canonical form; `None` if there is none.
    pub host: Option<&'a str>,
    /// The name of the route.
    pub route_name: &'a str,
    /// The configuration, which has the names of plans.
    pub ruleset: &'a Ruleset,
    /// The id of the request; `None` if requests have none.
    pub request_id: Option<&'a str>,
    /// The client's end of the connection; `None` where there is no connection.
    pub peer: Option<&'a Peer>,
}

/// The text that a variable stands for.
enum NamedValue<'a> {
    Text(&'a str),
    Names(&'a [Arc<str>]),
    Ip(IpAddr),
}

/// Changes the fields of a request. Other spellings of a field that is set or removed are removed as well, because some
/// servers take them for one.
#[inline(never)]
pub fn change_request(fields: &mut Fields, changes: &FieldChanges, values: &NamedValues<'_>) {
    let is_removed = |name: &[u8]| is_alike_any(name, &changes.removed);
    if fields.names().any(is_removed) {
        fields.retain(|name| !is_removed(name));
    }
    for field in &changes.added {
        add_field(fields, field, values);
    }
}

/// Changes the fields of the final response to a request as its policy says. A request without a route has no policy.
#[inline]
pub fn change_response(context: &RequestContext, head: &mut ResponseHead) {
    let Some(route_index) = context.route_index.get() else {
        return;
    };
    let route = &context.generation.ruleset.routes[route_index];
    if let Some(changes) = &route.response_changes {
        apply_to_response(context, head, changes, &route.name);
    }
}

/// Does the work of [`change_response`]. It is not inlined, so that other responses stay cheap.
#[inline(never)]
fn apply_to_response(
    context: &RequestContext,
    head: &mut ResponseHead,
    changes: &FieldChanges,
    route_name: &str,
) {
    let is_kept = |name: &str| !context.is_from_upstream() && CONTENT_FIELDS.contains(&name);
    for name in &changes.removed {
        if !is_kept(name.as_str()) {
            head.fields.remove(name.as_str());
        }
    }
    let request = context.head.as_deref().filter(|_| changes.needs_host());
    let host = request.and_then(|head: &Head| read_host(head).ok().flatten());
    let values = NamedValues {
        client: context.client.get().map(|client| &**client),
        host: host.as_deref(),
        route_name,
        ruleset: &context.generation.ruleset,
        request_id: context.request_id().map(RequestId::as_str),
        peer: Some(&context.peer),
    };
    for field in &changes.added {
        if !is_kept(field.name.as_str()) {
            add_field(&mut head.fields, field, &values);
        }
    }
}

/// Adds a field, unless a part of its value is absent.
fn add_field(fields: &mut Fields, field: &AddedField, values: &NamedValues<'_>) {
    let ValueTemplate { parts } = &field.value;
    let is_present = |part: &TemplatePart| match part {
        TemplatePart::Text(_) => true,
        TemplatePart::Variable(variable) => values.find(*variable).is_some(),
    };
    if !parts.iter().all(is_present) {
        return;
    }
    fields.add_with(field.name.as_str(), |out| {
        for part in parts {
            match part {
                TemplatePart::Text(text) => out.extend_from_slice(text.as_bytes()),
                TemplatePart::Variable(variable) => {
                    if let Some(value) = values.find(*variable) {
                        value.write(out);
                    }
                }
            }
        }
    });
}

impl<'a> NamedValues<'a> {
    /// The value of a variable; `None` if the request has none, or no certain one.
    fn find(&self, variable: Variable) -> Option<NamedValue<'a>> {
        let identity = match variable {
            Variable::Host => return self.host.map(NamedValue::Text),
            Variable::Route => return Some(NamedValue::Text(self.route_name)),
            Variable::RequestId => return self.request_id.map(NamedValue::Text),
            Variable::Tls(fact) => return self.peer?.tls_fact(fact).map(NamedValue::Text),
            Variable::Identity(identity) => identity,
        };
        let client = self.client?;
        match identity {
            Identity::Ip => (!client.is_ip_unclear).then_some(NamedValue::Ip(client.ip)),
            Identity::User => client.user.as_deref().map(NamedValue::Text),
            Identity::Plan => {
                let plans = &self.ruleset.identity.plan.plans;
                let plan = plans.get(client.plan?)?;
                Some(NamedValue::Text(&plan.name))
            }
            Identity::Custom(custom) => match client.custom_value(custom)? {
                IdentityValue::Names(names) => Some(NamedValue::Names(names)),
                IdentityValue::Hash(_) | IdentityValue::Ambiguous => None,
            },
            // Their values are kept as hashes only, so `policy` refuses them.
            Identity::Token | Identity::Email => None,
        }
    }
}

impl NamedValue<'_> {
    /// Appends the value. The names of a list are separated by `, `.
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            NamedValue::Text(text) => write_escaped(out, text),
            NamedValue::Names(names) => {
                for (index, name) in names.iter().enumerate() {
                    if index > 0 {
                        out.extend_from_slice(b", ");
                    }
                    write_escaped(out, name);
                }
            }
            // Writing to a vector never fails.
            NamedValue::Ip(ip) => _ = write!(out, "{ip}"),
        }
    }
}

/// Appends a text in which each byte that [`is_plain`] does not accept is percent-encoded. `%` is encoded too, so two
/// texts never look the same.
fn write_escaped(out: &mut Vec<u8>, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let text = text.as_bytes();
    if text.iter().all(|byte| is_plain(*byte)) {
        return out.extend_from_slice(text);
    }
    for &byte in text {
        match is_plain(byte) {
            true => out.push(byte),
            false => out.extend([
                b'%',
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]),
        }
    }
}

/// Whether a byte of an identity stands in a field as it is: visible ASCII and blanks, except the escape itself and the
/// delimiters of lists, parameters and quoted strings.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'%' | b'"' | b',' | b';' | b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped() {
        let check = |text: &str, expected: &str| {
            let mut out = Vec::new();
            write_escaped(&mut out, text);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{text:?}");
        };
        check("auth0|a.b@c.example", "auth0|a.b@c.example");
        check("Ann Lee", "Ann Lee");
        check("a\r\nset-cookie: x", "a%0D%0Aset-cookie: x");
        check("a\0b\tc\u{7f}", "a%00b%09c%7F");
        check("é,\"\\;%", "%C3%A9%2C%22%5C%3B%25");
        check("", "");
    }
}
