//! Finds limits that a client can evade: by choosing another key for each request, by leaving the key out, or by
//! failing a condition of the limit. The results are warnings and parts of the description; they change nothing about
//! the limits.

use std::sync::Arc;

use super::context::LoadContext;
use super::tree::SourceLocation;
use crate::identity::custom::Source;
use crate::identity::user::OnUnverified;
use crate::identity::{Settings, user};
use crate::limit::{CountMode, Identity, IdentityTest, Rule, RuleLimit};
use crate::route::Route;

/// How far a client controls the key of one limit, on the route where it controls most.
#[derive(Clone, Copy, Debug)]
pub struct KeyControl {
    /// The index of that route.
    route_index: usize,
    /// The first identity of which a client can send another value each time: one of a condition, or else a part of the
    /// key.
    chosen_part: Option<Identity>,
    /// Whether a client can leave out all parts of the key or fail a condition, so that the limit does not apply.
    can_be_omitted: bool,
    /// The index of another limit of the route that counts these requests by a key that no client controls.
    covering_rule: Option<usize>,
    /// Whether a client can evade the limit.
    is_evadable: bool,
}

/// Finds how far a client controls the key of each limit, by [`Rule::index`]; `None` for limits that no route has. The
/// first route where the limit can be evaded counts, or else the first one that has the limit.
pub fn find_key_controls(
    rule_count: usize,
    routes: &[Arc<Route>],
    identity: &Settings,
) -> Vec<Option<KeyControl>> {
    let mut key_controls: Vec<Option<KeyControl>> = vec![None; rule_count];
    // Proxies that ask by descriptors are trusted.
    for route in routes.iter().filter(|route| route.is_for_http()) {
        for rule in route.rules.iter() {
            let Some(worst_control) = key_controls.get_mut(rule.index) else {
                continue;
            };
            if worst_control.is_none_or(|control| !control.is_evadable) {
                let control = KeyControl::new(rule, route, identity);
                if worst_control.is_none() || control.is_evadable {
                    *worst_control = Some(control);
                }
            }
        }
    }
    key_controls
}

/// Warns of each limit that a client can evade, unless the limit is in shadow mode. `key_locations` are the locations
/// of the rules' keys, by index.
pub(super) fn warn_of_controlled_keys(
    cx: &mut LoadContext,
    rules: &[Arc<Rule>],
    key_locations: &[SourceLocation],
    routes: &[Arc<Route>],
    identity: &Settings,
) {
    let key_controls = find_key_controls(rules.len(), routes, identity);
    for ((rule, location), control) in rules.iter().zip(key_locations).zip(key_controls) {
        let Some(control) = control.filter(|control| control.is_evadable && !rule.shadow) else {
            continue;
        };
        let description = control.describe(rule, rules, identity);
        let route = routes
            .get(control.route_index)
            .map_or("", |route| &*route.name);
        let message = format!(
            "`{}` does not hold on route `{route}`: {description}",
            rule.name
        );
        cx.warn(*location, message, Some(control.suggest_fix(rule)));
    }
}

/// Warns of each limit that bans by a key of which a client chooses a part: it can name another client, or nobody. Also
/// warns of one that bans by the address alone whoever lacks the other parts. Reports keys that many clients share.
pub(super) fn warn_of_chosen_bans(
    cx: &mut LoadContext,
    rules: &[Arc<Rule>],
    key_locations: &[SourceLocation],
    identity: &Settings,
) {
    for (rule, location) in rules.iter().zip(key_locations) {
        if rule.ban.is_none() || rule.shadow {
            continue;
        }
        let is_of_many = |part| identity.is_of_many_clients(part);
        let is_of_plans = |part| part == Identity::Plan;
        if rule.key.identities().all(is_of_many) && !rule.key.identities().all(is_of_plans) {
            let message =
                "this limit counts many clients together, so a ban would hold for all of them";
            let help = "count by ip or user too, for instance `key: ip`, or remove `ban`";
            cx.error(*location, message, Some(help.into()));
        }
        let mut chosen_parts = rule
            .key
            .identities()
            .filter(|part| part_control(*part, identity) == PartControl::Chosen);
        if let Some(chosen_part) = chosen_parts.next() {
            let name = chosen_part.as_str();
            let message = format!(
                "`{}` bans by `{name}`, which clients choose: one can get another banned by using its {name}",
                rule.name
            );
            let help =
                "count by ip or user too, so that a ban is about the client that was refused";
            cx.warn(*location, message, Some(help.into()));
        }
        let mut proven_parts = rule
            .key
            .identities()
            .filter(|part| part_control(*part, identity) == PartControl::Proven);
        if rule.key.has(Identity::Ip)
            && let Some(proven_part) = proven_parts.next()
        {
            let name = proven_part.as_str();
            let message = format!(
                "`{}` bans the whole address of clients without `{name}`, and with it each {name} who shares the address",
                rule.name
            );
            let help = format!(
                "count by `{name}` alone here, and write a limit of its own for the others"
            );
            cx.warn(*location, message, Some(help));
        }
    }
}

/// How far a client controls one part of a key: an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartControl {
    /// Every request has the part, and a client cannot choose it.
    Fixed,
    /// A client cannot make up a value of the part, but can leave the part out.
    Proven,
    /// A client can send any value.
    Chosen,
    /// Where the client is, or what the request is about. A request may lack the part, but a client cannot leave it out.
    Given,
}

/// The leading bits of an IPv6 address that a client cannot choose: providers give each client a /64 or more addresses.
const CLIENT_PREFIX_BITS: u8 = 64;

/// How far a client controls an identity, whatever the route requires.
fn part_control(identity: Identity, settings: &Settings) -> PartControl {
    match identity {
        Identity::Ip
            if settings.ip.ipv6_prefix_length > CLIENT_PREFIX_BITS
                && !settings.ip.has_parent_budgets =>
        {
            PartControl::Chosen
        }
        Identity::Ip => PartControl::Fixed,
        Identity::User => PartControl::Proven,
        Identity::Token if settings.needs_proof(Identity::Token) => PartControl::Proven,
        Identity::Token | Identity::Email => PartControl::Chosen,
        Identity::Plan if settings.plan.default_index.is_some() => PartControl::Fixed,
        Identity::Plan => PartControl::Proven,
        Identity::Custom(custom) => match settings.custom_source(custom) {
            Some(Source::Field(_) | Source::Query(_) | Source::Body(_) | Source::Ja4) => {
                PartControl::Chosen
            }
            Some(Source::Networks(_) | Source::PathPart(_) | Source::Preflight | Source::Entry) => {
                PartControl::Given
            }
            Some(Source::Claim(_) | Source::ApiKeys | Source::Certificate(_)) | None => {
                PartControl::Proven
            }
        },
    }
}

impl KeyControl {
    fn new(rule: &Rule, route: &Route, settings: &Settings) -> KeyControl {
        let chosen_condition = evadable_conditions(rule, route, settings)
            .find(|identity| part_control(*identity, settings) == PartControl::Chosen);
        let chosen_part = chosen_condition.or_else(|| find_chosen_part(rule, route, settings));
        let is_given = |identity| part_control(identity, settings) == PartControl::Given;
        let can_be_omitted = evadable_conditions(rule, route, settings).next().is_some()
            || (can_omit_key(rule, route, settings) && !rule.key.identities().all(is_given));
        let is_covering = |other: &&Arc<Rule>| {
            let has_same_kind = matches!(
                (&other.limit, &rule.limit),
                (RuleLimit::Rate(_), RuleLimit::Rate(_)) | (RuleLimit::Open(_), RuleLimit::Open(_))
            );
            // A limit for clients without an identity counts the clients that leave it out.
            let counts_evading_clients = other.clients.conditions.iter().all(|condition| {
                chosen_part.is_none()
                    && condition.test == IdentityTest::Absent
                    && rule.depends_on(condition.identity)
            });
            // In a limit of all clients together, one client can use up what all others have.
            let counts_each_client = !other.key.is_everyone() || rule.key.is_everyone();
            other.index != rule.index
                && has_same_kind
                && !other.shadow
                && counts_evading_clients
                && counts_each_client
                && (other.count == CountMode::All || other.count == rule.count)
                && find_chosen_part(other, route, settings).is_none()
                && !can_omit_key(other, route, settings)
        };
        let covering_rule = route.rules.iter().find(is_covering).map(|rule| rule.index);
        let is_evadable = match chosen_part {
            // A limit by email protects each mailbox, and a limit by another key does not. So choosing another email
            // evades nothing, and a covering rule does not help against requests without one.
            Some(Identity::Email) => can_be_omitted,
            Some(_) => covering_rule.is_none(),
            None => can_be_omitted && covering_rule.is_none(),
        };
        KeyControl {
            route_index: route.index,
            chosen_part,
            can_be_omitted,
            covering_rule,
            is_evadable,
        }
    }

    /// Describes in one line how far a client controls the key of `rule`.
    pub fn describe(&self, rule: &Rule, rules: &[Arc<Rule>], settings: &Settings) -> String {
        let covering_rule = self.covering_rule.and_then(|index| rules.get(index));
        if let Some(chosen_part) = self.chosen_part {
            let omission_text = if self.can_be_omitted {
                " or leave it out"
            } else {
                ""
            };
            let coverage_text = match covering_rule {
                Some(other) => format!("; `{}` counts it all the same", other.name),
                None => String::new(),
            };
            return format!(
                "a client can choose another {}{omission_text}{coverage_text}",
                chosen_part.as_str()
            );
        }
        let mut proven_parts = parts_with_control(rule, PartControl::Proven, settings);
        for condition in &rule.clients.conditions {
            let name = condition.identity.as_str();
            let is_plan = condition.identity == Identity::Plan;
            if !is_plan && condition.test != IdentityTest::Absent && !proven_parts.contains(&name) {
                proven_parts.push(name);
            }
        }
        // A condition on networks names the address, which no request lacks.
        proven_parts.retain(|name| *name != Identity::Ip.as_str());
        let proven_names = proven_parts.join(" or ");
        if self.can_be_omitted {
            let coverage_text = match covering_rule {
                Some(other) => format!("counted by `{}` only", other.name),
                None => String::from("not counted"),
            };
            // A user in a header of a trusted peer needs no verification, so none can fail.
            let is_anonymous = settings.on_unverified == OnUnverified::Anonymous;
            let is_user_in_header =
                matches!(settings.user_sources[..], [user::Settings::Header { .. }]);
            let unverified_text = if is_anonymous && !is_user_in_header {
                ", or with one that does not verify,"
            } else {
                ""
            };
            return format!(
                "requests without {} {proven_names}{unverified_text} are {coverage_text}",
                article(&proven_names)
            );
        }
        let mut fixed_parts = parts_with_control(rule, PartControl::Fixed, settings);
        let given_parts = parts_with_control(rule, PartControl::Given, settings);
        if proven_parts.is_empty() && !given_parts.is_empty() {
            return String::from("the key is where the client is, or what the request is about");
        }
        fixed_parts.extend(given_parts);
        match (proven_parts.is_empty(), fixed_parts.is_empty()) {
            (true, _) => String::from("a client cannot choose its key"),
            (false, true) => {
                let article = article(&proven_names);
                format!(
                    "a client cannot choose its key; without {article} {proven_names} it gets 401"
                )
            }
            (false, false) => format!(
                "a client cannot choose its key; without {} {proven_names} it is counted by {}",
                article(&proven_names),
                fixed_parts.join(" and ")
            ),
        }
    }

    /// Suggests how to make a limit hold that a client can evade.
    fn suggest_fix(&self, rule: &Rule) -> String {
        let required_part = match self.chosen_part {
            Some(Identity::Ip) => {
                return String::from("write `group: { ipv6: 64 }`, or drop `parents: false`");
            }
            Some(Identity::Email) => return String::from("add `require: email` to the policy"),
            Some(_) => return String::from("add a limit by ip beside it"),
            None => (rule.key.identities().chain(rule.clients.identities()))
                .find(|part| !matches!(part, Identity::Plan | Identity::Ip)),
        };
        match required_part {
            Some(part) => format!(
                "add `require: {}` to the policy, or a limit by ip beside it",
                part.as_str()
            ),
            None => String::from("add `default` to `plan`, or a limit by ip beside it"),
        }
    }

    /// Formats the control as JSON, with the line that [`KeyControl::describe`] returned.
    pub fn to_json(self, description: &str) -> serde_json::Value {
        serde_json::json!({
            "chooses": self.chosen_part.map(Identity::as_str),
            "leaves_out": self.can_be_omitted,
            "passes": self.is_evadable,
            "says": description,
        })
    }
}

/// The identities of those conditions of the rule that a client can make fail. The address is never among them, nor
/// what is [`PartControl::Given`]. The plan is not either, because rates by plan have a rule for each plan.
fn evadable_conditions(
    rule: &Rule,
    route: &Route,
    settings: &Settings,
) -> impl Iterator<Item = Identity> {
    let conditions = rule.clients.conditions.iter().filter(|condition| {
        let identity = condition.identity;
        let is_chosen = part_control(identity, settings) == PartControl::Chosen;
        match (identity, &condition.test) {
            (Identity::Ip | Identity::Plan, _) => false,
            _ if part_control(identity, settings) == PartControl::Given => false,
            (_, IdentityTest::Absent) => is_chosen,
            (_, IdentityTest::Present) => !is_always_present(identity, route, settings),
            (_, _) => true,
        }
    });
    conditions.map(|condition| condition.identity)
}

/// Finds the first identity of a rule's key that a client can choose and be counted by.
fn find_chosen_part(rule: &Rule, route: &Route, settings: &Settings) -> Option<Identity> {
    let is_chosen = |identity: &Identity| part_control(*identity, settings) == PartControl::Chosen;
    rule.key.parts().iter().find_map(|part| {
        let identities = part.identities();
        let is_fixed = |identity: &Identity| {
            !is_chosen(identity) && is_always_present(*identity, route, settings)
        };
        // No request is counted by an identity that comes after one that every request has.
        let possible_identities = match identities.iter().position(is_fixed) {
            Some(index) => &identities[..index],
            None => identities,
        };
        possible_identities.iter().copied().find(is_chosen)
    })
}

/// The names of the parts of a rule's key that a client controls in this way.
fn parts_with_control(rule: &Rule, control: PartControl, settings: &Settings) -> Vec<&'static str> {
    let parts = rule.key.identities();
    parts
        .filter(|part| part_control(*part, settings) == control)
        .map(Identity::as_str)
        .collect()
}

/// Whether a request may have none of the parts of the key.
fn can_omit_key(rule: &Rule, route: &Route, settings: &Settings) -> bool {
    let mut identities = rule.key.identities();
    !rule.key.is_everyone()
        && !identities.any(|identity| is_always_present(identity, route, settings))
}

/// Whether the identity is a part of the path that the route's pattern names.
fn is_in_path(identity: Identity, route: &Route, settings: &Settings) -> bool {
    let Identity::Custom(custom) = identity else {
        return false;
    };
    match settings.custom_source(custom) {
        Some(Source::PathPart(name)) => route.pattern.segment_index(name).is_some(),
        _ => false,
    }
}

/// Whether every request that the route serves has the identity.
fn is_always_present(identity: Identity, route: &Route, settings: &Settings) -> bool {
    identity == Identity::Ip
        || part_control(identity, settings) == PartControl::Fixed
        || is_in_path(identity, route, settings)
        || route.require.contains(&identity)
}
/// The article before these names. Of the usual names with a vowel only `user` is spoken with a consonant.
fn article(names: &str) -> &'static str {
    match names.starts_with(['a', 'e', 'i', 'o']) {
        true => "an",
        false => "a",
    }
}
