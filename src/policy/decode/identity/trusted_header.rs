//! A header that trusted peers set.

use http::HeaderName;

use super::super::super::collect::Cx;
use super::super::super::table::MapFields;
use crate::net::PeerNetwork;

/// Reads `header` and `from`. A header without peers to believe would let anyone be anyone.
pub(super) fn trusted_header(
    cx: &mut Cx,
    fields: &MapFields<'_>,
) -> (Option<HeaderName>, Vec<PeerNetwork>) {
    let name = fields
        .get("header")
        .and_then(|node| cx.header(node))
        .map(|name| name.value);
    let from = match fields.get("from") {
        Some(node) => cx.believed(node),
        None => {
            let message = "`header` needs `from`: the peers that may set it";
            let help =
                "for instance `from: [10.0.0.0/8]`; from everyone else the header is removed";
            cx.error(fields.place_of("header"), message, Some(help.into()));
            Vec::new()
        }
    };
    (name, from)
}
