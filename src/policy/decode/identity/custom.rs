//! Reads the custom identities: those that the section `identity` defines beside the built-in ones.

use ipnet::IpNet;

use super::super::super::context::LoadContext;
use super::super::super::section::{FieldReader, LocatedField, Named, section};
use super::super::super::table::{MapFields, ValueShape};
use super::super::super::tree::{Located, Node};
use super::super::ValueError;
use super::super::field::{
    BoolField, FileName, FileNameField, ListField, scalar_fields, word_fields,
};
use super::super::scalar::{
    ClaimField, HeaderNameField, NETWORK_FORMAT, NetworkField, PATH_FORMAT, parse_name,
};
use super::request::{BodyFieldNameField, CookieNameField, QueryNameField};
use crate::base::suggest::nearest_word;
use crate::identity::strip::is_unfit_for_identity;
use crate::identity::user::CertificateName;
use crate::limit::custom_identity::PREFLIGHT;
use crate::limit::{CustomIdentity, Identity};

/// The fields of which exactly one says where the identity comes from.
const SOURCES: [&str; 10] = [
    "jwt", "api_keys", "header", "cookie", "query", "body", "path", "tls", "networks", "table",
];

/// Words that mean something else where names of identities stand: in keys, in `for` and in header fields.
const RESERVED_NAMES: [&str; 14] = [
    "and",
    "else",
    "expires",
    "everyone",
    "host",
    "or",
    "over",
    PREFLIGHT,
    "request_id",
    "route",
    "silent",
    "store",
    "unlimited",
    "unverified",
];

/// Maximum length in bytes of the name of an identity.
const MAX_NAME_BYTES: usize = 32;

section! {
    /// An identity that the gateway file defines. [`check_custom`] reports more or fewer than one source.
    pub struct CustomConfig, table CUSTOM_TABLE = "an identity of your own",
        "Where an identity of your own is found.", check check_custom;
    jwt: LocatedField<ClaimField>,
        "The claim of the verified token of `user`. Dots lead into nested claims; of a list, all values together are one.", "org.id";
    api_keys: LocatedField<BoolField>, "It stands beside the API key by this name, in the file or as `tollgate key add --set` says.", "true";
    header: HeaderNameField, "This header, which any client may send.", "x-device-id";
    cookie: CookieNameField, "This cookie. Only a hash of it is stored and shown.", "session";
    query: QueryNameField,
        "This parameter of the query. Bodies and cookies are searched too, because frameworks read them as one.", "key";
    body: BodyFieldNameField,
        "This field of a JSON, form or multipart body of at most 64 KiB; dots reach into nested objects. The query and cookies are searched too.", "params.name";
    path: PathPartField,
        "The part of the path that `match` calls by this name. A limit by it holds on routes whose `match` has the part.", "account";
    tls: LocatedField<TlsPartField>,
        "The verified certificate that the client shows, at listeners with `client_roots`; `subject` and `san` as for `client_cert`. Or `ja4`, the fingerprint of the client's handshake.", "subject";
    networks: NetworksField,
        "The name of the network that the client's address is in, of several the most specific. A name has networks, or files with one network a line, with or without `until` and a time.", "{ office: [192.0.2.0/24], partner: partner.txt }";
    table: FileNameField,
        "What this MaxMind DB file says of the client's address; with `field`.", "country.mmdb";
    field: LocatedField<TablePathField>,
        "The field of the table. Dots lead into maps, and numbers from 0 into lists.", "country.iso_code";
    forward: BoolField = false,
        "With jwt, api_keys, tls, networks or table: whether the upstream gets it in the header `tollgate-NAME`.", "true";
    metrics: BoolField = false,
        "With networks, api_keys or table: whether `tollgate_identity_requests_total` counts requests by its values. Of a table they are at most 300; beyond 1,000 values they are `other`.", "true";
}

/// The part of a TLS handshake that is an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPart {
    /// A name from the client's certificate.
    Certificate(CertificateName),
    /// The JA4 fingerprint of the client's hello.
    Ja4,
}

word_fields! {
    /// A field with the part of a TLS handshake that is an identity.
    pub struct TlsPartField: TlsPart =
        "subject" => TlsPart::Certificate(CertificateName::Subject),
        "san" => TlsPart::Certificate(CertificateName::San),
        "ja4" => TlsPart::Ja4;
}

scalar_fields! {
    /// A field with the path of a field in a table.
    pub struct TablePathField: String = ValueShape::Text, "the name of a field";
    /// A field with the name of a part of a path.
    pub struct PathPartField: String = ValueShape::Text, "the name of a part of the path";
}

/// A network, or a file of networks.
#[derive(Clone, Debug, PartialEq)]
pub enum NetworksItem {
    /// A network in the gateway file.
    Network(IpNet),
    /// The name of a file with one network in each line.
    File(Located<String>),
}

/// A field with named networks, at least one. An invalid name is reported, but kept.
pub struct NetworksField;

impl FieldReader for NetworksField {
    type Value = Vec<Named<Vec<NetworksItem>>>;
    const SHAPE: ValueShape = ValueShape::NamedMap(&ListField::<NetworksItemField>::SHAPE);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Self::Value> {
        let entries = cx.named_entries(node, "networks");
        if entries.is_empty() {
            let help = "write for instance `networks: { office: [192.0.2.0/24] }`";
            cx.error(node.location, "no network is named", Some(help.into()));
        }
        let mut named_networks = Vec::new();
        for (key, node) in entries {
            if let Err(ValueError { message, help, .. }) = parse_name(&key.text, "networks") {
                cx.error(key.location, message, help);
            } else if ["present", "absent"].contains(&key.text.as_str()) {
                let message = format!("`{}` has another meaning in `for`", key.text);
                cx.error(key.location, message, Some("choose another name".into()));
            }
            named_networks.extend(
                ListField::<NetworksItemField>::read(cx, node).map(|fields| Named {
                    name: Located {
                        value: key.text.clone(),
                        location: key.location,
                    },
                    fields,
                }),
            );
        }
        Some(named_networks)
    }
}

/// A field with a network, or with a file of them.
pub struct NetworksItemField;

impl FieldReader for NetworksItemField {
    type Value = NetworksItem;
    const SHAPE: ValueShape = ValueShape::AnyOf(&[
        ValueShape::Format(&NETWORK_FORMAT),
        ValueShape::Format(&PATH_FORMAT),
    ]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<NetworksItem> {
        // A text of the characters of addresses is a misspelled address rather than the name of a file.
        let is_address_char = |c: char| c.is_ascii_hexdigit() || ":./".contains(c);
        match node.scalar() {
            Some(text) if text.contains(|c| !is_address_char(c)) => {
                let value = FileName::read(cx, node)?;
                let location = node.location;
                Some(NetworksItem::File(Located { value, location }))
            }
            _ => NetworkField::read(cx, node).map(NetworksItem::Network),
        }
    }
}

/// Whether `name` is meant as the name of a custom identity, and neither as a built-in field, perhaps misspelled, nor
/// as a merge key.
pub(super) fn is_custom_name(name: &str) -> bool {
    // A name that is longer than a field is no misspelling of it. Too many short names are similar to `ip`.
    let built_in = Identity::BUILT_IN.map(Identity::as_str).into_iter();
    let similar_fields = built_in.filter(|field| *field != "ip" && name.len() <= field.len());
    name != "<<" && nearest_word(name, similar_fields).is_none()
}

/// Defines the identity of this name for the process, so that limits and policies, which are read later, can name it.
///
/// # Errors
///
/// The name is reserved, or the process has [`CustomIdentity::MAX`] other identities. Or the name is not one of 1 to
/// [`MAX_NAME_BYTES`] small letters, digits, `-` and `_`, with a letter first.
pub(super) fn define_identity(name: &str) -> Result<CustomIdentity, ValueError> {
    if RESERVED_NAMES.contains(&name) {
        let message = format!("`{name}` has another meaning in limits and headers");
        return Err(ValueError::new(message, "choose another name"));
    }
    let is_name_char = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    let starts_with_letter = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !starts_with_letter || name.len() > MAX_NAME_BYTES || !name.chars().all(is_name_char) {
        let message = format!("`{name}` is not a name for an identity");
        let help = "use 1 to 32 small letters, digits, `-` or `_`, starting with a letter";
        return Err(ValueError::new(message, help));
    }
    CustomIdentity::define(name).ok_or_else(|| {
        let message = format!(
            "this is more than {} identities of your own",
            CustomIdentity::MAX
        );
        ValueError::new(
            message,
            "use fewer; if reloads have renamed some, restart the gateway",
        )
    })
}

/// Checks that an identity has exactly one source, and only the fields that belong to it. Also reports a header field
/// that cannot tell clients apart.
fn check_custom(cx: &mut LoadContext, fields: &MapFields<'_>, written: &CustomConfig) {
    if written.api_keys.is_some_and(|api_keys| !api_keys.value) {
        let message = "`api_keys: false` is no source";
        let help = "write `api_keys: true`";
        cx.error(
            fields.value_location("api_keys"),
            message,
            Some(help.into()),
        );
    }
    if let Some(name) = written
        .header
        .as_ref()
        .filter(|name| is_unfit_for_identity(name))
    {
        let message = format!("`{name}` does not tell one client from another");
        let help = "name a header of its own; credentials belong into `token`, `user` or `cookie`, hosts and addresses into `host` and `ip`";
        cx.error(fields.value_location("header"), message, Some(help.into()));
    }
    fields.check_belongs_to(cx, "field", "table");
    let source = fields.require_one_of(cx, &SOURCES);
    if source == Some("table") && !fields.has("field") {
        let message = "`table` needs `field`, the name of a field in the file";
        let help =
            "write for instance `field: country.iso_code` or `field: autonomous_system_number`";
        cx.error(fields.location_of("table"), message, Some(help.into()));
    }
    let is_in_request = matches!(
        source,
        Some("header" | "cookie" | "query" | "body" | "path")
    );
    if is_in_request && fields.has("forward") {
        let message = "the upstream gets this from the client";
        let help = "remove `forward`";
        cx.error(fields.location_of("forward"), message, Some(help.into()));
    }
    let is_bounded = matches!(source, None | Some("networks" | "api_keys" | "table"));
    if written.metrics && !is_bounded {
        let message = "a metric by this identity could have any number of series, because you do not write its values";
        let help = "remove `metrics`; it counts by `networks`, `api_keys` or `table`, whose values you write";
        cx.error(fields.location_of("metrics"), message, Some(help.into()));
    }
}
