//! Finds limits that a client can pass: it chooses another key for each request, or leaves the key out.

use std::sync::Arc;

use super::collect::Cx;
use super::tree::SourcePlace;
use crate::identity::user::OnUnverified;
use crate::identity::{Settings, user};
use crate::limit::{CountMode, Identity, Rule, RuleLimit};
use crate::route::Route;

/// How far a client controls the key of one limit, on the route where it controls most.
#[derive(Clone, Copy, Debug)]
pub struct KeyControl {
    /// That route, by index.
    route: usize,
    /// The part of the key of which a client can send another one each time.
    chosen: Option<Identity>,
    /// A client can send none of the parts, and the limit does not apply.
    left_out: bool,
    /// Another limit of the route that counts these requests by what no client chooses or leaves out, by index.
    beside: Option<usize>,
    /// A client can pass the limit, and nothing beside it holds.
    hole: bool,
}

/// How far a client controls each key, by index; none for limits that no route has.
pub fn key_controls(
    limits: usize,
    routes: &[Arc<Route>],
    identity: &Settings,
) -> Vec<Option<KeyControl>> {
    let mut key_controls: Vec<Option<KeyControl>> = vec![None; limits];
    for route in routes {
        for rule in route.rules.iter() {
            let Some(known) = key_controls.get_mut(rule.index) else {
                continue;
            };
            if known.is_none_or(|known| !known.hole) {
                let control = KeyControl::of(rule, route, identity);
                if known.is_none() || control.hole {
                    *known = Some(control);
                }
            }
        }
    }
    key_controls
}

/// Warns of each limit that a client can pass. `places` are those of the limits' keys, by index.
pub(super) fn warn(
    cx: &mut Cx,
    (rules, places): (&[Arc<Rule>], &[SourcePlace]),
    routes: &[Arc<Route>],
    identity: &Settings,
) {
    let key_controls = key_controls(rules.len(), routes, identity);
    for ((rule, place), control) in rules.iter().zip(places).zip(key_controls) {
        let Some(control) = control.filter(|control| control.hole && !rule.shadow) else {
            continue;
        };
        let says = control.says(rule, rules, identity);
        let route = routes.get(control.route).map_or("", |route| &*route.name);
        let message = format!("`{}` does not hold on route `{route}`: {says}", rule.name);
        cx.warn(*place, message, Some(control.cure(rule)));
    }
}

/// How far a client controls one part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartControl {
    /// It is there with every request, and not the client's to choose.
    Fixed,
    /// It is verified, and a client can leave it out.
    Proven,
    /// A client can send what it likes.
    Chosen,
}

fn part(identity: Identity, settings: &Settings) -> PartControl {
    match identity {
        Identity::Ip if settings.ip.ipv6 > 64 && !settings.ip.parents => PartControl::Chosen,
        Identity::Ip => PartControl::Fixed,
        Identity::User => PartControl::Proven,
        Identity::Token if settings.proves(Identity::Token) => PartControl::Proven,
        Identity::Token | Identity::Email => PartControl::Chosen,
        Identity::Plan if settings.plan.default.is_some() => PartControl::Fixed,
        Identity::Plan => PartControl::Proven,
    }
}

impl KeyControl {
    fn of(rule: &Rule, route: &Route, settings: &Settings) -> KeyControl {
        let is_chosen = |identity: &&Identity| part(**identity, settings) == PartControl::Chosen;
        let chosen = rule.key.iter().find(is_chosen).copied();
        let left_out = can_be_left_out(rule, route, settings);
        let holds = |other: &&Arc<Rule>| {
            let same = matches!(
                (&other.limit, &rule.limit),
                (RuleLimit::Rate(_), RuleLimit::Rate(_)) | (RuleLimit::Open(_), RuleLimit::Open(_))
            );
            other.index != rule.index
                && same
                && !other.shadow
                && (other.count == CountMode::All || other.count == rule.count)
                && !other.key.iter().any(|identity| is_chosen(&identity))
                && !can_be_left_out(other, route, settings)
        };
        let beside = route.rules.iter().find(holds).map(|rule| rule.index);
        let hole = match chosen {
            // The limit protects each mailbox. Where none is named it must be asked for: a limit by ip protects
            // no mailbox.
            Some(Identity::Email) => left_out,
            Some(_) => beside.is_none(),
            None => left_out && beside.is_none(),
        };
        KeyControl {
            route: route.index,
            chosen,
            left_out,
            beside,
            hole,
        }
    }

    /// In one line, for people.
    pub fn says(&self, rule: &Rule, rules: &[Arc<Rule>], settings: &Settings) -> String {
        let held = match self.beside.and_then(|index| rules.get(index)) {
            Some(other) => format!("counted by `{}` only", other.name),
            None => String::from("not counted"),
        };
        if let Some(chosen) = self.chosen {
            let also = match self.beside.and_then(|index| rules.get(index)) {
                Some(other) => format!("; `{}` counts it all the same", other.name),
                None => String::new(),
            };
            let out = if self.left_out {
                " or leave it out"
            } else {
                ""
            };
            return format!("a client can choose another {}{out}{also}", chosen.as_str());
        }
        let proven = rule.key.iter().copied();
        let proven: Vec<&str> = proven
            .filter(|identity| part(*identity, settings) == PartControl::Proven)
            .map(Identity::as_str)
            .collect();
        let names = proven.join(" or ");
        if self.left_out {
            let anonymous = settings.unverified == OnUnverified::Anonymous;
            let field = matches!(settings.user, Some(user::Settings::Header { .. }));
            let bad = if anonymous && !field {
                ", or with one that does not verify,"
            } else {
                ""
            };
            return format!("requests without a {names}{bad} are {held}");
        }
        let fixed = rule.key.iter().copied();
        let fixed: Vec<&str> = fixed
            .filter(|identity| part(*identity, settings) == PartControl::Fixed)
            .map(Identity::as_str)
            .collect();
        match (proven.is_empty(), fixed.is_empty()) {
            (true, _) => String::from("a client cannot choose its key"),
            (false, true) => {
                format!("a client cannot choose its key; without a {names} it gets 401")
            }
            (false, false) => format!(
                "a client cannot choose its key; without a {names} it is counted by {}",
                fixed.join(" and ")
            ),
        }
    }

    /// What to do about a hole.
    fn cure(&self, rule: &Rule) -> String {
        let asked = match self.chosen {
            Some(Identity::Ip) => {
                return String::from("write `group: { ipv6: 64 }`, or drop `parents: false`");
            }
            Some(Identity::Email) => return String::from("add `require: email` to the policy"),
            Some(_) => return String::from("add a limit by ip beside it"),
            None => rule.key.iter().find(|part| **part != Identity::Plan),
        };
        match asked {
            Some(asked) => format!(
                "add `require: {}` to the policy, or a limit by ip beside it",
                asked.as_str()
            ),
            None => String::from("add `default` to `plan`, or a limit by ip beside it"),
        }
    }

    /// The same as JSON.
    pub fn to_json(self, says: &str) -> serde_json::Value {
        serde_json::json!({
            "chooses": self.chosen.map(Identity::as_str),
            "leaves_out": self.left_out,
            "passes": self.hole,
            "says": says,
        })
    }
}

/// Whether a request may have none of the parts of the key.
fn can_be_left_out(rule: &Rule, route: &Route, settings: &Settings) -> bool {
    let always = |identity: &Identity| {
        *identity == Identity::Ip
            || part(*identity, settings) == PartControl::Fixed
            || route.require.contains(identity)
    };
    !rule.key.iter().any(always)
}
