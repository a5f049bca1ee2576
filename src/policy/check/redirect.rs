//! Checks that redirects to HTTPS hold at listeners without TLS only, and that there is a listener with TLS.

use super::super::context::LoadContext;
use super::super::decode::{GatewayConfig, ListenerConfig, PolicyConfig};
use crate::route::RedirectTarget;

/// Reports a policy that redirects to HTTPS where there is no such listener, or where clients use it already.
pub(super) fn check_redirect(cx: &mut LoadContext, gateway: &GatewayConfig, policy: &PolicyConfig) {
    let target = policy.redirect.as_ref();
    let target = target.and_then(|redirect| redirect.value.to.as_ref());
    let Some(target) = target.filter(|to| matches!(to.value, RedirectTarget::Https { .. })) else {
        return;
    };
    if !gateway.listen.iter().any(ListenerConfig::is_tls) {
        let message = "no listener speaks TLS, so there is nowhere to go";
        let help = "add `tls: { cert: cert.pem, key: key.pem }` to one, or write a whole URL: `https://www.example.com`";
        cx.error(target.location, message, Some(help.into()));
        return;
    }
    let holds_at = |listener: &&ListenerConfig| {
        let mut names = policy.listen.iter();
        policy.listen.is_empty()
            || names.any(|name| {
                let own_name = listener.name.as_ref();
                own_name.is_some_and(|own_name| own_name.value == name.value)
            })
    };
    let mut listeners = gateway.listen.iter().filter(holds_at);
    if listeners.any(ListenerConfig::is_tls) {
        let message =
            "over TLS this redirect leads back to itself, so clients would follow it for ever";
        let plain_listeners = gateway.listen.iter().filter(|listener| !listener.is_tls());
        let name = plain_listeners
            .filter_map(|listener| listener.name.as_ref())
            .next();
        let name = name.map_or("plain", |name| &*name.value);
        let help =
            format!("let the policy hold at a listener without `tls` only: `listen: {name}`");
        cx.error(target.location, message, Some(help));
    }
}
