//! Removes the header fields that a client must not set, before the request is forwarded:
//!
//! - `tollgate-*`, from every peer: with these fields the gateway tells the upstream what it knows of the client.
//! - The configured user and plan fields, unless the peer may set them.
//! - Fields whose name an application could take for that of the configured credential or of a custom identity.
//! - `Forwarded`, `X-Forwarded-*`, `X-Real-IP` and the [`ROUTING_FIELDS`], unless the peer is a trusted proxy.
//!
//! CGI and its heirs hand `X_User`, `X.User` and `X-User` to the application as one field. A trusted proxy may pass
//! such spellings on from the client. So a name that differs from a protected one only in the characters between its
//! words is always removed.

use http::HeaderName;
use smallvec::SmallVec;

use super::{Settings, custom, plan, token};
use crate::http::head::Fields;
use crate::http::head::hop_by_hop::is_connection_field;

/// Fields that servers and frameworks take for another host or path than the request's own: Symfony, IIS, Envoy, Azure,
/// gunicorn.
const ROUTING_FIELDS: [&str; 12] = [
    "x-original-url",
    "x-original-uri",
    "x-original-path",
    "x-original-host",
    "x-rewrite-url",
    "x-override-url",
    "x-host",
    "x-http-host-override",
    "x-envoy-original-path",
    "x-waws-unencoded-url",
    "x-script-name",
    "script-name",
];

/// Fields by which a client overrides the method. The route is matched by that method too.
pub const METHOD_FIELDS: [&str; 3] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
];

/// The peers that may set a protected field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllowedSetter {
    Nobody,
    TrustedProxies,
    /// The peers of [`super::user::Settings::Header`].
    UserPeers,
    /// The peers of [`plan::PlanSource::Header`].
    PlanPeers,
}

/// Decides which header fields a peer may set. It holds the names that the settings protect.
#[derive(Clone, Debug)]
pub(super) struct Stripper {
    user: Option<HeaderName>,
    plan: Option<HeaderName>,
    /// The fields of the credential and of custom identities.
    open_fields: Vec<HeaderName>,
}

impl Stripper {
    pub(super) fn new(settings: &Settings) -> Stripper {
        let user = settings.user_field().map(|(name, _)| name.clone());
        let plan = match &settings.plan.source {
            Some(plan::PlanSource::Header { name, .. }) => Some(name.clone()),
            _ => None,
        };
        let custom = settings
            .custom
            .iter()
            .filter_map(|custom| match &custom.source {
                custom::Source::Field(source) => Some(source),
                _ => None,
            });
        let open_fields = settings.tokens.iter().chain(custom);
        let open_fields = open_fields.filter_map(token::TokenSource::header).cloned();
        Stripper {
            user,
            plan,
            open_fields: open_fields.collect(),
        }
    }

    /// Removes every protected field of which no allowed setter satisfies `is_peer_among`.
    pub(super) fn strip(&self, fields: &mut Fields, is_peer_among: impl Fn(AllowedSetter) -> bool) {
        fields.retain(|name| {
            let setters = self.allowed_setters(name);
            setters.is_empty() || setters.iter().any(|setter| is_peer_among(*setter))
        });
    }

    /// Whether a field of this name is protected, so that it is dropped from trailers too.
    pub(super) fn is_protected(&self, name: &[u8]) -> bool {
        let is_alike_field = |field: &HeaderName| is_alike(name, field.as_str());
        let is_method_field = METHOD_FIELDS.iter().any(|field| is_alike(name, field));
        !self.allowed_setters(name).is_empty()
            || is_method_field
            || self.open_fields.iter().any(is_alike_field)
    }

    /// Whether the settings name this field as the source of an identity.
    pub(super) fn is_identity_field(&self, name: &[u8]) -> bool {
        let mut fields = self.user.iter().chain(&self.plan).chain(&self.open_fields);
        fields.any(|field| name.eq_ignore_ascii_case(field.as_str().as_bytes()))
    }

    /// The peers that may set a field of this name; empty if every peer may.
    fn allowed_setters(&self, name: &[u8]) -> SmallVec<[AllowedSetter; 2]> {
        let has_configured_fields =
            self.user.is_some() || self.plan.is_some() || !self.open_fields.is_empty();
        // The names that are always protected begin with one of these letters.
        let first = name.first().map(u8::to_ascii_lowercase);
        if !has_configured_fields && !matches!(first, Some(b'f' | b's' | b't' | b'x')) {
            return SmallVec::new();
        }
        let setters = self.setters_of_configured_field(name);
        // A configured field has only its own setters, even if it is called X-Forwarded-User.
        match setters.is_empty() {
            true => setter_of_forwarding_field(name).into_iter().collect(),
            false => setters,
        }
    }

    /// The peers that may set a field that the settings name. Nobody may set another spelling of its name.
    fn setters_of_configured_field(&self, name: &[u8]) -> SmallVec<[AllowedSetter; 2]> {
        let mut setters = SmallVec::new();
        let is_exactly = |field: &HeaderName| name.eq_ignore_ascii_case(field.as_str().as_bytes());
        let is_named = |field: &&HeaderName| is_alike(name, field.as_str());
        let setter_by_field = [
            (&self.user, AllowedSetter::UserPeers),
            (&self.plan, AllowedSetter::PlanPeers),
        ];
        for (field, peers) in setter_by_field {
            if let Some(field) = field.as_ref().filter(is_named) {
                setters.push(match is_exactly(field) {
                    true => peers,
                    false => AllowedSetter::Nobody,
                });
            }
        }
        // Every peer may send these.
        let mut open_fields = self.open_fields.iter().filter(is_named);
        if open_fields.any(|field| !is_exactly(field)) {
            setters.push(AllowedSetter::Nobody);
        }
        setters
    }
}

/// Whether a field of this name says nothing of a client by itself: it belongs to the gateway, to proxies or to the
/// connection, or holds credentials of all kinds.
pub fn is_unfit_for_identity(name: &HeaderName) -> bool {
    let unfit_names = [
        "authorization",
        "proxy-authorization",
        "cookie",
        "host",
        "trailer",
        "content-length",
        "via",
        "expect",
    ];
    let name = name.as_str();
    unfit_names.contains(&name)
        || is_connection_field(name.as_bytes())
        || setter_of_forwarding_field(name.as_bytes()).is_some()
}

/// The peers that may set a field by which a proxy describes the client's request; none for any other field.
fn setter_of_forwarding_field(name: &[u8]) -> Option<AllowedSetter> {
    let is_gateway_field = begins_alike(name, "tollgate-");
    let is_forwarding_field = begins_alike(name, "x-forwarded-")
        || is_alike(name, "forwarded")
        || is_alike(name, "x-real-ip")
        || ROUTING_FIELDS.iter().any(|field| is_alike(name, field));
    let is_method = METHOD_FIELDS.iter().any(|field| is_alike(name, field));
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    // gunicorn reads SCRIPT_NAME by this spelling only.
    let has_other_separators = !name.iter().all(is_plain) && !is_alike(name, "script-name");
    if is_gateway_field || (has_other_separators && (is_forwarding_field || is_method)) {
        Some(AllowedSetter::Nobody)
    } else {
        is_forwarding_field.then_some(AllowedSetter::TrustedProxies)
    }
}

/// Whether a field's name begins with `prefix`, as CGI compares names.
fn begins_alike(name: &[u8], prefix: &str) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| is_alike(start, prefix))
}

/// Whether CGI and its heirs take two field names for one: they ignore case, and which characters stand between words.
pub fn is_alike(name: &[u8], other_name: &str) -> bool {
    let fold = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => byte.to_ascii_lowercase(),
        _ => b'-',
    };
    name.len() == other_name.len()
        && name
            .iter()
            .zip(other_name.bytes())
            .all(|(a, b)| fold(*a) == fold(b))
}
