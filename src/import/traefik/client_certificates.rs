//! Which routers are reached with certificates of clients only. Traefik decides that by the host that a client names when it
//! begins TLS: options of TLS hold for the hosts of a router's rule, and so for other routers of these hosts too. Hosts whose
//! routers have different options, and all other hosts, have the default options.

use std::collections::{HashMap, HashSet};

use super::routers::Router;
use super::rule::named_hosts;
use super::tls::TlsOptions;
use super::treatment::{Claim, Variant};
use crate::import::routing::cells::{MAX_CELLS, MatchOwner, TooManyCells};
use crate::import::routing::region::Region;
use crate::route::pattern::HostPattern;

/// Why requests for a host of a router with such options get 503.
const REASON: &str = "certificates of clients";

/// Marks the variants whose clients may need a certificate.
pub fn mark_variants(variants: &mut [Variant], routers: &[Router], tls: &TlsOptions) {
    let is_default_refusing = tls.may_refuse_clients("");
    let rule = |variant: &Variant| {
        routers
            .get(variant.router)
            .map_or("", |router| &*router.rule)
    };
    // The options of each host; `None` if its routers differ, so that the default ones hold.
    let mut by_host: HashMap<String, Option<String>> = HashMap::new();
    for variant in variants.iter().filter(|variant| variant.is_tls) {
        for host in named_hosts(rule(variant)) {
            let known = by_host
                .entry(host.to_ascii_lowercase())
                .or_insert_with(|| Some(variant.tls_options.clone()));
            if known.as_ref() != Some(&variant.tls_options) {
                *known = None;
            }
        }
    }
    for variant in variants.iter_mut().filter(|variant| variant.is_tls) {
        let is_own = tls.may_refuse_clients(&variant.tls_options);
        let has_default = || {
            let hosts = named_hosts(rule(variant));
            let is_agreed = |host: &String| {
                let options = by_host.get(&host.to_ascii_lowercase());
                options.is_some_and(|options| options.as_ref() == Some(&variant.tls_options))
            };
            variant.tls_options.is_empty()
                || hosts.is_empty()
                || !hosts.iter().all(is_agreed)
                || rule(variant).contains(['|', '!'])
        };
        variant.may_need_certificate = is_own || (is_default_refusing && has_default());
    }
}

/// Claims of 503 for all requests of hosts that a router with such options names: they hold for other routers too.
///
/// # Errors
///
/// They are too many.
pub fn hosts_with_certificates(
    variants: &[Variant],
    routers: &[Router],
    first: usize,
) -> Result<Vec<Claim>, TooManyCells> {
    let mut seen: HashSet<(HostPattern, u64)> = HashSet::new();
    let mut claims = Vec::new();
    for (index, variant) in variants.iter().enumerate() {
        let Some(router) = routers
            .get(variant.router)
            .filter(|_| variant.may_need_certificate)
        else {
            continue;
        };
        let hosts = named_hosts(&router.rule);
        let hosts: Vec<HostPattern> = hosts
            .iter()
            .filter_map(|host| HostPattern::parse(host).ok())
            .filter(|host| matches!(host, HostPattern::Exact(_)))
            .filter(|host| seen.insert((host.clone(), variant.listeners)))
            .collect();
        if hosts.is_empty() {
            continue;
        }
        if first + claims.len() + seen.len() > MAX_CELLS {
            return Err(TooManyCells);
        }
        claims.push(Claim {
            variant: index,
            owner: MatchOwner {
                route: variant.router,
                // Before all routers, of which none may have these requests.
                priority: i64::MAX,
                treatment: usize::MAX,
            },
            region: Region {
                hosts,
                ..Region::everything()
            },
            stub: Some(REASON.into()),
        });
    }
    Ok(claims)
}
