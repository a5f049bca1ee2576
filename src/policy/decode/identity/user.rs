//! Reads the field `user` of the section `identity`: what proves the user of a request.

use http::Uri;

use super::super::super::context::LoadContext;
use super::super::super::section::{FieldReader, LocatedField, Section, section};
use super::super::super::table::{MapFields, ValueShape};
use super::super::super::tree::{Located, Node};
use super::super::field::{
    DurationField, FileNameField, ListField, SecretFileNameField, scalar_fields, word_fields,
};
use super::super::scalar::{ClaimField, HeaderNameField, PATH_FORMAT, PeersField};
use super::trusted_header::check_trusted_peers;
use crate::identity::jwt;
use crate::identity::user::{CertificateName, OnUnverified};

/// Maximum leeway in milliseconds. A longer one would let a stolen token live on long after it expires.
const MAX_LEEWAY_MILLIS: u64 = 3_600_000;

/// The fields that have a meaning only together with another one, and that other field.
const DEPENDENT_FIELDS: [(&str, &str); 8] = [
    ("jwks", "jwt"),
    ("roots", "jwks"),
    ("secret", "jwt"),
    ("key", "jwt"),
    ("issuer", "jwt"),
    ("audience", "jwt"),
    ("leeway", "jwt"),
    ("from", "header"),
];

section! {
    /// The proof of the user of a request. Exactly one of `jwt`, `header`, `api_keys` and `client_cert` is present.
    pub struct UserConfig, table USER_TABLE = "`user`",
        "Who the request proves to be: by a signed token, a trusted header, an API key or a client certificate.";
    jwt: ClaimField, "The claim of a signed bearer token that names the user.", "sub";
    jwks: KeySetField,
        "With jwt: the file of the issuer's key set, or its URL, or the URL of the issuer's OpenID configuration. A set at a URL is fetched again when its `max-age` is over (1m to 1d, 10m without one), and at most once a minute for tokens whose key it does not have. A set that cannot be fetched leaves the one before in use.", "https://idp.example/jwks.json";
    roots: FileNameField,
        "With a URL in jwks: the file of the authorities that verify its server, in PEM. Default: those of the system.", "ca.pem";
    secret: SecretFileNameField, "With jwt: the file of the shared secret (HS256).", "secret.txt";
    key: FileNameField, "With jwt: the file of the issuer's public key in PEM.", "public.pem";
    issuer: IssuerField, "With jwt: who must have issued the token.", "https://idp.example";
    audience: ListField<AudienceField> = Vec::new(),
        "With jwt: for whom it must be issued; of several, for one of them.", "[shop, admin]";
    leeway: DurationField<0, MAX_LEEWAY_MILLIS> = jwt::DEFAULT_LEEWAY,
        "With jwt: how long before its `nbf` and after its `exp` a token is believed, in whole seconds up to 1h.", "60s";
    header: HeaderNameField, "The header in which a trusted proxy names the user.", "x-user";
    from: ListField<PeersField> = Vec::new(), "With header: the peers that may set it.", "[10.0.0.0/8]";
    api_keys: SecretFileNameField, "The file that maps tokens to users and plans.", "keys.yaml";
    client_cert: LocatedField<CertificateNameField>,
        "The verified certificate that the client shows, at listeners with `client_roots`: its subject as RFC 4514 writes it, or of its subject alternative names the first URI, else the first DNS name, else the first email address.", "subject";
    unverified: OnUnverifiedField,
        "With jwt, api_keys or client_cert: what becomes of a request whose credential does not verify, on a route that counts by user or requires one. `refuse`: 401. `anonymous`: it is served as a request without a user. Default: refuse.", "anonymous";
}

/// The fields of which one is the source of the user.
const SOURCES: [&str; 4] = ["jwt", "header", "api_keys", "client_cert"];

impl UserConfig {
    /// The first of [`SOURCES`] that has a valid value, or `client_cert`. [`UserField`] reports a user without a
    /// source.
    pub fn kind(&self) -> &'static str {
        let [jwt, header, api_keys, client_cert] = SOURCES;
        match self {
            UserConfig { jwt: Some(_), .. } => jwt,
            UserConfig {
                header: Some(_), ..
            } => header,
            UserConfig {
                api_keys: Some(_), ..
            } => api_keys,
            _ => client_cert,
        }
    }
}

word_fields! {
    /// A field with the part of a client certificate that names the user.
    pub struct CertificateNameField: CertificateName =
        "subject" => CertificateName::Subject, "san" => CertificateName::San;
    /// A field with the treatment of a request whose credential does not verify.
    pub struct OnUnverifiedField: OnUnverified =
        "refuse" => OnUnverified::Refuse, "anonymous" => OnUnverified::Anonymous;
}

scalar_fields! {
    /// A field with the required issuer of a token.
    pub struct IssuerField: String = ValueShape::Text, "an issuer";
    /// A field with an audience of a token.
    pub struct AudienceField: String = ValueShape::Text, "an audience";
}

/// A field with the proof of the user, which has exactly one of [`SOURCES`].
pub struct UserField;

impl FieldReader for UserField {
    type Value = UserConfig;
    const SHAPE: ValueShape = ValueShape::Table(&USER_TABLE);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<UserConfig> {
        let fields = USER_TABLE.open(cx, node)?;
        let source = fields.require_one_of(cx, &SOURCES)?;
        for (field, owner) in DEPENDENT_FIELDS {
            fields.check_belongs_to(cx, field, owner);
        }
        let mut user = UserConfig::read_fields(cx, &fields);
        match source {
            "jwt" => {
                // With an invalid claim the source is still a token, so its other fields are checked.
                user.jwt.get_or_insert_default();
                check_token_fields(cx, &fields, &user);
            }
            "header" => check_header_fields(cx, &fields),
            "client_cert" => drop(user.client_cert?),
            _ => drop(user.api_keys.as_ref()?),
        }
        Some(user)
    }
}

/// A JSON Web Key Set, or an OpenID configuration that names one.
#[derive(Clone, Debug, PartialEq)]
pub enum KeySet {
    /// The set is fetched from this URL.
    Url(Located<Uri>),
    /// The set is read from this file.
    File(Located<String>),
}

/// A field with the file or the URL of a key set.
pub struct KeySetField;

impl FieldReader for KeySetField {
    type Value = KeySet;
    const SHAPE: ValueShape = ValueShape::Format(&PATH_FORMAT);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<KeySet> {
        let source = FileNameField::read(cx, node)?;
        match source.value.contains("://") {
            true => parse_key_set_url(cx, source).map(KeySet::Url),
            false => Some(KeySet::File(source)),
        }
    }
}

/// Checks that signed tokens have one source of keys, `roots` only for a URL, and a leeway in whole seconds.
fn check_token_fields(cx: &mut LoadContext, fields: &MapFields<'_>, user: &UserConfig) {
    fields.require_one_of(cx, &["jwks", "secret", "key"]);
    if let (Some(KeySet::File(_)), Some(roots)) = (&user.jwks, &user.roots) {
        let message = "`roots` is for a key set at a URL";
        cx.error(roots.location, message, Some("remove it".into()));
    }
    if user.leeway.subsec_nanos() != 0 {
        let message = "`leeway` is a number of whole seconds";
        let help = "write for instance `60s`";
        cx.error(fields.value_location("leeway"), message, Some(help.into()));
    }
}

fn check_header_fields(cx: &mut LoadContext, fields: &MapFields<'_>) {
    check_trusted_peers(cx, fields);
    if fields.has("unverified") {
        let message = "`unverified` belongs to `jwt`, `api_keys` and `client_cert`";
        let help =
            "remove it: a bad field of a trusted peer is a mistake of that peer, and gets 400";
        cx.error(fields.location_of("unverified"), message, Some(help.into()));
    }
}

/// Parses the URL of a key set. `None` for a URL without TLS, without a valid host and port, or with a password, which
/// is reported. URLs of this machine need no TLS.
fn parse_key_set_url(cx: &mut LoadContext, text: Located<String>) -> Option<Located<Uri>> {
    let location = text.location;
    let url = text.value.parse::<Uri>().ok();
    let message = match url.filter(jwt::has_valid_authority) {
        Some(value) if jwt::is_trusted_url(&value) => return Some(Located { value, location }),
        Some(_) => "a key set is fetched over https://, so that nobody can change it",
        None => "this is not a URL with a host, a valid port if it names one, and no password",
    };
    let help = "write for instance `https://idp.example/jwks.json`";
    cx.error(location, message, Some(help.into()));
    None
}
