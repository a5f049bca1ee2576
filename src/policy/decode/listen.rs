//! Who connects, and how: `listen`, `connections`, `admin`.

use super::super::collect::Cx;
use super::super::model::{Admin, At, Listener, Tls};
use super::super::settings::Connections;
use super::super::table::{Shape, Table, may, must};
use super::super::tree::{Node, Value};
use super::leaf::{ADDRESS, NETWORK, PATH};

static TLS: Table = Table {
    name: "`tls`",
    doc: "A certificate of a TLS listener.",
    fields: &[
        must(
            "cert",
            Shape::Form(&PATH),
            "The certificate chain in PEM.",
            "cert.pem",
        ),
        must(
            "key",
            Shape::Form(&PATH),
            "Its private key in PEM.",
            "key.pem",
        ),
    ],
};

/// A listener with more than an address.
pub static LISTENER: Table = Table {
    name: "a listener",
    doc: "Where clients connect.",
    fields: &[
        must(
            "address",
            Shape::Form(&ADDRESS),
            "Address and port.",
            "0.0.0.0:8443",
        ),
        may(
            "tls",
            Shape::Many(&Shape::Table(&TLS)),
            "Speaks TLS with this certificate, or with the one of several whose names the client asks for; the first is for all others.",
            "{ cert: cert.pem, key: key.pem }",
        ),
        may(
            "client_roots",
            Shape::Form(&PATH),
            "With `tls`: asks clients for a certificate that one of these authorities, in PEM, has issued. Who shows none is served as nobody known; who shows another is not served.",
            "clients.pem",
        ),
        may(
            "proxy_protocol",
            Shape::Many(&Shape::Form(&NETWORK)),
            "Peers that begin each connection with a header of the PROXY protocol, version 1 or 2, and must; from others it is no request.",
            "[10.0.0.0/8]",
        ),
    ],
};

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

/// The admin listener with more than an address.
pub static ADMIN: Table = Table {
    name: "`admin`",
    doc: "Where operators connect.",
    fields: &[
        must(
            "address",
            Shape::Form(&ADDRESS),
            "Address and port.",
            "127.0.0.1:9900",
        ),
        may(
            "token_file",
            Shape::Form(&PATH),
            "The file of the token that operators must send; required unless the address is loopback.",
            "admin.token",
        ),
    ],
};

/// Reads one listener.
pub fn listener(cx: &mut Cx, node: &Node) -> Option<At<Listener>> {
    if !matches!(node.value, Value::Map(_)) {
        return Some(cx.address(node)?.map(|address| Listener {
            address,
            tls: Vec::new(),
            client_roots: None,
            proxies: Vec::new(),
        }));
    }
    let fields = LISTENER.open(cx, node)?;
    let tls = fields
        .get("tls")
        .map_or_else(Vec::new, |node| cx.many(node, tls));
    let address = fields.get("address").and_then(|node| cx.address(node))?;
    let client_roots = fields.get("client_roots").and_then(|node| {
        if tls.is_empty() && !fields.has("tls") {
            let help = "add `tls: { cert: cert.pem, key: key.pem }`";
            cx.error(
                node.place,
                "`client_roots` is nothing without `tls`",
                Some(help.into()),
            );
        }
        cx.text(node, "the name of a file")
    });
    let proxies = fields
        .get("proxy_protocol")
        .map_or_else(Vec::new, |node| cx.believed(node));
    Some(address.map(|address| Listener {
        address,
        tls,
        client_roots,
        proxies,
    }))
}

fn tls(cx: &mut Cx, node: &Node) -> Option<Tls> {
    let fields = TLS.open(cx, node)?;
    let file = |cx: &mut Cx, name| {
        let node = fields.get(name)?;
        cx.text(node, "the name of a file")
    };
    let (cert, key) = (file(cx, "cert"), file(cx, "key"));
    Some(Tls {
        cert: cert?,
        key: key?,
    })
}

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

/// Reads `admin`.
pub fn admin(cx: &mut Cx, node: &Node) -> Admin {
    if node.text() == Some("off") {
        return Admin::Off;
    }
    let (address, token_file) = if matches!(node.value, Value::Map(_)) {
        let Some(fields) = ADMIN.open(cx, node) else {
            return Admin::Off;
        };
        let token = fields
            .get("token_file")
            .and_then(|node| cx.text(node, "the name of a file"));
        (
            fields.get("address").and_then(|node| cx.address(node)),
            token,
        )
    } else {
        (cx.address(node), None)
    };
    address.map_or(Admin::Off, |address| Admin::On {
        address,
        token_file,
    })
}
