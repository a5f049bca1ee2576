//! Warns of limits that can ban nobody by the address on some listener, because no client has an address there that it
//! alone stands for.

use std::sync::Arc;

use super::context::LoadContext;
use super::settings::ListenerSettings;
use super::tree::SourceLocation;
use crate::identity::Settings;
use crate::limit::{Identity, Rule};
use crate::net::{Address, PeerNetwork};
use crate::route::Route;

/// Warns of each limit that bans by `ip` and holds on a Unix socket, unless a trusted proxy there says who the client is.
/// `key_locations` are the locations of the rules' keys, by index.
pub(super) fn warn_of_bans_without_address(
    cx: &mut LoadContext,
    rules: &[Arc<Rule>],
    key_locations: &[SourceLocation],
    routes: &[Arc<Route>],
    listeners: &[ListenerSettings],
    identity: &Settings,
) {
    if identity.ip.trusted_proxies.contains(&PeerNetwork::Unix) {
        return;
    }
    let lacks_addresses = |listener: &&ListenerSettings| {
        let is_unix = matches!(listener.address, Address::Unix(_));
        is_unix && listener.redirect.is_none() && !listener.proxies.contains(&PeerNetwork::Unix)
    };
    let listeners: Vec<&ListenerSettings> = listeners.iter().filter(lacks_addresses).collect();
    for (rule, location) in rules.iter().zip(key_locations) {
        if rule.ban.is_none() || rule.shadow || !rule.key.has(Identity::Ip) {
            continue;
        }
        let holds_on = |listener: &&&ListenerSettings| {
            let mut routes = routes.iter();
            routes.any(|route| {
                let mut route_rules = route.rules.iter();
                route.holds_on(listener.name.as_deref())
                    && route_rules.any(|route_rule| route_rule.index == rule.index)
            })
        };
        if let Some(listener) = listeners.iter().find(holds_on) {
            let message = format!(
                "`{}` bans nobody who connects over {}, where clients have no address of their own",
                rule.name, listener.address
            );
            let help = "add `unix` to `trusted_proxies` if a proxy there sends `X-Forwarded-For`, or ban by `user` or `token`";
            cx.warn(*location, message, Some(help.into()));
        }
    }
}
