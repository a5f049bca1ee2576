//! Checks whether the gateway file configures the identities that limits and routes use.

use super::super::context::LoadContext;
use super::super::decode::GatewayConfig;
use super::super::tree::Located;
use crate::limit::Identity;

/// Reports an identity that the gateway file does not configure.
pub(super) fn check_identity(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    identity: &Located<Identity>,
) {
    let sources = &gateway.identity;
    let (is_configured, help) = match identity.value {
        Identity::Ip => (true, ""),
        Identity::User => (
            sources.user.is_some(),
            "add for instance `user: { jwt: sub, jwks: jwks.json }` to `identity`",
        ),
        Identity::Token => (
            sources.token.is_some(),
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
    };
    if !is_configured {
        let message = format!(
            "the gateway file does not say how `{}` is known",
            identity.value.as_str()
        );
        cx.error(identity.location, message, Some(help.into()));
    }
}
