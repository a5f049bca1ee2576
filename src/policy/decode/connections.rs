//! How many connections clients may have: `connections`.

use super::super::collect::Cx;
use super::super::settings::Connections;
use super::super::table::{Shape, Table, may};
use super::super::tree::Node;

/// Bounds on clients' connections.
pub static CONNECTIONS: Table = Table {
    name: "`connections`",
    doc: "How many connections clients may have.",
    fields: &[
        may(
            "total",
            Shape::Whole(1, 10_000_000),
            "In all; further ones wait to be accepted. Default: as many as the process has descriptors for, one more for each kept for its upstream.",
            "50000",
        ),
        may(
            "per_ip",
            Shape::Whole(1, 10_000_000),
            "From one address, grouped as `identity.ip.group` says; further ones are closed. Trusted proxies are not bounded. Default: no bound.",
            "200",
        ),
    ],
};

/// Reads `connections`.
pub fn connections(cx: &mut Cx, node: &Node) -> Option<Connections> {
    let fields = CONNECTIONS.open(cx, node)?;
    let mut most = |name| {
        let most = cx.whole(fields.get(name)?, 1, 10_000_000)?;
        usize::try_from(most.value).ok()
    };
    Some(Connections {
        total: most("total"),
        per_ip: most("per_ip"),
    })
}
