//! The sections `listen` and `admin`: where clients and operators connect.

use super::super::collect::Cx;
use super::super::model::{
    AcmeConfig, AdminConfig, CertificateConfig, CertificateFiles, ListenerConfig, Located,
};
use super::super::table::{Table, ValueShape, either, may, must};
use super::super::tree::{Node, YamlValue};
use super::invalid;
use super::leaf::{ADDRESS, LISTEN, MODE, PATH, PEERS};
use super::switch::is_off;
use crate::net::Address;
use crate::net::tls::acme::Challenge;

static ACME: Table = Table {
    name: "`acme`",
    doc: "A certificate that a directory issues by ACME, RFC 8555, and that is renewed. To ask for it is to agree to the directory's terms.",
    fields: &[
        must(
            "domains",
            ValueShape::Many(&ValueShape::Text),
            "The host names that it is for.",
            "[api.example.com]",
        ),
        may(
            "directory",
            ValueShape::Text,
            "The URL of the directory. Default: that of Let's Encrypt.",
            "https://acme-v02.api.letsencrypt.org/directory",
        ),
        may(
            "contact",
            ValueShape::Text,
            "An email address at which the directory may write to you.",
            "ops@example.com",
        ),
        may(
            "challenge",
            ValueShape::Words(&["tls-alpn-01", "http-01"]),
            "How the names are proven: in a handshake at port 443, or by a listener without TLS at port 80. Default: tls-alpn-01.",
            "http-01",
        ),
        may(
            "dir",
            ValueShape::Form(&PATH),
            "The folder of the account and the certificates. Default: acme.",
            "acme",
        ),
        may(
            "roots",
            ValueShape::Form(&PATH),
            "Authorities that verify the directory, in PEM. Default: those of the system.",
            "ca.pem",
        ),
    ],
};

static TLS: Table = Table {
    name: "`tls`",
    doc: "A certificate of a TLS listener, from two files or from a directory.",
    fields: &[
        either(
            "cert",
            ValueShape::Form(&PATH),
            "The certificate chain in PEM.",
            "cert.pem",
        ),
        may(
            "key",
            ValueShape::Form(&PATH),
            "With `cert`, and must: its private key in PEM.",
            "key.pem",
        ),
        either(
            "acme",
            ValueShape::Table(&ACME),
            "Asks a directory for it and renews it.",
            "{ domains: [api.example.com] }",
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
            ValueShape::Form(&LISTEN),
            "Address and port, or `unix:` and the path of a Unix socket.",
            "0.0.0.0:8443",
        ),
        may(
            "mode",
            ValueShape::Form(&MODE),
            "The permissions of the file of a Unix socket: who may write to it may connect. Default: 0660.",
            "\"0660\"",
        ),
        may(
            "tls",
            ValueShape::Many(&ValueShape::Table(&TLS)),
            "Speaks TLS with this certificate, or with the one of several whose names the client asks for; the first is for all others.",
            "{ cert: cert.pem, key: key.pem }",
        ),
        may(
            "client_roots",
            ValueShape::Form(&PATH),
            "With `tls`: asks clients for a certificate of one of these authorities, in PEM. Clients without one are anonymous; those with another one are refused.",
            "clients.pem",
        ),
        may(
            "proxy_protocol",
            ValueShape::Many(&ValueShape::Form(&PEERS)),
            "Peers that begin each connection with a header of the PROXY protocol, version 1 or 2, and must; from others it is no request.",
            "[10.0.0.0/8]",
        ),
    ],
};

/// The admin listener with more than an address.
pub static ADMIN: Table = Table {
    name: "`admin`",
    doc: "Where operators connect.",
    fields: &[
        may(
            "address",
            ValueShape::Form(&ADDRESS),
            "Address and port. Default: 127.0.0.1:9900.",
            "127.0.0.1:9900",
        ),
        may(
            "token_file",
            ValueShape::Form(&PATH),
            "The file of the token that operators must send; required unless the address is loopback.",
            "admin.token",
        ),
        may(
            "probes",
            ValueShape::Form(&ADDRESS),
            "Where orchestrators and scrapers ask for `/healthz`, `/readyz` and `/metrics`, without a token and for nothing else.",
            "0.0.0.0:9901",
        ),
    ],
};

/// Reads one listener.
pub fn listener(cx: &mut Cx, node: &Node) -> Option<Located<ListenerConfig>> {
    if !matches!(node.value, YamlValue::Map(_)) {
        return Some(cx.listen_address(node)?.map(|address| ListenerConfig {
            address,
            mode: None,
            tls: Vec::new(),
            client_roots: None,
            proxies: Vec::new(),
        }));
    }
    let fields = LISTENER.open(cx, node)?;
    let tls = fields
        .get("tls")
        .map_or_else(Vec::new, |node| cx.many(node, tls));
    let address = fields
        .get("address")
        .and_then(|node| cx.listen_address(node))?;
    let mode = fields.get("mode").and_then(|node| cx.mode(node));
    if let (Address::Tcp(_), Some(mode)) = (&address.value, &mode) {
        let help = "drop it; `mode` is for an address such as `unix:/run/tollgate.sock`";
        cx.error(mode.place, "a port has no permissions", Some(help.into()));
    }
    let client_roots = fields.get("client_roots").and_then(|node| {
        if tls.is_empty() && !fields.has("tls") {
            let help = "add `tls: { cert: cert.pem, key: key.pem }`";
            cx.error(node.place, "`client_roots` needs `tls`", Some(help.into()));
        }
        cx.text(node, "the name of a file")
    });
    let proxies = fields
        .get("proxy_protocol")
        .map_or_else(Vec::new, |node| cx.believed(node));
    Some(address.map(|address| ListenerConfig {
        address,
        mode: mode.map(|mode| mode.value),
        tls,
        client_roots,
        proxies,
    }))
}

fn tls(cx: &mut Cx, node: &Node) -> Option<CertificateConfig> {
    let fields = TLS.open(cx, node)?;
    if let Some(node) = fields.get("acme") {
        for other in ["cert", "key"] {
            if fields.has(other) {
                let message = format!("`{other}` and `acme` exclude each other");
                let help =
                    "of several certificates write a list: `tls: [{ cert: .. }, { acme: .. }]`";
                cx.error(fields.place_of(other), message, Some(help.into()));
            }
        }
        return acme(cx, node).map(CertificateConfig::Acme);
    }
    if !fields.has("key") && fields.has("cert") {
        let message = "`cert` needs `key`, its private key";
        let help = "for instance `key: key.pem`";
        cx.error(fields.place_of("cert"), message, Some(help.into()));
    }
    let cert = fields
        .get("cert")
        .and_then(|node| cx.text(node, "the name of a file"));
    let key = fields.get("key").and_then(|node| cx.secret_file(node));
    Some(CertificateConfig::Files(CertificateFiles {
        cert: cert?,
        key: key?,
    }))
}

/// Most names of one certificate, as Let's Encrypt has it.
const MAX_NAMES: usize = 100;

fn acme(cx: &mut Cx, node: &Node) -> Option<AcmeConfig> {
    let fields = ACME.open(cx, node)?;
    let names = fields.get("domains").map_or_else(Vec::new, |node| {
        let names = cx.many(node, domain);
        if names.len() > MAX_NAMES {
            let message = format!("a certificate is for at most {MAX_NAMES} names");
            cx.error(node.place, message, Some("write several".into()));
        }
        names
    });
    let directory = fields.get("directory").and_then(|node| {
        cx.read(node, "a URL such as https://ca.example/directory", |text| {
            let url = text.parse::<http::Uri>().ok();
            let url = url.filter(|url| url.scheme_str() == Some("https") && url.host().is_some());
            let wrong = || invalid(format!("`{text}` is not a URL of a directory"), DIRECTORY);
            url.map(|url| url.to_string()).ok_or_else(wrong)
        })
    });
    let contact = fields.get("contact").and_then(|node| {
        cx.read(node, "an email address", |text| {
            let address = text.strip_prefix("mailto:").unwrap_or(text);
            let fits = address.contains('@') && address.bytes().all(|byte| byte.is_ascii_graphic());
            let wrong = || invalid(format!("`{text}` is not an email address"), "write one");
            fits.then(|| address.to_owned()).ok_or_else(wrong)
        })
    });
    let words = [
        ("tls-alpn-01", Challenge::TlsAlpn01),
        ("http-01", Challenge::Http01),
    ];
    let challenge = match fields.get("challenge") {
        Some(node) => cx.word(node, &words)?,
        None => Located {
            value: Challenge::TlsAlpn01,
            place: fields.place,
        },
    };
    let mut file = |name| {
        let node = fields.get(name)?;
        cx.text(node, "the name of a file")
    };
    let (dir, roots) = (file("dir"), file("roots"));
    Some(AcmeConfig {
        names,
        directory: directory.map(|url| url.value),
        contact: contact.map(|contact| contact.value),
        dir: dir.map(|dir| dir.value),
        challenge,
        roots,
    })
}

const DIRECTORY: &str = "write for instance `https://acme-v02.api.letsencrypt.org/directory`";

fn domain(cx: &mut Cx, node: &Node) -> Option<Located<String>> {
    cx.read(node, "a host name such as api.example.com", |text| {
        let name = text.to_ascii_lowercase();
        if name.starts_with("*.") {
            let message = "a name with `*` can be proven in the DNS only, which is not supported";
            return Err(invalid(
                message,
                "write each name, or a certificate from files",
            ));
        }
        let label = |label: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            let ends = label.starts_with('-') || label.ends_with('-');
            (1..=63).contains(&label.len()) && label.bytes().all(plain) && !ends
        };
        let address = name.parse::<std::net::IpAddr>().is_ok();
        if address || name.len() > 253 || !name.split('.').all(label) {
            let message = format!("`{text}` is not a host name");
            return Err(invalid(
                message,
                "write it as the DNS does: letters, digits, `-` and dots",
            ));
        }
        Ok(name)
    })
}

/// Reads `admin`.
pub fn admin(cx: &mut Cx, node: &Node) -> AdminConfig {
    if node.text().is_some_and(is_off) {
        return AdminConfig::Off;
    }
    if !matches!(node.value, YamlValue::Map(_)) {
        return AdminConfig::On {
            address: cx.address(node),
            token_file: None,
            probes: None,
        };
    }
    let Some(fields) = ADMIN.open(cx, node) else {
        return AdminConfig::Off;
    };
    let token_file = fields.get("token_file");
    AdminConfig::On {
        token_file: token_file.and_then(|node| cx.secret_file(node)),
        address: fields.get("address").and_then(|node| cx.address(node)),
        probes: fields.get("probes").and_then(|node| cx.address(node)),
    }
}
