//! What a client may not say of itself: removed before the request goes on.
//!
//! - `tollgate-*`, from everybody: by these the gateway tells the upstream what it knows.
//! - The configured user and plan headers, unless the peer may set them.
//! - What the configured credential's header could be taken for.
//! - `Forwarded`, `X-Forwarded-*` and `X-Real-IP`, unless the peer is a trusted proxy.
//! - What servers and frameworks take for another host or path than the request's own ([`ROUTING`]), the same.
//!
//! CGI and its heirs hand `X_User`, `X.User` and `X-User` to the application as one. So a name that differs from a
//! protected one only in the characters between its words is always removed: a trusted proxy that does
//! not know better passes on what the client wrote.

use http::HeaderName;
use smallvec::SmallVec;

use super::{Settings, plan, token, user};
use crate::http::head::Fields;

/// Fields by which proxies tell of the host or path that a client asked for: Symfony and IIS, Envoy, Azure, gunicorn.
const ROUTING: [&str; 12] = [
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

/// Fields that name a method, which the route is found by too.
pub const METHOD_FIELDS: [&str; 3] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
];

/// Who may set a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllowedSetter {
    /// Nobody.
    Nobody,
    /// The trusted proxies.
    Proxies,
    /// The peers that may name the user.
    User,
    /// The peers that may name the plan.
    Plan,
}

/// Knows which headers are not the client's to set.
#[derive(Clone, Debug)]
pub(super) struct Stripper {
    user: Option<HeaderName>,
    plan: Option<HeaderName>,
    token: Option<HeaderName>,
}

impl Stripper {
    pub(super) fn new(settings: &Settings) -> Stripper {
        let user = match &settings.user {
            Some(user::Settings::Header { name, .. }) => Some(name.clone()),
            _ => None,
        };
        let plan = match &settings.plan.source {
            Some(plan::PlanOrigin::Header { name, .. }) => Some(name.clone()),
            _ => None,
        };
        let token = settings.token.as_ref().and_then(token::TokenSource::header);
        let token = token.cloned();
        Stripper { user, plan, token }
    }

    /// Removes every header that has lists, none of which `may` says yes to.
    pub(super) fn strip(&self, fields: &mut Fields, may: impl Fn(AllowedSetter) -> bool) {
        fields.retain(|name| {
            let lists = self.lists(name);
            lists.is_empty() || lists.iter().any(|list| may(*list))
        });
    }

    /// Whether a field of this name is not everybody's to set, or to set elsewhere than in a head.
    pub(super) fn guards(&self, name: &[u8]) -> bool {
        let is_token = |token: &HeaderName| same(name, token.as_str());
        let names_a_method = METHOD_FIELDS.iter().any(|field| same(name, field));
        !self.lists(name).is_empty() || names_a_method || self.token.as_ref().is_some_and(is_token)
    }

    /// Who may set this header; empty when everybody may.
    fn lists(&self, name: &[u8]) -> SmallVec<[AllowedSetter; 2]> {
        let mut lists = SmallVec::new();
        let configured = self.user.is_some() || self.plan.is_some() || self.token.is_some();
        let first = name.first().map(u8::to_ascii_lowercase);
        if !configured && !matches!(first, Some(b'f' | b's' | b't' | b'x')) {
            return lists;
        }
        let configured = [
            (&self.user, AllowedSetter::User),
            (&self.plan, AllowedSetter::Plan),
        ];
        for (header, list) in configured {
            if let Some(header) = header.as_ref().filter(|header| same(name, header.as_str())) {
                let exact = name.eq_ignore_ascii_case(header.as_str().as_bytes());
                lists.push(if exact { list } else { AllowedSetter::Nobody });
            }
        }
        if let Some(token) = self
            .token
            .as_ref()
            .filter(|token| same(name, token.as_str()))
            && !name.eq_ignore_ascii_case(token.as_str().as_bytes())
        {
            lists.push(AllowedSetter::Nobody);
        }
        // A configured header is for its own list only, even if it is called X-Forwarded-User.
        if lists.is_empty() {
            let ours = begins(name, "tollgate-");
            let forwarding =
                begins(name, "x-forwarded-") || same(name, "forwarded") || same(name, "x-real-ip");
            let routing = ROUTING.iter().any(|field| same(name, field));
            let method = METHOD_FIELDS.iter().any(|field| same(name, field));
            let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
            // gunicorn reads this one by no other name.
            let odd = !name.iter().all(plain) && !same(name, "script-name");
            if ours || (odd && (forwarding || routing || method)) {
                lists.push(AllowedSetter::Nobody);
            } else if forwarding || routing {
                lists.push(AllowedSetter::Proxies);
            }
        }
        lists
    }
}

/// Whether a header's name begins with `prefix`.
fn begins(name: &[u8], prefix: &str) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| same(start, prefix))
}

/// Whether CGI and its heirs take a header's name for another.
pub fn same(name: &[u8], wanted: &str) -> bool {
    let folded = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => byte.to_ascii_lowercase(),
        _ => b'-',
    };
    name.len() == wanted.len()
        && name
            .iter()
            .zip(wanted.bytes())
            .all(|(a, b)| folded(*a) == folded(b))
}
