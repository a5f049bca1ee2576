//! `allow` and `deny`: nginx takes the first rule that fits a client. tollgate has two lists, of which `deny` wins.

use ipnet::IpNet;

use super::syntax::Directive;
use super::variables::{network_text, parse_network};
use crate::import::model::{ActionDraft, RouteDraft};
use crate::import::report::{Concern, ImportReport};

/// The clients that a route admits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRules {
    /// Networks that get 403.
    pub deny: Vec<String>,
    /// The only networks that are served; empty for all.
    pub allow: Vec<String>,
    /// Whether nobody is served.
    pub denies_all: bool,
}

impl AccessRules {
    /// Lets the route admit these clients only.
    pub fn apply(&self, route: &mut RouteDraft) {
        if self.denies_all {
            route.action = ActionDraft::respond(403);
            route.strip = None;
            route.prefix = None;
            route.max_body = None;
            route.fields.clear();
            return;
        }
        let lists = [
            (&mut route.deny, &self.deny),
            (&mut route.allow, &self.allow),
        ];
        for (list, networks) in lists {
            if !networks.is_empty() {
                list.push(("ip".into(), networks.clone()));
            }
        }
    }
}

/// Reads the rules of one level, in their order.
pub fn read_access(rules: &[&Directive], report: &mut ImportReport) -> AccessRules {
    let mut access = AccessRules::default();
    let (mut denied, mut allowed): (Vec<IpNet>, Vec<IpNet>) = (Vec::new(), Vec::new());
    let mut is_default_deny = false;
    let mut is_over = false;
    for rule in rules {
        let (at, text) = (rule.origin, rule.text());
        if is_over {
            let note = "a rule before it holds for all clients already";
            report.taken(at, Concern::Routing, &text, note);
            continue;
        }
        let is_deny = rule.name == "deny";
        let network = match rule.argument(0) {
            "all" => {
                is_default_deny = is_deny;
                is_over = true;
                report.taken(at, Concern::Routing, &text, "");
                continue;
            }
            text => parse_network(text),
        };
        let Some(network) = network else {
            let note = match is_deny {
                true => "only addresses and networks can be denied here",
                false => "only addresses and networks can be allowed here; these clients get 403",
            };
            report.left(at, Concern::Routing, &text, note);
            continue;
        };
        let overlaps = |other: &IpNet| other.contains(&network) || network.contains(other);
        match is_deny {
            true => {
                denied.push(network);
                match allowed.iter().find(|other| overlaps(other)) {
                    Some(other) => {
                        let note = format!(
                            "{} is denied with it, although it is allowed before: `deny` wins here",
                            network_text(*other)
                        );
                        report.changed(at, Concern::Routing, &text, &note);
                    }
                    None => report.taken(at, Concern::Routing, &text, ""),
                }
            }
            false => {
                allowed.push(network);
                report.taken(at, Concern::Routing, &text, "");
            }
        }
    }
    if is_default_deny {
        access.denies_all = allowed.is_empty();
        access.allow = allowed
            .iter()
            .map(|network| network_text(*network))
            .collect();
    }
    access.deny = denied
        .iter()
        .map(|network| network_text(*network))
        .collect();
    access.deny.dedup();
    access
}
