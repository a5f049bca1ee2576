//! What of a body must be read ahead before its request can be counted: a credential, identities in its fields, or the
//! units to take at admission.

use super::credential_in_body;
use super::stages::Arrival;
use crate::route::Route;

/// Whether a limit counts by a credential that belongs in the query, and that may stand in the body instead.
pub(super) fn needs_credential_in_body(route: &Route, arrival: &Arrival) -> bool {
    let Arrival { head, body, .. } = arrival;
    let identifier = &arrival.context.generation.identifier;
    !body.is_empty()
        && credential_in_body::is_body_searched(route, head)
        && !identifier.has_credential_before_query(head)
}

/// Whether a limit counts by an identity that may stand in the body, the query or a cookie.
pub(super) fn needs_field_search(route: &Route, arrival: &Arrival) -> bool {
    (route.reads.email || route.reads.parameter) && {
        let head = &arrival.head;
        // Some servers begin the query at a `;` of the path.
        let uri = &head.uri;
        uri.query().is_some()
            || uri.path().contains(';')
            || has_body(arrival)
            || head.fields.contains("cookie")
    }
}

/// Whether the body is read for the units to take at admission.
pub(super) fn needs_reserve_in_body(route: &Route, arrival: &Arrival) -> bool {
    route.reads.reserve_in_body && has_body(arrival)
}

/// Whether the request has a body to search. A request for a tunnel has no body: the tunnel's bytes come after the
/// response, and an HTTP/1.1 request with a body never opens a tunnel.
pub(super) fn has_body(Arrival { head, body, .. }: &Arrival) -> bool {
    !body.is_empty() && head.upgrade.is_none()
}
