//! Reads the sections `listen` and `admin`: the listeners for clients and for operators, with their certificates. The
//! files that they name are read later, when the model is compiled.

use super::super::context::LoadContext;
use super::super::section::{
    AlternativeField, FieldReader, LocatedField, RequiredField, Section, SectionField, section,
};
use super::super::table::{MapFields, ValueShape};
use super::super::tree::{Located, Node, YamlValue};
use super::ValueError;
use super::field::{
    BoolField, DurationField, FileNameField, ListField, SecretFileNameField, scalar_fields,
    word_fields,
};
use super::scalar::{
    ADDRESS_FORMAT, FileModeField, ListenAddressField, PeersField, SocketAddressField, parse_name,
};
use super::switch_word::is_off;
use crate::net::Address;
use crate::net::tls::acme::Challenge;

/// Maximum number of names of a certificate: the limit of Let's Encrypt.
const MAX_CERTIFICATE_NAMES: usize = 100;

/// Maximum number of bytes of a host name as text: RFC 1035 allows 255 with the lengths of the labels.
const MAX_HOST_NAME_BYTES: usize = 253;
/// Maximum number of bytes of each label of a host name: RFC 1035.
const MAX_LABEL_BYTES: usize = 63;

/// Maximum of `hsts` in milliseconds: ten years.
const MAX_HSTS_MILLIS: u64 = 3650 * 86_400_000;

section! {
    /// A listener for clients.
    pub struct ListenerConfig, table LISTENER_TABLE = "a listener", "Where clients connect.", check check_listener;
    name: LocatedField<ListenerNameField>, "The name by which policies say that they apply here only.", "public";
    address: RequiredField<ListenAddressField>,
        "Address and port, or `unix:` and the path of a Unix socket.", "0.0.0.0:8443";
    mode: LocatedField<FileModeField>,
        "The permissions of the file of a Unix socket: who may write to it may connect. Default: 0660.", "\"0660\"";
    tls: ListField<SectionField<CertificateConfig>> = Vec::new(),
        "The certificate for TLS, or several: a client gets the one for the name that it asks for, or else the first.", "{ cert: cert.pem, key: key.pem }";
    hsts: LocatedField<DurationField<0, MAX_HSTS_MILLIS>>,
        "With `tls`: how long browsers use only TLS for the host, by `Strict-Transport-Security` in every response. `0s` ends it.", "365d";
    http3: LocatedField<BoolField>,
        "With `tls`: clients may use HTTP/3 too, over UDP at the same port. Responses over TCP say so by `Alt-Svc`.", "true";
    client_roots: FileNameField,
        "With `tls`: asks clients for a certificate of one of these authorities, in PEM. Clients without one are anonymous; those with another one are refused.", "clients.pem";
    redirect: LocatedField<ListenerRedirectField>,
        "Without `tls`: sends every request to the same URL over TLS, before any policy, at the port of the first listener with `tls`. ACME challenges are still answered.", "https";
    proxy_protocol: ListField<PeersField> = Vec::new(),
        "Peers that must begin each connection with a header of the PROXY protocol, version 1 or 2. Other peers must not send one.", "[192.0.2.0/24]";
}

section! {
    /// The source of a listener's certificate: two files, or an ACME directory.
    pub struct CertificateConfig, table TLS_TABLE = "`tls`",
        "A certificate of a TLS listener, from two files or from a directory.", check check_certificate;
    cert: AlternativeField<FileNameField>, "The certificate chain in PEM.", "cert.pem";
    key: SecretFileNameField, "Required with `cert`: its private key in PEM.", "key.pem";
    acme: AlternativeField<LocatedField<SectionField<AcmeConfig>>>,
        "Asks a directory for it and renews it.", "{ domains: [api.example.com] }";
}

section! {
    /// A certificate that an ACME directory issues.
    pub struct AcmeConfig, table ACME_TABLE = "`acme`",
        "A certificate that a directory issues by ACME, RFC 8555, and that is renewed. To ask for it is to agree to the directory's terms.", check check_domains;
    domains: RequiredField<ListField<LocatedField<DomainField>>> = Vec::new(),
        "The host names that it is for.", "[api.example.com]";
    directory: DirectoryField,
        "The URL of the directory. Default: that of Let's Encrypt.", "https://acme-v02.api.letsencrypt.org/directory";
    contact: ContactField, "An email address at which the directory may write to you.", "ops@example.com";
    challenge: LocatedField<ChallengeField>,
        "How the names are proven: in a handshake at port 443, or by a listener without TLS at port 80. Default: tls-alpn-01.", "http-01";
    dir: FileNameField, "The folder of the account and the certificates. Default: acme.", "acme";
    roots: FileNameField, "Authorities that verify the directory, in PEM. Default: those of the system.", "ca.pem";
}

/// The most other gateways that one asks for their figures.
const MAX_PEERS: usize = 32;

section! {
    /// The listeners for operators and orchestrators.
    pub struct AdminConfig, table ADMIN_TABLE = "`admin`", "Where operators connect.", check check_admin;
    address: LocatedField<SocketAddressField>, "Address and port. Default: 127.0.0.1:9900.", "127.0.0.1:9900";
    token_file: SecretFileNameField,
        "The file of one token that may do everything. This or `tokens` is required unless the address is loopback.", "admin.token";
    tokens: SecretFileNameField,
        "The file of the tokens of several operators, each with a name and the right `read`, `support` or `admin`.", "operators.yaml";
    probes: LocatedField<SocketAddressField>,
        "Where orchestrators and scrapers ask for `/healthz`, `/readyz` and `/metrics`, without a token and for nothing else.", "0.0.0.0:9901";
    peers: ListField<LocatedField<SocketAddressField>> = Vec::new(),
        "The admin listeners of other gateways, whose figures the dashboard shows beside its own; at most 32. This gateway's own may be among them.", "[127.0.0.2:9900, 127.0.0.3:9900]";
    peers_token_file: SecretFileNameField,
        "The file of the token that is sent to `peers`, with the right `read` there.", "peers.token";
}

word_fields! {
    /// A field that says where a listener sends every request.
    pub struct ListenerRedirectField: () = "https" => ();
    /// A field that says how an ACME directory proves the names of a certificate.
    pub struct ChallengeField: Challenge = "tls-alpn-01" => Challenge::TlsAlpn01, "http-01" => Challenge::Http01;
}

scalar_fields! {
    /// A field with the name of a listener.
    pub struct ListenerNameField: String =
        ValueShape::Text, "the name of a listener", |text| Ok(parse_name(text, "a listener")?.to_string());
    /// A field with a host name of an ACME certificate, which becomes lower case.
    pub struct DomainField: String = ValueShape::Text, "a host name such as api.example.com", parse_domain;
    /// A field with the URL of an ACME directory.
    pub struct DirectoryField: String =
        ValueShape::Text, "a URL such as https://ca.example/directory", parse_directory_url;
    /// A field with the email address of the operator.
    pub struct ContactField: String = ValueShape::Text, "an email address", parse_contact;
}

impl ListenerConfig {
    /// Whether clients connect with TLS.
    pub fn is_tls(&self) -> bool {
        !self.tls.is_empty()
    }

    /// The port; `None` for a Unix socket, and for a missing or invalid address.
    pub fn port(&self) -> Option<u16> {
        Some(self.address.as_ref()?.value.tcp()?.port())
    }
}

impl AcmeConfig {
    /// Whether both are written alike, apart from their locations in the files. Names in another order and a default
    /// that only one of them spells out are differences.
    pub fn is_same_certificate(&self, other: &AcmeConfig) -> bool {
        let domains = self.domains.iter().map(|domain| &domain.value);
        let file_name =
            |file: &Option<Located<String>>| file.as_ref().map(|file| file.value.clone());
        domains.eq(other.domains.iter().map(|domain| &domain.value))
            && self.challenge() == other.challenge()
            && (&self.directory, &self.contact) == (&other.directory, &other.contact)
            && file_name(&self.dir) == file_name(&other.dir)
            && file_name(&self.roots) == file_name(&other.roots)
    }

    /// How the gateway proves that it owns the names; by default in a TLS handshake.
    pub fn challenge(&self) -> Challenge {
        self.challenge
            .map_or(Challenge::TlsAlpn01, |challenge| challenge.value)
    }
}

/// A field with a listener: its address, or a map.
pub struct ListenerField;

impl FieldReader for ListenerField {
    type Value = ListenerConfig;
    const SHAPE: ValueShape = ValueShape::AnyOf(&[
        ValueShape::Format(&ADDRESS_FORMAT),
        ValueShape::Table(&LISTENER_TABLE),
    ]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<ListenerConfig> {
        if matches!(node.value, YamlValue::Map(_)) {
            return ListenerConfig::read(cx, node);
        }
        Some(ListenerConfig {
            address: Some(ListenAddressField::read(cx, node)?),
            ..ListenerConfig::default()
        })
    }
}

/// A field with the admin listener: its address, a map, or a word that switches it off, which is read as [`None`].
pub struct AdminField;

impl FieldReader for AdminField {
    type Value = Option<AdminConfig>;
    const SHAPE: ValueShape = ValueShape::AnyOf(&[
        ValueShape::Words(&["off"]),
        ValueShape::Format(&ADDRESS_FORMAT),
        ValueShape::Table(&ADMIN_TABLE),
    ]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Option<AdminConfig>> {
        if node.scalar().is_some_and(is_off) {
            return Some(None);
        }
        if matches!(node.value, YamlValue::Map(_)) {
            return AdminConfig::read(cx, node).map(Some);
        }
        Some(Some(AdminConfig {
            address: LocatedField::<SocketAddressField>::read(cx, node),
            ..AdminConfig::default()
        }))
    }
}

/// Reports `mode` without a Unix socket, `client_roots`, `hsts` and `http3` without TLS, `http3` without UDP or with the
/// PROXY protocol, and `redirect` with TLS.
fn check_listener(cx: &mut LoadContext, fields: &MapFields<'_>, listener: &ListenerConfig) {
    let is_port = |address: &Located<Address>| address.value.tcp().is_some();
    if let Some(mode) = listener.mode
        && listener.address.as_ref().is_some_and(is_port)
    {
        let help = "drop it; `mode` is for an address such as `unix:/run/tollgate.sock`";
        cx.error(
            mode.location,
            "a port has no permissions",
            Some(help.into()),
        );
    }
    for name in ["client_roots", "hsts", "http3"] {
        if fields.has(name) && !fields.has("tls") {
            let help = "add `tls: { cert: cert.pem, key: key.pem }`";
            let message = format!("`{name}` needs `tls`");
            cx.error(fields.value_location(name), message, Some(help.into()));
        }
    }
    let is_socket = |address: &Located<Address>| address.value.tcp().is_none();
    if fields.has("http3") && listener.address.as_ref().is_some_and(is_socket) {
        let help = "write it at a listener with a port, such as `0.0.0.0:443`";
        let message = "a Unix socket has no HTTP/3, which needs UDP";
        cx.error(fields.location_of("http3"), message, Some(help.into()));
    }
    if fields.has("http3") && fields.has("proxy_protocol") {
        let help = "drop one; clients behind a proxy that uses the PROXY protocol come by TCP only";
        let message = "`http3` and `proxy_protocol` exclude each other";
        cx.error(fields.location_of("http3"), message, Some(help.into()));
    }
    if fields.has("tls") && fields.has("redirect") {
        let help = "write it at a listener without `tls`";
        let location = fields.location_of("redirect");
        cx.error(
            location,
            "this listener speaks TLS already",
            Some(help.into()),
        );
    }
}

/// Reports a file of one token beside one of several, a token for peers without peers, and too many peers.
fn check_admin(cx: &mut LoadContext, fields: &MapFields<'_>, admin: &AdminConfig) {
    if fields.has("peers_token_file") && !fields.has("peers") {
        let message = "`peers_token_file` needs `peers`";
        let help = "name the admin listeners of the other gateways, as `peers: [127.0.0.2:9900]`";
        let location = fields.location_of("peers_token_file");
        cx.error(location, message, Some(help.into()));
    }
    if admin.peers.len() > MAX_PEERS {
        let message = format!(
            "there are {} peers; the most is {MAX_PEERS}",
            admin.peers.len()
        );
        let help = "name those of one region, and the others at a gateway there";
        cx.error(fields.value_location("peers"), message, Some(help.into()));
    }
    if fields.has("token_file") && fields.has("tokens") {
        let message = "`token_file` and `tokens` exclude each other";
        let help =
            "move the token into the other file, as `admin: { token: TOKEN, rights: admin }`";
        cx.error(fields.location_of("token_file"), message, Some(help.into()));
    }
}

/// Reports files beside an ACME directory, and a certificate without its key.
fn check_certificate(cx: &mut LoadContext, fields: &MapFields<'_>, _: &CertificateConfig) {
    let has_acme = fields.has("acme");
    for other in ["cert", "key"] {
        if has_acme && fields.has(other) {
            let message = format!("`{other}` and `acme` exclude each other");
            let help = "of several certificates write a list: `tls: [{ cert: .. }, { acme: .. }]`";
            cx.error(fields.location_of(other), message, Some(help.into()));
        }
    }
    if !has_acme && fields.has("cert") && !fields.has("key") {
        let message = "`cert` needs `key`, its private key";
        let help = "for instance `key: key.pem`";
        cx.error(fields.location_of("cert"), message, Some(help.into()));
    }
}

/// Reports more than [`MAX_CERTIFICATE_NAMES`] names of one certificate.
fn check_domains(cx: &mut LoadContext, fields: &MapFields<'_>, acme: &AcmeConfig) {
    if acme.domains.len() > MAX_CERTIFICATE_NAMES {
        let message = format!("a certificate is for at most {MAX_CERTIFICATE_NAMES} names");
        let location = fields.value_location("domains");
        cx.error(location, message, Some("write several".into()));
    }
}

/// Parses the URL of an ACME directory, which must be https:// with a host.
fn parse_directory_url(text: &str) -> Result<String, ValueError> {
    let parsed = text.parse::<http::Uri>().ok();
    let url = parsed.filter(|url| url.scheme_str() == Some("https") && url.host().is_some());
    url.map(|url| url.to_string()).ok_or_else(|| {
        let message = format!("`{text}` is not a URL of a directory");
        let help = "write for instance `https://acme-v02.api.letsencrypt.org/directory`";
        ValueError::new(message, help)
    })
}

/// Parses an email address, which may be written as a `mailto:` URL. It must consist of visible ASCII characters with
/// an `@` among them.
fn parse_contact(text: &str) -> Result<String, ValueError> {
    let address = text.strip_prefix("mailto:").unwrap_or(text);
    let is_address = address.contains('@') && address.bytes().all(|byte| byte.is_ascii_graphic());
    is_address.then(|| address.to_owned()).ok_or_else(|| {
        let message = format!("`{text}` is not an email address");
        ValueError::new(message, "write one")
    })
}

/// Parses a host name, and returns it in lower case. An IP address and a name with `*` are mistakes.
fn parse_domain(text: &str) -> Result<String, ValueError> {
    let name = text.to_ascii_lowercase();
    if name.starts_with("*.") {
        let message = "a name with `*` can be proven in the DNS only, which is not supported";
        let help = "write each name, or a certificate from files";
        return Err(ValueError::new(message, help));
    }
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    if is_address || name.len() > MAX_HOST_NAME_BYTES || !name.split('.').all(is_dns_label) {
        let message = format!("`{text}` is not a host name");
        let help = "write it as the DNS does: letters, digits, `-` and dots";
        return Err(ValueError::new(message, help));
    }
    Ok(name)
}

/// Whether the text is a label of a host name: 1 to [`MAX_LABEL_BYTES`] ASCII letters, digits and inner hyphens (RFC
/// 1123 section 2.1).
fn is_dns_label(label: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=MAX_LABEL_BYTES).contains(&label.len())
        && label.bytes().all(is_allowed)
        && !label.starts_with('-')
        && !label.ends_with('-')
}
