//! The gateway in front of one server, over plain TCP and over TLS, with limits on some of its paths.

use std::net::SocketAddr;
use std::path::PathBuf;

use tollgate::base::clock::Clock;

use crate::common::certificate::Certificate;
use crate::common::{Gateway, write};

/// All paths are open but these.
const POLICIES: &[(&str, &str)] = &[
    ("all", "match: /**\nupstream: up\n"),
    (
        "few",
        "match: /few/**\nupstream: up\nlimits: { few: { key: ip, rate: 2/h } }\n",
    ),
    (
        "pair",
        "match: /pair/**\nupstream: up\nlimits: { pair: { key: ip, rate: 1/2s } }\n",
    ),
    (
        "thousand",
        "match: /thousand/**\nupstream: up\nlimits: { thousand: { key: ip, rate: 1000/h } }\n",
    ),
];

/// A gateway and where clients reach it.
pub struct Site {
    pub gateway: Gateway,
    plain: SocketAddr,
    tls: SocketAddr,
}

impl Site {
    /// In front of a server of HTTP/1.1.
    pub fn before(server: SocketAddr) -> Site {
        Site::with("{ up: [\"http://{upstream}\"] }", server, &[])
    }

    /// In front of a server of HTTP/2 without TLS.
    pub fn before_http2(server: SocketAddr) -> Site {
        let upstreams = "{ up: { servers: [\"http://{upstream}\"], protocol: h2 } }";
        Site::with(upstreams, server, &[])
    }

    /// In front of upstreams that are written so, with files beside the configuration.
    pub fn with(upstreams: &str, server: SocketAddr, files: &[(&str, &str)]) -> Site {
        let folder = tempfile::tempdir().unwrap();
        // IPv4's own address, for `localhost` is IPv6 first to some clients.
        let own = Certificate::of(&["127.0.0.1"]);
        // A request is taken back by closing its connection.
        let more = format!("upstreams: {upstreams}\ntimeouts: {{ half_close: gone }}\n");
        write(&folder, server, &more, POLICIES);
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let file = folder.path().join("tollgate.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let listen = "listen:\n  - 127.0.0.1:0\n\
                      \x20 - { address: 127.0.0.1:0, tls: { cert: own.pem, key: own.key } }\n";
        put(
            "tollgate.yaml",
            &text.replace("listen: 127.0.0.1:0\n", listen),
        );
        put("own.pem", &own.pem);
        put("own.key", &own.key);
        for (name, text) in files {
            put(name, text);
        }
        let gateway = Gateway::start_in(folder, Clock::system());
        let addresses = gateway.app.addresses();
        let [plain, tls] = [0, 1].map(|place: usize| addresses[place].tcp().unwrap());
        Site {
            gateway,
            plain,
            tls,
        }
    }

    /// A place in it without TLS.
    pub fn http(&self, path: &str) -> String {
        format!("http://{}{path}", self.plain)
    }

    /// The same place with TLS.
    pub fn https(&self, path: &str) -> String {
        format!("https://{}{path}", self.tls)
    }

    /// The authority that clients have to trust.
    pub fn authority(&self) -> PathBuf {
        self.gateway.folder.path().join("own.pem")
    }
}
