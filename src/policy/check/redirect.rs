//! Checks that redirects to HTTPS hold at listeners without TLS only, and that there is a listener with TLS. No policy may
//! hold only where a listener redirects every request. What a policy takes off paths must be able to follow its target.

use super::super::context::LoadContext;
use super::super::decode::{GatewayConfig, ListenerConfig, PolicyConfig};
use super::super::tree::SourceLocation;
use crate::route::RedirectTarget;

/// What to do where a redirect to HTTPS leads nowhere.
const NO_TLS_HELP: &str = "add `tls: { cert: cert.pem, key: key.pem }` to one";

/// Reports listeners that redirect to HTTPS where there is no such listener.
pub(super) fn check_listener_redirects(cx: &mut LoadContext, gateway: &GatewayConfig) {
    let redirects = gateway.listen.iter();
    for redirect in redirects.filter_map(|listener| listener.redirect.as_ref()) {
        check_has_tls(cx, gateway, redirect.location, NO_TLS_HELP);
    }
}

/// Reports the names of listeners by which a policy holds only where every request is redirected.
pub(super) fn check_is_reached(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    policy: &PolicyConfig,
) {
    let redirects_all = |name: &str| {
        let mut listeners = gateway.listen.iter();
        listeners.any(|listener| {
            let own_name = listener.name.as_ref().map(|own_name| &*own_name.value);
            own_name == Some(name) && listener.redirect.is_some()
        })
    };
    if policy.listen.iter().all(|name| redirects_all(&name.value))
        && let Some(name) = policy.listen.first()
    {
        let message = format!(
            "`{}` redirects every request, so this policy gets none",
            name.value
        );
        let help = "name a listener without `redirect`, or drop the `redirect` there";
        cx.error(name.location, message, Some(help.into()));
    }
}

/// Whether some listener speaks TLS. Reports a redirect to HTTPS if none does.
fn check_has_tls(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    redirect: SourceLocation,
    help: &str,
) -> bool {
    let has_tls = gateway.listen.iter().any(ListenerConfig::is_tls);
    if !has_tls {
        let message = "no listener speaks TLS, so there is nowhere to go";
        cx.error(redirect, message, Some(help.into()));
    }
    has_tls
}

/// Reports a policy that redirects to HTTPS where there is no such listener, or where clients use it already.
pub(super) fn check_redirect(cx: &mut LoadContext, gateway: &GatewayConfig, policy: &PolicyConfig) {
    let target = policy.redirect.as_ref();
    let target = target.and_then(|redirect| redirect.value.to.as_ref());
    let Some(target) = target.filter(|to| matches!(to.value, RedirectTarget::Https { .. })) else {
        return;
    };
    let help = format!("{NO_TLS_HELP}, or write a whole URL: `https://www.example.com`");
    if !check_has_tls(cx, gateway, target.location, &help) {
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

/// Reports `strip` and `prefix` where no path is forwarded that they could change. A redirect leads below its target by
/// `strip`, so that target must be one that a path can follow. A policy may inherit `prefix`.
pub(super) fn check_stripped_redirect(cx: &mut LoadContext, policy: &PolicyConfig) {
    // No policy inherits its `match`.
    let own_file = policy.patterns.first().map(|pattern| pattern.location.file);
    let own_prefix = policy.prefix.as_ref();
    let own_prefix = own_prefix.filter(|prefix| Some(prefix.location.file) == own_file);
    if policy.respond.is_some() {
        for changed in [policy.strip.as_ref(), own_prefix].into_iter().flatten() {
            let message = "no path is changed here, because the gateway itself answers";
            cx.error(changed.location, message, Some("remove it".into()));
        }
    }
    let redirect = policy.redirect.as_ref();
    let Some(target) = redirect.and_then(|redirect| redirect.value.to.as_ref()) else {
        return;
    };
    if let Some(prefix) = own_prefix {
        let message = "no path is forwarded here, so nothing is put before it";
        let help = match policy.strip {
            Some(_) => {
                "write it at the end of the target of `redirect`, which the rest of the path follows"
            }
            None => "remove it",
        };
        cx.error(prefix.location, message, Some(help.into()));
    }
    if policy.strip.is_some() && target.value.clone().below().is_none() {
        let message =
            "`strip` lets the rest of the path follow this, and no path can follow a `?` or `#`";
        let help = "drop `strip`, or what begins with `?` or `#`: the query of the request is kept";
        cx.error(target.location, message, Some(help.into()));
    }
}
