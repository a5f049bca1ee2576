//! Checks whether the gateway file configures the identities that limits and routes use, and whether their sources fit
//! the other settings.

use http::HeaderName;

use super::super::context::LoadContext;
use super::super::decode::{GatewayConfig, ISSUER_SEPARATOR, PolicyConfig, UserConfig};
use super::super::tree::Located;
use crate::base::suggest::{list_words, nearest_word};
use crate::identity::custom::Source;
use crate::identity::path_part;
use crate::identity::strip::is_alike;
use crate::identity::token::TokenSource;
use crate::limit::custom_identity::PREFLIGHT;
use crate::limit::{ClientCondition, Identity, IdentityTest};
use crate::route::{Pattern, Segment};

/// Reports an identity for which the gateway file has no source. The address needs none; the plan also needs plans.
pub(super) fn check_identity(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    identity: &Located<Identity>,
) {
    if cx.checks_descriptors {
        return;
    }
    let sources = &gateway.identity;
    let (is_configured, help) = match identity.value {
        Identity::Ip => (true, ""),
        Identity::User => (
            !sources.users.is_empty(),
            "add for instance `user: { jwt: sub, jwks: jwks.json }` to `identity`",
        ),
        Identity::Token => (
            !sources.tokens.is_empty(),
            "add for instance `token: { header: x-api-key }` to `identity`",
        ),
        Identity::Email => (
            sources.email.is_some(),
            "add for instance `email: { body: email }` to `identity`",
        ),
        Identity::Plan => (
            sources.plan.is_some() && !gateway.plans.is_empty(),
            "add `plans:`, and for instance `plan: { jwt: plan, default: free }` to `identity`",
        ),
        Identity::Custom(custom) => (
            sources
                .custom
                .iter()
                .any(|defined| defined.name.value == custom.as_str()),
            "add it to `identity`, for instance as `{ header: x-device-id }`",
        ),
    };
    if !is_configured {
        let message = format!(
            "the gateway file does not say how `{}` is known",
            identity.value.as_str()
        );
        cx.error(identity.location, message, Some(help.into()));
    }
}

/// Checks that the sources of custom identities fit the other settings, and warns of a part of the path that no policy
/// has.
pub(super) fn check_custom_sources(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    policies: &[PolicyConfig],
) {
    for custom in &gateway.identity.custom {
        if let Some(part) = &custom.path
            && !policies.iter().any(|policy| has_path_part(policy, part))
        {
            let message = format!("no policy has `{{{part}}}` in its `match`");
            let help = "write for instance `match: /accounts/{account}/**` and `path: account`";
            cx.warn(custom.name.location, message, Some(help.into()));
        }
        if let Some(claim) = &custom.jwt
            && !gateway.identity.has_user(|user| user.jwt.is_some())
        {
            let message = "a claim needs a user that is proven by a token";
            let help = "add for instance `user: { jwt: sub, jwks: jwks.json }`";
            cx.error(claim.location, message, Some(help.into()));
        }
        if let Some(api_keys) = custom.api_keys
            && !gateway.identity.has_user(UserConfig::has_api_keys)
        {
            let message = "an identity of API keys needs `user: { api_keys: FILE }`";
            let help = "add for instance `user: { api_keys: keys.yaml }`";
            cx.error(api_keys.location, message, Some(help.into()));
        }
    }
}

/// Checks that the header of the request's id is not one that an identity comes from, in any spelling: the gateway
/// removes it from requests.
pub(super) fn check_request_id_field(cx: &mut LoadContext, gateway: &GatewayConfig) {
    let Some(field) = &gateway.request_id else {
        return;
    };
    let sources = &gateway.identity;
    let users = sources
        .users
        .iter()
        .filter_map(|user| user.value.header.as_ref());
    let plan = sources
        .plan
        .iter()
        .filter_map(|plan| plan.value.header.as_ref());
    let tokens = sources
        .tokens
        .iter()
        .filter_map(TokenSource::configured_header);
    let custom = sources
        .custom
        .iter()
        .filter_map(|custom| custom.header.as_ref());
    let mut identity_fields = users.chain(plan).chain(tokens).chain(custom);
    let is_same = |name: &&HeaderName| is_alike(name.as_str().as_bytes(), field.value.as_str());
    if let Some(name) = identity_fields.find(is_same) {
        let message = format!("an identity comes from the header `{name}`");
        let help = "name another header: the gateway itself sets the one of the id";
        cx.error(field.location, message, Some(help.into()));
    }
}

/// Checks an identity that is a part of the path, such as `{account}`: all patterns of the policy must have that part.
pub(super) fn check_path_part(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    policy: &PolicyConfig,
    identity: &Located<Identity>,
) {
    let name = identity.value.as_str();
    let mut custom_identities = gateway.identity.custom.iter();
    let custom = custom_identities.find(|custom| custom.name.value == name);
    let Some(part) = custom.and_then(|custom| custom.path.as_ref()) else {
        return;
    };
    let lacks_part = |pattern: &&Located<Pattern>| pattern.value.segment_index(part).is_none();
    let Some(pattern) = policy.patterns.iter().find(lacks_part) else {
        return;
    };
    let message =
        format!("`{name}` is the part `{{{part}}}` of the path, which `match` does not have");
    if pattern.location.file == identity.location.file {
        let help = format!("write for instance `match: /accounts/{{{part}}}/**`");
        cx.error(identity.location, message, Some(help));
    } else {
        let origin = cx.sources.origin(identity.location);
        let help = format!(
            "the default at {origin} needs it: write that field here too, or name the part"
        );
        cx.error(pattern.location, message, Some(help));
    }
}

/// Whether a pattern of the policy has the part `{part}`.
fn has_path_part(policy: &PolicyConfig, part: &str) -> bool {
    let mut patterns = policy.patterns.iter();
    patterns.any(|pattern| pattern.value.segment_index(part).is_some())
}

/// Checks that requests of the policy may have a value that an operator wrote for a part of the path. Where all patterns end
/// with that part, none has a value with a format.
pub(in super::super) fn check_value_of_path_part(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    policy: &PolicyConfig,
    identity: Identity,
    value: Located<&str>,
) {
    let mut custom_identities = gateway.identity.custom.iter();
    let custom = custom_identities.find(|custom| custom.name.value == identity.as_str());
    let Some(part) = custom.and_then(|custom| custom.path.as_ref()) else {
        return;
    };
    let ends_with_part = |pattern: &Located<Pattern>| {
        let last_segment = pattern.value.segments().last();
        matches!(last_segment, Some(Segment::One(name)) if **name == **part)
    };
    // A number may be written with a fraction, which is no format.
    let normal = Source::PathPart(part.as_str().into()).normalise(value.value);
    if let Some(kept) = path_part::without_ignored_format(normal.as_deref().unwrap_or_default())
        && policy.patterns.iter().all(ends_with_part)
    {
        let message = format!(
            "no request has `{}` as `{}`",
            value.value,
            identity.as_str()
        );
        let help = format!(
            "write `{kept}`: at the end of a path, what follows the last dot does not count"
        );
        cx.error(value.location, message, Some(help));
    }
}

/// Checks that a name begins with the name of an issuer, if all values of the identity do.
pub(in super::super) fn check_issuer_of_name(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    identity: Identity,
    name: Located<&str>,
) {
    let issuers = gateway.identity.name_issuers(identity);
    let Some(first_issuer) = issuers.first() else {
        return;
    };
    let has_issuer = |issuer: &&str| {
        let rest = name.value.strip_prefix(*issuer);
        rest.is_some_and(|rest| rest.starts_with(ISSUER_SEPARATOR))
    };
    if !issuers.iter().any(has_issuer) {
        let message = format!("no token gives the {} `{}`", identity.as_str(), name.value);
        let help = format!(
            "begin it with its issuer, as `{first_issuer}{ISSUER_SEPARATOR}…`, or add `shared_names: true`"
        );
        cx.error(name.location, message, Some(help));
    }
}

/// Checks a condition on an identity: the gateway file must configure the identity, and requests must be able to meet the
/// condition.
pub(super) fn check_condition(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    condition: &Located<ClientCondition>,
) {
    let ClientCondition { identity, test } = &condition.value;
    let location = condition.location;
    if identity.as_str() != PREFLIGHT {
        let value = *identity;
        check_identity(cx, gateway, &Located { value, location });
    }
    check_condition_values(cx, gateway, condition);
    match (identity, test) {
        (Identity::Plan, IdentityTest::Absent) if has_default_plan(gateway) => {
            let help = "name the plans, or remove `default` from `plan`";
            cx.error(location, "every request has a plan", Some(help.into()));
        }
        (Identity::Plan, IdentityTest::OneOf(plans)) => {
            let names = gateway.plans.iter().map(|plan| plan.name.value.as_str());
            for plan in plans {
                if !names.clone().any(|name| name == plan) {
                    cx.report_unknown_plan(location, plan, names.clone());
                }
            }
        }
        _ => {}
    }
}

/// Checks a condition on an identity in a policy: the route must have a part of the path that it is about, with such values.
pub(super) fn check_condition_on_path(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    policy: &PolicyConfig,
    condition: &Located<ClientCondition>,
) {
    let ClientCondition { identity, test } = &condition.value;
    let location = condition.location;
    let value = *identity;
    check_path_part(cx, gateway, policy, &Located { value, location });
    let IdentityTest::OneOf(values) = test else {
        return;
    };
    for value in values {
        let value = Located {
            value: value.as_str(),
            location,
        };
        check_value_of_path_part(cx, gateway, policy, *identity, value);
    }
}

/// Whether requests without a plan get a default one, so that every request has a plan.
pub(super) fn has_default_plan(gateway: &GatewayConfig) -> bool {
    let plan = gateway.identity.plan.as_ref();
    plan.is_some_and(|plan| plan.value.default.is_some())
}

/// Checks the values of a condition on an identity. A cookie cannot be compared, because only its hash is known. The values
/// of an identity by networks must be names of its networks, and those from tokens may need their issuer.
fn check_condition_values(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    condition: &Located<ClientCondition>,
) {
    let IdentityTest::OneOf(values) = &condition.value.test else {
        return;
    };
    for value in values {
        let name = Located {
            value: value.as_str(),
            location: condition.location,
        };
        check_issuer_of_name(cx, gateway, condition.value.identity, name);
    }
    let name = condition.value.identity.as_str();
    let mut custom_identities = gateway.identity.custom.iter();
    let Some(custom) = custom_identities.find(|custom| custom.name.value == name) else {
        return;
    };
    if custom.cookie.is_some() {
        let message = format!("`{name}` is a cookie, of which only a hash is known");
        let help = "write `present` or `absent`";
        cx.error(condition.location, message, Some(help.into()));
    }
    if let Some(networks) = &custom.networks {
        let names = networks.iter().map(|networks| networks.name.value.as_str());
        for value in values {
            if !names.clone().any(|name| name == value) {
                let message = format!("`{name}` has no networks called `{value}`");
                let help = match nearest_word(value, names.clone()) {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None => format!("its networks are {}", list_words(names.clone())),
                };
                cx.error(condition.location, message, Some(help));
            }
        }
    }
}
