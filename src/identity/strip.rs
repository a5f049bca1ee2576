//! Removes the header fields that a client must not set, before the request is forwarded:
//!
//! - `tollgate-*`, from every peer: with these fields the gateway tells the upstream what it knows of the client.
//! - The configured user and plan fields, unless the peer may set them.
//! - The field of the request's id, from every peer: the gateway sets it, to the id of a trusted proxy or to a new one.
//! - `Forwarded`, `X-Forwarded-*`, `X-Real-IP` and the [`ROUTING_FIELDS`], unless the peer is a trusted proxy.
//! - Other spellings of all these names, of [`METHOD_FIELDS`], and of the fields of credentials and custom identities.
//!
//! CGI, and the interfaces that follow it (WSGI, Rack, PHP), pass `X_User`, `X.User` and `X-User` to the application as
//! one field. A trusted proxy may pass such spellings on from the client. So a name that differs from one of these only
//! in the characters between its words is removed from requests of every peer. The exceptions are the spellings of
//! `Script-Name`, which a trusted proxy may set.
//!
//! This file also says which fields must not come in a trailer, and which cannot be the source of a custom identity.

use http::HeaderName;
use smallvec::SmallVec;

use super::{Settings, custom, plan, token};
use crate::http::head::Fields;
use crate::http::head::hop_by_hop::is_connection_field;

/// Fields whose value Symfony, IIS, Envoy, Azure or gunicorn uses in place of the request's own host or path.
pub const ROUTING_FIELDS: [&str; 12] = [
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

/// Fields by which a client overrides the method for some frameworks. Every peer may set them in this spelling. The
/// routes of such a method are matched too.
pub const METHOD_FIELDS: [&str; 3] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
];

/// A group of peers that may set a protected field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllowedSetter {
    /// No peer, not even a trusted one.
    Nobody,
    /// The peers of [`super::ip::Settings::trusted_proxies`].
    TrustedProxies,
    /// The peers of [`super::user::Settings::Header`].
    UserPeers,
    /// The peers of [`plan::PlanSource::Header`].
    PlanPeers,
}

/// Decides which header fields a peer may set, by the names in the settings.
#[derive(Clone, Debug)]
pub(super) struct Stripper {
    /// The field that names the user; `None` if no field does.
    user_field: Option<HeaderName>,
    /// The field that names the plan; `None` if no field does.
    plan_field: Option<HeaderName>,
    /// The field of the request's id; `None` if requests have none.
    request_id_field: Option<HeaderName>,
    /// The fields of the credential and of custom identities. Every peer may set them, unless the name is protected for
    /// another reason.
    open_fields: Vec<HeaderName>,
}

impl Stripper {
    pub(super) fn new(settings: &Settings) -> Stripper {
        let user_field = settings.user_field().map(|(name, _)| name.clone());
        let plan_field = match &settings.plan.source {
            Some(plan::PlanSource::Header { name, .. }) => Some(name.clone()),
            _ => None,
        };
        let custom_sources = settings
            .custom
            .iter()
            .filter_map(|custom| match &custom.source {
                custom::Source::Field(source) => Some(source),
                _ => None,
            });
        let sources = settings.token_sources.iter().chain(custom_sources);
        let open_fields = sources
            .filter_map(token::TokenSource::configured_header)
            .cloned();
        Stripper {
            user_field,
            plan_field,
            request_id_field: settings.request_id_field.clone(),
            open_fields: open_fields.collect(),
        }
    }

    /// Removes every protected field that the peer must not set. `is_peer_among` says whether the peer belongs to a
    /// group of setters. One group suffices to keep a field.
    pub(super) fn strip(&self, fields: &mut Fields, is_peer_among: impl Fn(AllowedSetter) -> bool) {
        fields.retain(|name| {
            let setters = self.allowed_setters(name);
            setters.is_empty() || setters.iter().any(|setter| is_peer_among(*setter))
        });
    }

    /// Whether a field of this name, in any spelling, must not come in a trailer: it is protected, overrides the method,
    /// or is the source of an identity.
    pub(super) fn is_protected(&self, name: &[u8]) -> bool {
        let is_alike_field = |field: &HeaderName| is_alike(name, field.as_str());
        let is_method_field = METHOD_FIELDS.iter().any(|field| is_alike(name, field));
        !self.allowed_setters(name).is_empty()
            || is_method_field
            || self.open_fields.iter().any(is_alike_field)
    }

    /// Whether the settings name this field as the source of an identity or a credential. The `Authorization` of a bearer
    /// token and the `Cookie` of a cookie do not count as named.
    pub(super) fn is_identity_field(&self, name: &[u8]) -> bool {
        let mut fields = (self.user_field.iter())
            .chain(&self.plan_field)
            .chain(&self.open_fields);
        fields.any(|field| name.eq_ignore_ascii_case(field.as_str().as_bytes()))
    }

    /// Whether applications may take a field for a protected one, or for the source of an identity, though its name is
    /// spelled otherwise.
    pub(super) fn is_other_spelling(&self, name: &[u8]) -> bool {
        let mut own_fields = self.request_id_field.iter();
        let is_own = own_fields.any(|field| name.eq_ignore_ascii_case(field.as_str().as_bytes()))
            || name.to_ascii_lowercase().starts_with(b"tollgate-");
        !is_own && self.allowed_setters(name).contains(&AllowedSetter::Nobody)
    }

    /// The peers that may set a field of this name; empty if every peer may.
    fn allowed_setters(&self, name: &[u8]) -> SmallVec<[AllowedSetter; 2]> {
        let configured_fields = [&self.user_field, &self.plan_field, &self.request_id_field];
        let has_configured_fields =
            configured_fields.into_iter().any(Option::is_some) || !self.open_fields.is_empty();
        // The names that are always protected begin with one of these letters. So most fields are ruled out by one byte.
        let first_letter = name.first().map(u8::to_ascii_lowercase);
        if !has_configured_fields && !matches!(first_letter, Some(b'f' | b's' | b't' | b'x')) {
            return SmallVec::new();
        }
        let setters = self.setters_of_configured_field(name);
        // A user or plan field has only its own setters, even if it is called X-Forwarded-User.
        match setters.is_empty() {
            true => setter_of_forwarding_field(name).into_iter().collect(),
            false => setters,
        }
    }

    /// The peers that may set a field that the settings name; empty for any other field, and for an open field in its
    /// exact spelling. Nobody may set another spelling of a name in the settings.
    fn setters_of_configured_field(&self, name: &[u8]) -> SmallVec<[AllowedSetter; 2]> {
        let mut setters = SmallVec::new();
        let is_exactly = |field: &HeaderName| name.eq_ignore_ascii_case(field.as_str().as_bytes());
        let is_alike_field = |field: &&HeaderName| is_alike(name, field.as_str());
        let setter_by_field = [
            (&self.user_field, AllowedSetter::UserPeers),
            (&self.plan_field, AllowedSetter::PlanPeers),
        ];
        for (field, setter) in setter_by_field {
            if let Some(field) = field.as_ref().filter(is_alike_field) {
                setters.push(match is_exactly(field) {
                    true => setter,
                    false => AllowedSetter::Nobody,
                });
            }
        }
        if self
            .request_id_field
            .as_ref()
            .is_some_and(|field| is_alike_field(&field))
        {
            setters.push(AllowedSetter::Nobody);
        }
        // In its exact spelling an open field adds no setter here.
        let mut open_fields = self.open_fields.iter().filter(is_alike_field);
        if open_fields.any(|field| !is_exactly(field)) {
            setters.push(AllowedSetter::Nobody);
        }
        setters
    }
}

/// Whether a field of this name cannot be the source of a custom identity. It belongs to the gateway, to proxies, to
/// the connection or to the message, or it holds credentials of several kinds.
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

/// Whether a field of this name cannot carry the request's id, because it has another meaning in requests or responses.
pub fn is_unfit_for_request_id(name: &HeaderName) -> bool {
    let unfit_starts = [
        "accept",
        "access-control-",
        "cache-",
        "content-",
        "if-",
        "proxy-",
        "ratelimit",
        "sec-",
        "x-ratelimit-",
    ];
    let unfit_names = [
        "age",
        "allow",
        "alt-svc",
        "date",
        "etag",
        "expires",
        "forwarded",
        "from",
        "last-event-id",
        "last-modified",
        "link",
        "location",
        "max-forwards",
        "origin",
        "pragma",
        "priority",
        "range",
        "referer",
        "refresh",
        "retry-after",
        "server",
        "set-cookie",
        "traceparent",
        "tracestate",
        "user-agent",
        "vary",
        "warning",
        "www-authenticate",
    ];
    let text = name.as_str();
    is_unfit_for_identity(name)
        || METHOD_FIELDS.contains(&text)
        || unfit_names.contains(&text)
        || unfit_starts.iter().any(|start| text.starts_with(start))
}

/// The peers that may set a field of the gateway or of proxies, or another spelling of a field that overrides the
/// method. `None` for any other field, which this function does not protect.
fn setter_of_forwarding_field(name: &[u8]) -> Option<AllowedSetter> {
    let is_gateway_field = begins_alike(name, "tollgate-");
    let is_forwarding_field = begins_alike(name, "x-forwarded-")
        || is_alike(name, "forwarded")
        || is_alike(name, "x-real-ip")
        || ROUTING_FIELDS.iter().any(|field| is_alike(name, field));
    let is_method_field = METHOD_FIELDS.iter().any(|field| is_alike(name, field));
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    // gunicorn reads this field only by the spelling SCRIPT_NAME, so a trusted proxy must be able to set it.
    let has_other_separators = !name.iter().all(is_plain) && !is_alike(name, "script-name");
    if is_gateway_field || (has_other_separators && (is_forwarding_field || is_method_field)) {
        Some(AllowedSetter::Nobody)
    } else {
        is_forwarding_field.then_some(AllowedSetter::TrustedProxies)
    }
}

/// Whether a field's name begins with `prefix`, compared as in [`is_alike`].
fn begins_alike(name: &[u8], prefix: &str) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| is_alike(start, prefix))
}

/// Whether [`is_alike`] holds for one of these names.
pub fn is_alike_any(name: &[u8], names: &[HeaderName]) -> bool {
    names.iter().any(|other| is_alike(name, other.as_str()))
}

/// Whether CGI and the interfaces that follow it take two field names for one. They ignore case, and treat all characters
/// between words alike.
pub fn is_alike(name: &[u8], other_name: &str) -> bool {
    let fold = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => byte.to_ascii_lowercase(),
        _ => b'-',
    };
    name.len() == other_name.len()
        && name
            .iter()
            .zip(other_name.bytes())
            .all(|(byte, other_byte)| fold(*byte) == fold(other_byte))
}
