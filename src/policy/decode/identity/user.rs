//! Reads the field `user` of the section `identity`: what proves the user of a request.

use http::Uri;

use super::super::super::context::LoadContext;
use super::super::super::section::{FieldReader, LocatedField, Section, section};
use super::super::super::table::{MapFields, ValueShape};
use super::super::super::tree::{Located, Node, SourceLocation};
use super::super::field::{
    BoolField, DurationField, FileNameField, ListField, SecretFileNameField, scalar_fields,
    word_fields,
};
use super::super::scalar::{ClaimField, HeaderNameField, PATH_FORMAT, PeersField};
use super::trusted_header::check_trusted_peers;
use crate::identity::jwt;
use crate::identity::user::{CertificateName, OnUnverified};
use crate::limit::UserSources;

/// Maximum leeway in milliseconds. A longer one would let a stolen token live on long after it expires.
const MAX_LEEWAY_MILLIS: u64 = 3_600_000;

/// The fields that have a meaning only together with another field, as pairs of both.
const DEPENDENT_FIELDS: [(&str, &str); 9] = [
    ("jwks", "jwt"),
    ("roots", "jwks"),
    ("secret", "jwt"),
    ("key", "jwt"),
    ("issuer", "jwt"),
    ("audience", "jwt"),
    ("leeway", "jwt"),
    ("shared_names", "jwt"),
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
    issuer: LocatedField<IssuerField>,
        "With jwt: who must have issued the token. Each of several sources `jwt` has another one.", "https://idp.example";
    shared_names: BoolField,
        "With several sources `jwt`: whether a name is one user whoever issued the token. Otherwise names from tokens begin with the issuer and `#`. Default: false.", "true";
    audience: ListField<AudienceField> = Vec::new(),
        "With jwt: for whom it must be issued; of several, for one of them.", "[shop, admin]";
    leeway: DurationField<0, MAX_LEEWAY_MILLIS> = jwt::DEFAULT_LEEWAY,
        "With jwt: how long before its `nbf` and after its `exp` a token is believed, in whole seconds up to 1h.", "60s";
    header: HeaderNameField, "The header in which a trusted proxy names the user.", "x-user";
    from: ListField<PeersField> = Vec::new(), "With header: the peers that may set it.", "[192.0.2.0/24]";
    api_keys: ListField<ApiKeySourceField> = Vec::new(),
        "The file that maps tokens to users and plans. `runtime` stands for the keys that `tollgate key add` makes. A list may have both.", "keys.yaml";
    client_cert: LocatedField<CertificateNameField>,
        "The verified certificate that the client shows, at listeners with `client_roots`: its subject as RFC 4514 writes it, or of its subject alternative names the first URI, else the first DNS name, else the first email address.", "subject";
    unverified: OnUnverifiedField,
        "With jwt, api_keys or client_cert: what becomes of a request whose credential does not verify, on a route that counts by user or requires one. `refuse`: 401. `anonymous`: it is served as a request without a user. Default: refuse.", "anonymous";
}

/// The character between an issuer and a name from its tokens. An issuer has no fragment (OpenID Connect Core 1.0,
/// section 2).
pub const ISSUER_SEPARATOR: char = '#';

/// Maximum number of issuers. Each with a key set at a URL has a thread.
const MAX_ISSUERS: usize = UserSources::MAX_ISSUERS;

/// The fields of which exactly one says what proves the user.
const SOURCES: [&str; 4] = ["jwt", "header", "api_keys", "client_cert"];

impl UserConfig {
    /// Whether API keys prove the user.
    pub fn has_api_keys(&self) -> bool {
        !self.api_keys.is_empty()
    }

    /// The first of [`SOURCES`] that has a valid value, or `client_cert`. [`UserField`] reports a user without a
    /// source.
    pub fn kind(&self) -> &'static str {
        let [jwt, header, api_keys, client_cert] = SOURCES;
        match self {
            UserConfig { jwt: Some(_), .. } => jwt,
            UserConfig {
                header: Some(_), ..
            } => header,
            user if user.has_api_keys() => api_keys,
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
            _ => {
                check_api_keys(cx, &user.api_keys);
                user.api_keys.first()?;
            }
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

/// Where API keys are.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiKeySource {
    /// This file has them.
    File(Located<String>),
    /// Operators add them at run time.
    Runtime(SourceLocation),
}

impl ApiKeySource {
    /// The word for keys that operators add at run time. A file of that name is written `./runtime`.
    const RUNTIME: &str = "runtime";

    fn location(&self) -> SourceLocation {
        match self {
            ApiKeySource::File(file) => file.location,
            ApiKeySource::Runtime(location) => *location,
        }
    }
}

/// A field with the place of API keys.
pub struct ApiKeySourceField;

impl FieldReader for ApiKeySourceField {
    type Value = ApiKeySource;
    const SHAPE: ValueShape = ValueShape::Format(&PATH_FORMAT);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<ApiKeySource> {
        let source = SecretFileNameField::read(cx, node)?;
        Some(match source.value.as_str() {
            ApiKeySource::RUNTIME => ApiKeySource::Runtime(source.location),
            _ => ApiKeySource::File(source),
        })
    }
}

/// Checks that API keys have one file at most, and that `runtime` stands there once. No excerpt shows what is written in
/// place of a second file: it may be a list of keys.
fn check_api_keys(cx: &mut LoadContext, sources: &[ApiKeySource]) {
    for (index, source) in sources.iter().enumerate() {
        let is_same_kind = |earlier: &&ApiKeySource| {
            std::mem::discriminant(*earlier) == std::mem::discriminant(source)
        };
        let Some(earlier) = sources[..index].iter().find(is_same_kind) else {
            continue;
        };
        let message = match source {
            ApiKeySource::Runtime(_) => "`runtime` stands here twice",
            ApiKeySource::File(_) => {
                cx.hide_location(earlier.location());
                cx.hide_location(source.location());
                "`api_keys` names one file"
            }
        };
        let help = "write one file and `runtime`: `[keys.yaml, runtime]`";
        cx.error(source.location(), message, Some(help.into()));
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

/// Checks that tokens can choose among several sources `jwt` by their issuer: at most [`MAX_ISSUERS`], all different.
/// `shared_names` must be the same in all sources that have it, and is a mistake in the only source.
pub(super) fn check_issuers(cx: &mut LoadContext, users: &[Located<UserConfig>]) {
    let sources: Vec<_> = users
        .iter()
        .filter(|user| user.value.jwt.is_some())
        .collect();
    if let [only] = sources[..]
        && only.value.shared_names.is_some()
    {
        let message = "`shared_names` is for several issuers";
        cx.error(only.location, message, Some("remove it".into()));
    }
    if sources.len() < 2 {
        return;
    }
    let shares_names = sources.iter().find_map(|user| user.value.shared_names);
    for (index, user) in sources.iter().enumerate() {
        let own_choice = user.value.shared_names;
        if own_choice.is_some() && own_choice != shares_names {
            let message = "`shared_names` holds for all issuers";
            cx.error(user.location, message, Some("write it once".into()));
        }
        let Some(issuer) = &user.value.issuer else {
            let message = "a token chooses among several sources `jwt` by its issuer, and this one has no `issuer`";
            let help = "write for instance `issuer: https://idp.example`";
            cx.error(user.location, message, Some(help.into()));
            continue;
        };
        let is_same = |other: &&Located<UserConfig>| {
            let other = other.value.issuer.as_ref();
            other.is_some_and(|other| other.value == issuer.value)
        };
        if sources[..index].iter().any(is_same) {
            let message = format!("two sources have the issuer `{}`", issuer.value);
            let help = "keep one of them; several keys of an issuer are a key set in `jwks`";
            cx.error(issuer.location, message, Some(help.into()));
        }
        if issuer.value.contains(ISSUER_SEPARATOR) {
            let message = format!("one of several issuers cannot contain `{ISSUER_SEPARATOR}`");
            let help = "an issuer is a URL without a fragment";
            cx.error(issuer.location, message, Some(help.into()));
        }
        if index == MAX_ISSUERS {
            let message = format!("these are more than {MAX_ISSUERS} issuers");
            cx.error(issuer.location, message, Some("remove some".into()));
        }
    }
}

/// Reports `header` without `from`, and `unverified` beside it.
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
