//! A rule: a limit as a policy names it, with the key that it counts by, what it counts, and which clients are exempt.
//! The arithmetic of the limit itself is elsewhere; see [`RuleLimit`].

use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;

use super::header_texts::{HeaderTexts, UnclonedCell};
use super::pressure::Condition;
use super::{
    AppliedGrant, BanPolicy, ClientFilter, CountMode, Identity, KeySpec, OnStoreError, Reserve,
    RuleLimit, Sharing,
};

/// The longest name of a limit, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The name of a limit, the same in policies, headers, logs and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimitName(Arc<str>);

/// Why a text is not a limit's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a limit's name is 1 to 64 letters, digits, `-` or `_`, starting with a letter")]
pub struct LimitNameError;

impl LimitName {
    /// Makes a name that can stand in headers, logs and metrics unquoted.
    ///
    /// # Errors
    ///
    /// The text is not 1 to 64 letters, digits, `-` or `_`, starting with a letter.
    pub fn new(text: &str) -> Result<LimitName, LimitNameError> {
        let starts_with_letter = text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphabetic());
        let is_plain = text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        if starts_with_letter && is_plain && text.len() <= MAX_NAME_BYTES {
            Ok(LimitName(text.into()))
        } else {
            Err(LimitNameError)
        }
    }

    /// The name as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What responses say about a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disclose {
    /// Headers and refusals name it.
    All,
    /// Headers and refusals do not mention it.
    None,
}

/// The limits of single keys, which hold in place of a rule's own.
#[derive(Debug)]
pub struct Overrides {
    /// The keys.
    pub set: Arc<OverrideSet>,
    /// A copy of the rule for each different limit that keys have, by its number less one. Plans do not multiply the limits
    /// that files give to keys.
    pub rules: Vec<Arc<Rule>>,
    /// The index of the set of keys that have grants now, which come before those of `set`; `None` if there are none.
    pub granted_set: Option<usize>,
}

impl Overrides {
    /// The rule of the override with this number, from 1; `None` for 0 and beyond the last one.
    pub fn rule(&self, number: u16) -> Option<&Arc<Rule>> {
        self.rules.get(usize::from(number).checked_sub(1)?)
    }
}

/// The keys of one limit that have limits of their own. All rules of the limit share them.
#[derive(Debug)]
pub struct OverrideSet {
    /// The index of the set among those of the running policies.
    pub index: usize,
    /// Each key as the operator wrote it, and what holds for it.
    pub keys: Vec<(Box<str>, KeyLimit)>,
}

/// What holds for a key with a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLimit {
    /// The key has no limit.
    Unlimited,
    /// The limit of the override with this number; see [`Rule::override_number`].
    Override(u16),
}

/// One rule of the running policies.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The name of the limit.
    pub name: LimitName,
    /// The index of the rule among those of the running policies; see `policy::Ruleset::rules`.
    pub index: usize,
    /// Where the rule is written, as in `policies/api.yaml:4`; empty without a file.
    pub origin: String,
    /// The text that tells the rule's counters apart from those of other rules. It is the name of the limit. The name
    /// of the route is added where `routes: each` or a route's own limit separates the counts, and that of the plan
    /// where rates are by plan.
    pub scope: String,
    /// Whether the limit is written once for many routes, each of which counts for itself and has a rule of its own.
    pub counts_each_route: bool,
    /// What the limit counts by.
    pub key: KeySpec,
    /// The clients that the limit is for.
    pub clients: ClientFilter,
    /// The limit itself.
    pub limit: RuleLimit,
    /// Whether the policy names the algorithm. If not, the algorithm depends on the quota.
    pub algorithm_is_written: bool,
    /// What uses up units of the limit.
    pub count: CountMode,
    /// What a request takes at admission, one unit if absent: what it reserves until its cost is known, or the cost
    /// that it states itself.
    pub reserve: Option<Reserve>,
    /// The condition under which an elastic limit lends. Without one a limit lends nothing.
    pub condition: Option<Condition>,
    /// Whether plans multiply the quotas.
    pub plans: bool,
    /// Whether the rule only counts and reports, and never refuses.
    pub shadow: bool,
    /// Whether the rule has the candidate rates of a limit (`try`), whose name and fields it shares. It is in shadow mode.
    pub is_candidate: bool,
    /// The networks to which the rule does not apply.
    pub exempt: Vec<IpNet>,
    /// What responses say about the limit.
    pub disclose: Disclose,
    /// When the limit bans a client whom it keeps refusing; `None` if it never does.
    pub ban: Option<BanPolicy>,
    /// The keys that have limits of their own, if there are any.
    pub overrides: Option<Arc<Overrides>>,
    /// The number of this rule among the [`Overrides::rules`] of another, from 1; 0 if it is no override.
    pub override_number: u16,
    /// The grant that made this override; `None` if it is from a file.
    pub grant: Option<AppliedGrant>,
    /// How gateways with one store share the counts.
    pub sharing: Sharing,
    /// What the limit does while the store cannot be reached.
    pub on_store_error: OnStoreError,
    /// The limit's parts of rate-limit headers.
    pub header_texts: UnclonedCell<HeaderTexts>,
}

impl Rule {
    /// What follows the name of the limit in the scope of its candidate rates. No name has this character.
    pub const CANDIDATE_SUFFIX: &str = "~try";

    /// What a grant writes before the name of a limit that each route counts for itself. No route has this name.
    pub const EACH_ROUTE_PREFIX: &str = "*/";

    /// The scope without what tells plans and candidate rates apart: `api/per-user` for `api/per-user~try#gold`.
    pub fn limit_scope(&self) -> &str {
        let scope = self.scope.split('#').next().unwrap_or_default();
        scope.strip_suffix(Rule::CANDIDATE_SUFFIX).unwrap_or(scope)
    }

    /// Makes a rule that is not from a file. It counts every request, is disclosed, and has no exemptions. `index` is
    /// its index in the list that admission is made with.
    pub fn new(
        name: LimitName,
        index: usize,
        key: impl Into<KeySpec>,
        limit: impl Into<RuleLimit>,
    ) -> Rule {
        let limit = limit.into();
        Rule {
            sharing: limit.rate().map_or(Sharing::Strict, Sharing::default_for),
            on_store_error: OnStoreError::Local,
            header_texts: UnclonedCell::default(),
            index,
            origin: String::new(),
            scope: name.as_str().to_owned(),
            counts_each_route: false,
            name,
            key: key.into(),
            clients: ClientFilter::default(),
            limit,
            algorithm_is_written: false,
            count: CountMode::All,
            reserve: None,
            condition: None,
            plans: false,
            shadow: false,
            is_candidate: false,
            exempt: Vec::new(),
            disclose: Disclose::All,
            ban: None,
            overrides: None,
            override_number: 0,
            grant: None,
        }
    }

    /// How a grant names the limit: by its scope, or all routes that count for themselves as `*/per-user`.
    pub fn granted_limit(&self) -> String {
        match self.counts_each_route {
            true => format!("{}{}", Rule::EACH_ROUTE_PREFIX, self.name),
            false => self.limit_scope().to_owned(),
        }
    }

    /// The rule with the limit of the override of this number, from 1; the rule itself if there is none.
    #[cold]
    pub(super) fn override_rule(self: &Arc<Rule>, number: u16) -> &Arc<Rule> {
        let overrides = self.overrides.as_ref();
        overrides
            .and_then(|overrides| overrides.rule(number))
            .unwrap_or(self)
    }

    /// Whether the rule counts requests that the gateway itself responds to. Such requests need no permit, and cost
    /// no upstream anything.
    pub fn counts_own_responses(&self) -> bool {
        !self.count.is_cost() && self.limit.rate().is_some()
    }

    /// What a request reserves until its cost is known; `None` if that is one unit, or if the cost is known at
    /// admission.
    pub fn reservation(&self) -> Option<&Reserve> {
        let is_reserved = self.count.is_settled_later();
        self.reserve.as_ref().filter(|_| is_reserved)
    }

    /// Whether the identity decides if the rule's filter selects a client, or by which key the rule counts it.
    pub fn depends_on(&self, identity: Identity) -> bool {
        self.key.has(identity) || self.clients.has(identity)
    }

    /// Whether no client gets more from this rule than from `other`. That is true if both are the same rule, or if `other`
    /// is in shadow, where it refuses nothing.
    ///
    /// Otherwise this rule must not be in shadow, must be for all clients of `other`, and must have the same key. It must
    /// also count whatever `other` counts, and admit no more in any of the windows of `other`. Plans must not multiply this
    /// rule alone. False if either rule has overrides.
    pub fn is_as_strict_as(&self, other: &Rule) -> bool {
        let counts_as_much = || match (&self.count, &other.count) {
            (CountMode::All, CountMode::Status { .. }) => true,
            (own_count, other_count) => own_count == other_count && self.reserve == other.reserve,
        };
        let is_exempt_from_other =
            |network: &IpNet| other.exempt.iter().any(|wider| wider.contains(network));
        self.index == other.index
            || other.shadow
            || (!self.shadow
                && (!self.plans || other.plans)
                && self.key.is_same(&other.key)
                && (self.clients.is_empty() || self.clients == other.clients)
                && counts_as_much()
                && self.overrides.is_none()
                && other.overrides.is_none()
                && self.exempt.iter().all(is_exempt_from_other)
                && self.limit.is_as_strict_as(&other.limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{
        Algorithm, ClientCondition, Concurrency, IdentityTest, RateLimit, ThrottleMode,
    };

    fn rule(index: usize, rates: &[&str]) -> Rule {
        let mut limit = RateLimit::hard(rates[0].parse().unwrap());
        limit.windows = rates.iter().map(|rate| rate.parse().unwrap()).collect();
        Rule::new(LimitName::new("a").unwrap(), index, &[Identity::Ip], limit)
    }

    #[test]
    fn as_strict() {
        let check = |own: &[&str], other: &[&str], expected: bool| {
            let (own, other) = (rule(0, own), rule(1, other));
            assert_eq!(own.is_as_strict_as(&other), expected, "{own:?} {other:?}");
        };
        check(&["5/h"], &["5/h"], true);
        check(&["5/15m"], &["1000/m"], true);
        check(&["5/15m"], &["20/h"], true);
        check(&["5/15m"], &["19/h"], false);
        check(&["1000/m"], &["5/h"], false);
        check(&["5/h"], &["5/m"], true);
        check(&["6/h"], &["5/m"], false);
        check(&["2/s", "10/h"], &["10/h"], true);
        check(&["10/h"], &["2/s", "10/h"], false);
        check(&["2/s", "10/h"], &["3/s", "10/h"], true);
    }

    #[test]
    fn as_strict_by_the_same_algorithm() {
        let by = |index, algorithm| {
            let mut rule = rule(index, &["10/m"]);
            if let RuleLimit::Rate(limit) = &mut rule.limit {
                limit.algorithm = algorithm;
            }
            rule
        };
        let bursts = |burst| Algorithm::Gcra { burst };
        for (own, other, expected) in [
            (Algorithm::SlidingLog, Algorithm::FixedWindow, true),
            (Algorithm::SlidingWindow, bursts(Some(100)), true),
            (Algorithm::FixedWindow, Algorithm::SlidingLog, false),
            (Algorithm::FixedWindow, Algorithm::FixedWindow, true),
            (bursts(Some(100)), Algorithm::SlidingLog, false),
            (bursts(Some(100)), bursts(None), false),
        ] {
            let strict = by(0, own).is_as_strict_as(&by(1, other));
            assert_eq!(strict, expected, "{own:?} {other:?}");
        }
    }

    #[test]
    fn as_strict_in_all() {
        let (own, other) = (rule(0, &["5/h"]), rule(1, &["9/h"]));
        let check = |change: &dyn Fn(&mut Rule, &mut Rule), expected: bool| {
            let (mut own, mut other) = (own.clone(), other.clone());
            change(&mut own, &mut other);
            assert_eq!(own.is_as_strict_as(&other), expected, "{own:?} {other:?}");
        };
        let key = |identities: &[Identity]| KeySpec::from(identities);
        let (by_token, by_both) = (
            key(&[Identity::Token]),
            key(&[Identity::Ip, Identity::Token]),
        );
        check(&|own, _| own.key = by_token.clone(), false);
        check(&|own, _| own.key = by_both.clone(), false);
        check(&|_, other| other.key = by_both.clone(), false);
        check(&|own, _| own.key = KeySpec::everyone(), false);
        let anonymous = ClientFilter {
            conditions: vec![ClientCondition {
                identity: Identity::User,
                test: IdentityTest::Absent,
            }],
        };
        check(&|own, _| own.clients = anonymous.clone(), false);
        check(&|_, other| other.clients = anonymous.clone(), true);
        check(
            &|own, other| (own.clients, other.clients) = (anonymous.clone(), anonymous.clone()),
            true,
        );
        check(&|own, _| own.shadow = true, false);
        check(
            &|own, other| (own.shadow, other.shadow) = (true, true),
            true,
        );
        check(&|own, _| own.plans = true, false);
        check(&|own, other| (own.plans, other.plans) = (true, true), true);
        check(
            &|_, other| other.count = CountMode::Status { from: 400, to: 499 },
            true,
        );
        check(
            &|own, _| own.count = CountMode::Status { from: 400, to: 499 },
            false,
        );
        let net = |text: &str| vec![text.parse().unwrap()];
        check(&|own, _| own.exempt = net("10.0.0.0/24"), false);
        check(
            &|own, other| (own.exempt, other.exempt) = (net("10.0.0.0/24"), net("10.0.0.0/8")),
            true,
        );
        check(&|own, _| own.limit = Concurrency::hard(1).into(), false);
        let open = |most| RuleLimit::Open(Concurrency::hard(most));
        check(
            &|own, other| (own.limit, other.limit) = (open(2), open(2)),
            true,
        );
        check(
            &|own, other| (own.limit, other.limit) = (open(3), open(2)),
            false,
        );
        let lends = |rule: &mut Rule, throttle| match &mut rule.limit {
            RuleLimit::Rate(limit) => limit.throttle = throttle,
            RuleLimit::Open(limit) => limit.throttle = throttle,
        };
        check(
            &|own, _| lends(own, ThrottleMode::Soft { percent: 80 }),
            true,
        );
        check(
            &|own, _| lends(own, ThrottleMode::Soft { percent: 100 }),
            false,
        );
        let elastic = ThrottleMode::Elastic {
            at_most: 10,
            base: 5,
        };
        check(&|own, _| lends(own, elastic), false);
        check(&|_, other| lends(other, elastic), true);
        // Counted already.
        check(
            &|own, other| (own.index, own.shadow) = (other.index, true),
            true,
        );
    }
}
