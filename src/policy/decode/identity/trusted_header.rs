//! Reads a header field that trusted peers set, for the user and for the plan of a request.

use http::HeaderName;

use super::super::super::context::LoadContext;
use super::super::super::table::MapFields;
use crate::net::PeerNetwork;

/// Reads `header` and `from`. A header field without trusted peers is a mistake, because any client could then claim to
/// be any user.
pub(super) fn read_trusted_header(
    cx: &mut LoadContext,
    fields: &MapFields<'_>,
) -> (Option<HeaderName>, Vec<PeerNetwork>) {
    let name = fields
        .get("header")
        .and_then(|node| cx.read_header_name(node))
        .map(|name| name.value);
    let from = match fields.get("from") {
        Some(node) => cx.read_trusted_peers(node),
        None => {
            let message = "`header` needs `from`: the peers that may set it";
            let help =
                "for instance `from: [10.0.0.0/8]`; from everyone else the header is removed";
            cx.error(fields.location_of("header"), message, Some(help.into()));
            Vec::new()
        }
    };
    (name, from)
}
