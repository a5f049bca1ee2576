//! Reads the sections `listen` and `admin`: the listeners for clients and for operators, with their certificates. The
//! files of certificates are read later, when the model is compiled.

use super::super::context::LoadContext;
use super::super::model::{
    AcmeConfig, AdminConfig, CertificateConfig, CertificateFiles, ListenerConfig, Located,
};
use super::super::table::{Table, ValueShape, alternative, optional, required};
use super::super::tree::{Node, YamlValue};
use super::ValueError;
use super::scalar::{
    ADDRESS_FORMAT, FILE_MODE_FORMAT, LISTEN_ADDRESS_FORMAT, PATH_FORMAT, PEERS_FORMAT,
};
use super::switch_word::is_off;
use crate::net::Address;
use crate::net::tls::acme::Challenge;

static ACME_TABLE: Table = Table {
    name: "`acme`",
    doc: "A certificate that a directory issues by ACME, RFC 8555, and that is renewed. To ask for it is to agree to the directory's terms.",
    fields: &[
        required(
            "domains",
            ValueShape::OneOrList(&ValueShape::Text),
            "The host names that it is for.",
            "[api.example.com]",
        ),
        optional(
            "directory",
            ValueShape::Text,
            "The URL of the directory. Default: that of Let's Encrypt.",
            "https://acme-v02.api.letsencrypt.org/directory",
        ),
        optional(
            "contact",
            ValueShape::Text,
            "An email address at which the directory may write to you.",
            "ops@example.com",
        ),
        optional(
            "challenge",
            ValueShape::Words(&["tls-alpn-01", "http-01"]),
            "How the names are proven: in a handshake at port 443, or by a listener without TLS at port 80. Default: tls-alpn-01.",
            "http-01",
        ),
        optional(
            "dir",
            ValueShape::Format(&PATH_FORMAT),
            "The folder of the account and the certificates. Default: acme.",
            "acme",
        ),
        optional(
            "roots",
            ValueShape::Format(&PATH_FORMAT),
            "Authorities that verify the directory, in PEM. Default: those of the system.",
            "ca.pem",
        ),
    ],
};

static TLS_TABLE: Table = Table {
    name: "`tls`",
    doc: "A certificate of a TLS listener, from two files or from a directory.",
    fields: &[
        alternative(
            "cert",
            ValueShape::Format(&PATH_FORMAT),
            "The certificate chain in PEM.",
            "cert.pem",
        ),
        optional(
            "key",
            ValueShape::Format(&PATH_FORMAT),
            "With `cert`, and must: its private key in PEM.",
            "key.pem",
        ),
        alternative(
            "acme",
            ValueShape::Table(&ACME_TABLE),
            "Asks a directory for it and renews it.",
            "{ domains: [api.example.com] }",
        ),
    ],
};

pub static LISTENER_TABLE: Table = Table {
    name: "a listener",
    doc: "Where clients connect.",
    fields: &[
        required(
            "address",
            ValueShape::Format(&LISTEN_ADDRESS_FORMAT),
            "Address and port, or `unix:` and the path of a Unix socket.",
            "0.0.0.0:8443",
        ),
        optional(
            "mode",
            ValueShape::Format(&FILE_MODE_FORMAT),
            "The permissions of the file of a Unix socket: who may write to it may connect. Default: 0660.",
            "\"0660\"",
        ),
        optional(
            "tls",
            ValueShape::OneOrList(&ValueShape::Table(&TLS_TABLE)),
            "Speaks TLS with this certificate, or with the one of several whose names the client asks for; the first is for all others.",
            "{ cert: cert.pem, key: key.pem }",
        ),
        optional(
            "client_roots",
            ValueShape::Format(&PATH_FORMAT),
            "With `tls`: asks clients for a certificate of one of these authorities, in PEM. Clients without one are anonymous; those with another one are refused.",
            "clients.pem",
        ),
        optional(
            "proxy_protocol",
            ValueShape::OneOrList(&ValueShape::Format(&PEERS_FORMAT)),
            "Peers that begin each connection with a header of the PROXY protocol, version 1 or 2, and must; from others it is no request.",
            "[10.0.0.0/8]",
        ),
    ],
};

pub static ADMIN_TABLE: Table = Table {
    name: "`admin`",
    doc: "Where operators connect.",
    fields: &[
        optional(
            "address",
            ValueShape::Format(&ADDRESS_FORMAT),
            "Address and port. Default: 127.0.0.1:9900.",
            "127.0.0.1:9900",
        ),
        optional(
            "token_file",
            ValueShape::Format(&PATH_FORMAT),
            "The file of the token that operators must send; required unless the address is loopback.",
            "admin.token",
        ),
        optional(
            "probes",
            ValueShape::Format(&ADDRESS_FORMAT),
            "Where orchestrators and scrapers ask for `/healthz`, `/readyz` and `/metrics`, without a token and for nothing else.",
            "0.0.0.0:9901",
        ),
    ],
};

/// Reads one listener: an address, or a map.
pub fn read_listener(cx: &mut LoadContext, node: &Node) -> Option<Located<ListenerConfig>> {
    if !matches!(node.value, YamlValue::Map(_)) {
        return Some(cx.read_listen_address(node)?.map(|address| ListenerConfig {
            address,
            mode: None,
            tls: Vec::new(),
            client_roots: None,
            proxies: Vec::new(),
        }));
    }
    let fields = LISTENER_TABLE.open(cx, node)?;
    let tls = fields
        .get("tls")
        .map_or_else(Vec::new, |node| cx.read_list(node, read_certificate));
    let address = fields
        .get("address")
        .and_then(|node| cx.read_listen_address(node))?;
    let mode = fields.get("mode").and_then(|node| cx.read_file_mode(node));
    if let (Address::Tcp(_), Some(mode)) = (&address.value, &mode) {
        let help = "drop it; `mode` is for an address such as `unix:/run/tollgate.sock`";
        cx.error(
            mode.location,
            "a port has no permissions",
            Some(help.into()),
        );
    }
    let client_roots = fields.get("client_roots").and_then(|node| {
        if tls.is_empty() && !fields.has("tls") {
            let help = "add `tls: { cert: cert.pem, key: key.pem }`";
            cx.error(
                node.location,
                "`client_roots` needs `tls`",
                Some(help.into()),
            );
        }
        cx.read_text(node, "the name of a file")
    });
    let proxies = fields
        .get("proxy_protocol")
        .map_or_else(Vec::new, |node| cx.read_trusted_peers(node));
    Some(address.map(|address| ListenerConfig {
        address,
        mode: mode.map(|mode| mode.value),
        tls,
        client_roots,
        proxies,
    }))
}

/// Reads a certificate: a pair of files, or an ACME directory.
fn read_certificate(cx: &mut LoadContext, node: &Node) -> Option<CertificateConfig> {
    let fields = TLS_TABLE.open(cx, node)?;
    if let Some(node) = fields.get("acme") {
        for other in ["cert", "key"] {
            if fields.has(other) {
                let message = format!("`{other}` and `acme` exclude each other");
                let help =
                    "of several certificates write a list: `tls: [{ cert: .. }, { acme: .. }]`";
                cx.error(fields.location_of(other), message, Some(help.into()));
            }
        }
        return read_acme(cx, node).map(CertificateConfig::Acme);
    }
    if !fields.has("key") && fields.has("cert") {
        let message = "`cert` needs `key`, its private key";
        let help = "for instance `key: key.pem`";
        cx.error(fields.location_of("cert"), message, Some(help.into()));
    }
    let cert = fields
        .get("cert")
        .and_then(|node| cx.read_text(node, "the name of a file"));
    let key = fields
        .get("key")
        .and_then(|node| cx.read_secret_file_name(node));
    Some(CertificateConfig::Files(CertificateFiles {
        cert: cert?,
        key: key?,
    }))
}

/// Maximum number of names of a certificate: the limit of Let's Encrypt.
const MAX_CERTIFICATE_NAMES: usize = 100;

/// Maximum number of bytes of a host name, of which each label has at most [`MAX_LABEL_BYTES`]: RFC 1035.
const MAX_HOST_NAME_BYTES: usize = 253;
/// Maximum number of bytes of a label of a host name.
const MAX_LABEL_BYTES: usize = 63;

const DIRECTORY_HELP: &str = "write for instance `https://acme-v02.api.letsencrypt.org/directory`";

fn read_acme(cx: &mut LoadContext, node: &Node) -> Option<AcmeConfig> {
    let fields = ACME_TABLE.open(cx, node)?;
    let names = fields.get("domains").map_or_else(Vec::new, |node| {
        let names = cx.read_list(node, read_domain);
        if names.len() > MAX_CERTIFICATE_NAMES {
            let message = format!("a certificate is for at most {MAX_CERTIFICATE_NAMES} names");
            cx.error(node.location, message, Some("write several".into()));
        }
        names
    });
    let directory = fields.get("directory").and_then(|node| {
        let expected = "a URL such as https://ca.example/directory";
        cx.read_scalar(node, expected, parse_directory_url)
    });
    let contact = fields
        .get("contact")
        .and_then(|node| cx.read_scalar(node, "an email address", parse_contact));
    let words = [
        ("tls-alpn-01", Challenge::TlsAlpn01),
        ("http-01", Challenge::Http01),
    ];
    let challenge = match fields.get("challenge") {
        Some(node) => cx.read_word(node, &words)?,
        None => Located {
            value: Challenge::TlsAlpn01,
            location: fields.location,
        },
    };
    let mut read_file_name = |name| {
        let node = fields.get(name)?;
        cx.read_text(node, "the name of a file")
    };
    let (dir, roots) = (read_file_name("dir"), read_file_name("roots"));
    Some(AcmeConfig {
        names,
        directory: directory.map(|url| url.value),
        contact: contact.map(|contact| contact.value),
        dir: dir.map(|dir| dir.value),
        challenge,
        roots,
    })
}

fn parse_directory_url(text: &str) -> Result<String, ValueError> {
    let url = text.parse::<http::Uri>().ok();
    let url = url.filter(|url| url.scheme_str() == Some("https") && url.host().is_some());
    url.map(|url| url.to_string()).ok_or_else(|| {
        let message = format!("`{text}` is not a URL of a directory");
        ValueError::new(message, DIRECTORY_HELP)
    })
}

/// Parses an email address, which may be written as a `mailto:` URL.
fn parse_contact(text: &str) -> Result<String, ValueError> {
    let address = text.strip_prefix("mailto:").unwrap_or(text);
    let is_address = address.contains('@') && address.bytes().all(|byte| byte.is_ascii_graphic());
    is_address.then(|| address.to_owned()).ok_or_else(|| {
        let message = format!("`{text}` is not an email address");
        ValueError::new(message, "write one")
    })
}

fn read_domain(cx: &mut LoadContext, node: &Node) -> Option<Located<String>> {
    cx.read_scalar(node, "a host name such as api.example.com", |text| {
        let name = text.to_ascii_lowercase();
        if name.starts_with("*.") {
            let message = "a name with `*` can be proven in the DNS only, which is not supported";
            return Err(ValueError::new(
                message,
                "write each name, or a certificate from files",
            ));
        }
        let is_address = name.parse::<std::net::IpAddr>().is_ok();
        if is_address || name.len() > MAX_HOST_NAME_BYTES || !name.split('.').all(is_dns_label) {
            let message = format!("`{text}` is not a host name");
            return Err(ValueError::new(
                message,
                "write it as the DNS does: letters, digits, `-` and dots",
            ));
        }
        Ok(name)
    })
}

fn is_dns_label(label: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=MAX_LABEL_BYTES).contains(&label.len())
        && label.bytes().all(is_allowed)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Reads `admin`: a word that switches it off, an address, or a map.
pub fn read_admin(cx: &mut LoadContext, node: &Node) -> AdminConfig {
    if node.scalar().is_some_and(is_off) {
        return AdminConfig::Off;
    }
    if !matches!(node.value, YamlValue::Map(_)) {
        return AdminConfig::On {
            address: cx.read_socket_address(node),
            token_file: None,
            probes: None,
        };
    }
    let Some(fields) = ADMIN_TABLE.open(cx, node) else {
        return AdminConfig::Off;
    };
    let token_file = fields.get("token_file");
    AdminConfig::On {
        token_file: token_file.and_then(|node| cx.read_secret_file_name(node)),
        address: fields
            .get("address")
            .and_then(|node| cx.read_socket_address(node)),
        probes: fields
            .get("probes")
            .and_then(|node| cx.read_socket_address(node)),
    }
}
