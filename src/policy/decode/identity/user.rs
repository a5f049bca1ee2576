//! The source of the user: `user` in the section `identity`.

use std::time::Duration;

use super::super::super::collect::Cx;
use super::super::super::model::{KeyFile, UserConfig};
use super::super::super::table::{MapFields, Table, ValueShape, may};
use super::super::super::tree::Node;
use super::super::leaf::{DURATION, HEADER, PATH, PEERS};
use super::trusted_header::trusted_header;
use crate::identity::user::{CertificateName, OnUnverified};

/// Longest leeway: more would make of a stolen token one that lasts.
const MOST_LEEWAY: Duration = Duration::from_secs(3600);

pub(super) static USER: Table = Table {
    name: "`user`",
    doc: "Who the request proves to be: by a signed token, a trusted header, an API key or a client certificate.",
    fields: &[
        may(
            "jwt",
            ValueShape::Text,
            "The claim of a signed bearer token that names the user.",
            "sub",
        ),
        may(
            "jwks",
            ValueShape::Form(&PATH),
            "With jwt: the file of the issuer's key set.",
            "jwks.json",
        ),
        may(
            "secret",
            ValueShape::Form(&PATH),
            "With jwt: the file of the shared secret (HS256).",
            "secret.txt",
        ),
        may(
            "key",
            ValueShape::Form(&PATH),
            "With jwt: the file of the issuer's public key in PEM.",
            "public.pem",
        ),
        may(
            "issuer",
            ValueShape::Text,
            "With jwt: who must have issued the token.",
            "https://idp.example",
        ),
        may(
            "audience",
            ValueShape::Text,
            "With jwt: for whom it must be issued.",
            "shop",
        ),
        may(
            "leeway",
            ValueShape::Form(&DURATION),
            "With jwt: how long before its `nbf` and after its `exp` a token is believed, in whole seconds up to 1h. Default: 60s.",
            "60s",
        ),
        may(
            "header",
            ValueShape::Form(&HEADER),
            "The header in which a trusted proxy names the user.",
            "x-user",
        ),
        may(
            "from",
            ValueShape::Many(&ValueShape::Form(&PEERS)),
            "With header: the peers that may set it.",
            "[10.0.0.0/8]",
        ),
        may(
            "api_keys",
            ValueShape::Form(&PATH),
            "The file that maps tokens to users and plans.",
            "keys.yaml",
        ),
        may(
            "client_cert",
            ValueShape::Words(&["subject", "san"]),
            "The verified certificate that the client shows, at listeners with `client_roots`: its subject as RFC 4514 writes it, or of its subject alternative names the first URI, else the first DNS name, else the first email address.",
            "subject",
        ),
        may(
            "unverified",
            ValueShape::Words(&["refuse", "anonymous"]),
            "With jwt, api_keys or client_cert: what becomes of a request whose credential does not verify, on a route that counts by user or requires one. `refuse`: 401. `anonymous`: it is served as a request without a user. Default: refuse.",
            "anonymous",
        ),
    ],
};

/// Reads the source of the user, and what becomes of what does not verify.
pub(super) fn user(cx: &mut Cx, node: &Node, unverified: &mut OnUnverified) -> Option<UserConfig> {
    let fields = USER.open(cx, node)?;
    let way = fields.one_of(cx, &["jwt", "header", "api_keys", "client_cert"])?;
    for (field, owner) in [
        ("jwks", "jwt"),
        ("secret", "jwt"),
        ("key", "jwt"),
        ("issuer", "jwt"),
        ("audience", "jwt"),
        ("leeway", "jwt"),
        ("from", "header"),
    ] {
        fields.belongs_to(cx, field, owner);
    }
    *unverified = on_unverified(cx, &fields, way);
    match way {
        "jwt" => {
            let claim = fields
                .get("jwt")
                .and_then(|node| cx.text(node, "the name of a claim"));
            Some(UserConfig::Jwt {
                claim: claim.map(|claim| claim.value).unwrap_or_default(),
                keys: keys(cx, &fields),
                issuer: fields.text(cx, "issuer", "an issuer"),
                audience: fields.text(cx, "audience", "an audience"),
                leeway: leeway(cx, &fields),
            })
        }
        "header" => {
            let (name, from) = trusted_header(cx, &fields);
            Some(UserConfig::Header { name, from })
        }
        "client_cert" => {
            let words = [
                ("subject", CertificateName::Subject),
                ("san", CertificateName::San),
            ];
            let named = cx.word(fields.get(way)?, &words)?;
            Some(UserConfig::ClientCert(named))
        }
        _ => fields
            .get("api_keys")
            .and_then(|node| cx.secret_file(node))
            .map(UserConfig::ApiKeys),
    }
}

fn on_unverified(cx: &mut Cx, fields: &MapFields<'_>, way: &str) -> OnUnverified {
    let words = [
        ("refuse", OnUnverified::Refuse),
        ("anonymous", OnUnverified::Anonymous),
    ];
    if way == "header" && fields.has("unverified") {
        let message = "`unverified` belongs to `jwt`, `api_keys` and `client_cert`";
        let help =
            "remove it: a bad field of a trusted peer is a mistake of that peer, and gets 400";
        cx.error(fields.place_of("unverified"), message, Some(help.into()));
    }
    let word = fields.get("unverified");
    word.and_then(|node| cx.word(node, &words))
        .map_or_else(OnUnverified::default, |word| word.value)
}

fn leeway(cx: &mut Cx, fields: &MapFields<'_>) -> Option<Duration> {
    let node = fields.get("leeway")?;
    let span = cx.span(node, Duration::ZERO, MOST_LEEWAY)?;
    if span.value.subsec_nanos() != 0 {
        let message = "`leeway` is a number of whole seconds";
        cx.error(span.place, message, Some("write for instance `60s`".into()));
    }
    Some(span.value)
}

fn keys(cx: &mut Cx, fields: &MapFields<'_>) -> Option<KeyFile> {
    let way = fields.one_of(cx, &["jwks", "secret", "key"])?;
    let file = fields.get(way).and_then(|node| match way {
        "secret" => cx.secret_file(node),
        _ => cx.text(node, "the name of a file"),
    })?;
    Some(match way {
        "jwks" => KeyFile::Jwks(file),
        "secret" => KeyFile::Secret(file),
        _ => KeyFile::Pem(file),
    })
}
