//! Reads the field `user` of the section `identity`: what proves the user of a request.

use std::time::Duration;

use http::Uri;

use super::super::super::context::LoadContext;
use super::super::super::model::{KeyFormat, KeySource, Located, UserConfig};
use super::super::super::table::{MapFields, Table, ValueShape, optional};
use super::super::super::tree::Node;
use super::super::scalar::{DURATION_FORMAT, HEADER_NAME_FORMAT, PATH_FORMAT, PEERS_FORMAT};
use super::trusted_header::read_trusted_header;
use crate::identity::jwt;
use crate::identity::user::{CertificateName, OnUnverified};

/// Maximum leeway. A longer one would let a stolen token live on long after it expires.
const MAX_LEEWAY: Duration = Duration::from_secs(3600);

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

pub(super) static USER_TABLE: Table = Table {
    name: "`user`",
    doc: "Who the request proves to be: by a signed token, a trusted header, an API key or a client certificate.",
    fields: &[
        optional(
            "jwt",
            ValueShape::Text,
            "The claim of a signed bearer token that names the user.",
            "sub",
        ),
        optional(
            "jwks",
            ValueShape::Format(&PATH_FORMAT),
            "With jwt: the file of the issuer's key set, or its URL, or the URL of the issuer's OpenID configuration. A set at a URL is fetched again when its `max-age` is over (1m to 1d, 10m without one), and at most once a minute for tokens whose key it does not have. A set that cannot be fetched leaves the one before in use.",
            "https://idp.example/jwks.json",
        ),
        optional(
            "roots",
            ValueShape::Format(&PATH_FORMAT),
            "With a URL in jwks: the file of the authorities that verify its server, in PEM. Default: those of the system.",
            "ca.pem",
        ),
        optional(
            "secret",
            ValueShape::Format(&PATH_FORMAT),
            "With jwt: the file of the shared secret (HS256).",
            "secret.txt",
        ),
        optional(
            "key",
            ValueShape::Format(&PATH_FORMAT),
            "With jwt: the file of the issuer's public key in PEM.",
            "public.pem",
        ),
        optional(
            "issuer",
            ValueShape::Text,
            "With jwt: who must have issued the token.",
            "https://idp.example",
        ),
        optional(
            "audience",
            ValueShape::OneOrList(&ValueShape::Text),
            "With jwt: for whom it must be issued; of several, for one of them.",
            "[shop, admin]",
        ),
        optional(
            "leeway",
            ValueShape::Format(&DURATION_FORMAT),
            "With jwt: how long before its `nbf` and after its `exp` a token is believed, in whole seconds up to 1h. Default: 60s.",
            "60s",
        ),
        optional(
            "header",
            ValueShape::Format(&HEADER_NAME_FORMAT),
            "The header in which a trusted proxy names the user.",
            "x-user",
        ),
        optional(
            "from",
            ValueShape::OneOrList(&ValueShape::Format(&PEERS_FORMAT)),
            "With header: the peers that may set it.",
            "[10.0.0.0/8]",
        ),
        optional(
            "api_keys",
            ValueShape::Format(&PATH_FORMAT),
            "The file that maps tokens to users and plans.",
            "keys.yaml",
        ),
        optional(
            "client_cert",
            ValueShape::Words(&["subject", "san"]),
            "The verified certificate that the client shows, at listeners with `client_roots`: its subject as RFC 4514 writes it, or of its subject alternative names the first URI, else the first DNS name, else the first email address.",
            "subject",
        ),
        optional(
            "unverified",
            ValueShape::Words(&["refuse", "anonymous"]),
            "With jwt, api_keys or client_cert: what becomes of a request whose credential does not verify, on a route that counts by user or requires one. `refuse`: 401. `anonymous`: it is served as a request without a user. Default: refuse.",
            "anonymous",
        ),
    ],
};

/// Reads what proves the user, and into `unverified` what happens to a request whose credential does not verify.
pub(super) fn read_user(
    cx: &mut LoadContext,
    node: &Node,
    unverified: &mut OnUnverified,
) -> Option<UserConfig> {
    let fields = USER_TABLE.open(cx, node)?;
    let source = fields.require_one_of(cx, &["jwt", "header", "api_keys", "client_cert"])?;
    for (field, owner) in DEPENDENT_FIELDS {
        fields.check_belongs_to(cx, field, owner);
    }
    *unverified = read_on_unverified(cx, &fields, source);
    match source {
        "jwt" => {
            let claim = fields
                .get("jwt")
                .and_then(|node| cx.read_text(node, "the name of a claim"));
            Some(UserConfig::Jwt {
                claim: claim.map(|claim| claim.value).unwrap_or_default(),
                keys: read_key_source(cx, &fields),
                issuer: fields.read_text(cx, "issuer", "an issuer"),
                audience: fields
                    .get("audience")
                    .map(|node| cx.read_list(node, read_audience)),
                leeway: read_leeway(cx, &fields),
            })
        }
        "header" => {
            let (name, from) = read_trusted_header(cx, &fields);
            Some(UserConfig::Header { name, from })
        }
        "client_cert" => {
            let words = [
                ("subject", CertificateName::Subject),
                ("san", CertificateName::San),
            ];
            let named = cx.read_word(fields.get(source)?, &words)?;
            Some(UserConfig::ClientCert(named))
        }
        _ => fields
            .get("api_keys")
            .and_then(|node| cx.read_secret_file_name(node))
            .map(UserConfig::ApiKeys),
    }
}

fn read_on_unverified(cx: &mut LoadContext, fields: &MapFields<'_>, source: &str) -> OnUnverified {
    let words = [
        ("refuse", OnUnverified::Refuse),
        ("anonymous", OnUnverified::Anonymous),
    ];
    if source == "header" && fields.has("unverified") {
        let message = "`unverified` belongs to `jwt`, `api_keys` and `client_cert`";
        let help =
            "remove it: a bad field of a trusted peer is a mistake of that peer, and gets 400";
        cx.error(fields.location_of("unverified"), message, Some(help.into()));
    }
    let node = fields.get("unverified");
    node.and_then(|node| cx.read_word(node, &words))
        .map_or_else(OnUnverified::default, |word| word.value)
}

fn read_leeway(cx: &mut LoadContext, fields: &MapFields<'_>) -> Option<Duration> {
    let node = fields.get("leeway")?;
    let leeway = cx.read_duration(node, Duration::ZERO, MAX_LEEWAY)?;
    if leeway.value.subsec_nanos() != 0 {
        let message = "`leeway` is a number of whole seconds";
        cx.error(
            leeway.location,
            message,
            Some("write for instance `60s`".into()),
        );
    }
    Some(leeway.value)
}

fn read_audience(cx: &mut LoadContext, node: &Node) -> Option<String> {
    cx.read_text(node, "an audience").map(|text| text.value)
}

fn read_key_source(cx: &mut LoadContext, fields: &MapFields<'_>) -> Option<KeySource> {
    let format = fields.require_one_of(cx, &["jwks", "secret", "key"])?;
    let source = fields.get(format).and_then(|node| match format {
        "secret" => cx.read_secret_file_name(node),
        _ => cx.read_text(node, "the name of a file"),
    })?;
    let roots = fields
        .get("roots")
        .and_then(|node| cx.read_text(node, "the name of a file"));
    let is_url = format == "jwks" && source.value.contains("://");
    if let Some(roots) = roots.as_ref().filter(|_| format == "jwks" && !is_url) {
        let message = "`roots` is for a key set at a URL";
        cx.error(roots.location, message, Some("remove it".into()));
    }
    Some(match format {
        "jwks" if is_url => KeySource::Url {
            url: parse_key_set_url(cx, source)?,
            roots,
        },
        "jwks" => KeySource::File(KeyFormat::Jwks, source),
        "secret" => KeySource::File(KeyFormat::Secret, source),
        _ => KeySource::File(KeyFormat::Pem, source),
    })
}

/// Parses the URL of a key set, or reports what is wrong with it.
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
