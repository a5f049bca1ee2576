//! Compiles the limits of the gateway file and of policies to rules, and the routes that refer to them.
//!
//! A limit of the gateway file or of a folder becomes one rule that its routes share, or one rule for each route. A
//! limit with rates by plan becomes one rule for each plan that has rates. The default of `sharing` is set in
//! `store.rs`. Defaults of other fields are set here or in `decode`.

use std::sync::Arc;

use super::super::context::LoadContext;
use super::super::decode::{
    GatewayConfig, KeyPartConfig, LimitConfig, LimitUse, LimitVariant, PolicyConfig,
    ThrottleConfig, split_by_plan,
};
use super::super::settings::UnroutedLimits;
use super::super::tree::{Located, SourceLocation};
use super::store;
use crate::base::clock::Nanos;
use crate::identity::{self, embedded_ipv4::untranslated_network};
use crate::limit::{
    Algorithm, ClientCondition, ClientFilter, Concurrency, CountMode, Disclose, Identity,
    IdentityTest, KeySpec, RateLimit, Rule, RuleLimit, ThrottleMode, header_texts,
};
use crate::route::{OwnResponseRules, Pattern, Route, RouteReads};
use crate::upstream;

/// The number of keys of each limit that must fit the memory for counts.
const MIN_KEYS_IN_MEMORY: usize = 16;
/// If fewer keys of a limit than this fit the memory for counts, the user gets a warning.
const FEW_KEYS_IN_MEMORY: usize = 10_000;

/// Compiles limits, and numbers their rules.
pub(super) struct RuleCompiler<'g> {
    gateway: &'g GatewayConfig,
    identity: &'g identity::Settings,
    /// All rules so far, by [`Rule::index`].
    pub(super) all: Vec<Arc<Rule>>,
    /// The location of each rule's key, by [`Rule::index`].
    pub(super) key_locations: Vec<SourceLocation>,
    /// The rules that routes share, by [`SharedLimit::index`]. `None` until the first route needs them, and always for a
    /// limit that each route counts for itself.
    shared: Vec<Option<Vec<Arc<Rule>>>>,
}

impl<'g> RuleCompiler<'g> {
    pub(super) fn new(
        gateway: &'g GatewayConfig,
        identity: &'g identity::Settings,
    ) -> RuleCompiler<'g> {
        RuleCompiler {
            gateway,
            identity,
            all: Vec::new(),
            key_locations: Vec::new(),
            shared: vec![None; gateway.limits.len()],
        }
    }

    /// Compiles the routes of a policy: one for each pair of a match and a host, all with the same name and limits.
    /// `first_index` is the index of the first of these routes, and `overrides` are those of the policy's own limits.
    /// Returns `None` if the policy has no match or no upstream of the gateway file, which was reported before.
    pub(super) fn compile_routes(
        &mut self,
        cx: &mut LoadContext,
        upstreams: &[upstream::Settings],
        first_index: usize,
        policy: &PolicyConfig,
    ) -> Option<Vec<Route>> {
        let upstream_name = policy.upstream.as_ref()?;
        let upstream = upstreams
            .iter()
            .position(|upstream| upstream.name == upstream_name.value)?;
        let mut rules = Vec::new();
        for (limit_index, limit) in self.gateway.limits.iter().enumerate() {
            if policy.has_gateway_limit(limit) {
                rules.extend(self.compile_shared_limit(cx, limit_index, limit, &policy.name));
            }
        }
        for used in &policy.limits {
            if let LimitUse::Own(limit) = used {
                let scope = format!("{}/{}", policy.name, limit.name.value);
                rules.extend(self.add_rules(cx, limit, &scope));
            }
        }
        let require: Vec<_> = policy
            .require
            .iter()
            .map(|identity| identity.value)
            .collect();
        let patterns = policy.patterns_with_hosts();
        let first = Route {
            name: policy.name.as_str().into(),
            index: first_index,
            pattern: patterns.first()?.value.clone(),
            other_patterns: Vec::new(),
            upstream_index: upstream,
            own_response_rules: OwnResponseRules::new(&rules, &require),
            reads: RouteReads::new(&rules, &require),
            rules: rules.into_iter().collect(),
            require,
            priority: policy.priority,
            headers: policy.headers.unwrap_or(self.gateway.headers),
            keeps_slashes: policy.keeps_slashes,
        };
        let with_pattern = |(index, pattern): (usize, Located<Pattern>)| Route {
            index,
            pattern: pattern.value,
            ..first.clone()
        };
        Some((first_index..).zip(patterns).map(with_pattern).collect())
    }

    /// Compiles the limits of requests without a route: those of the gateway file that hold on every route and count
    /// responses of the gateway itself. Where each route counts for itself, such requests are counted as if they had a
    /// route of their own.
    pub(super) fn compile_unrouted(&mut self, cx: &mut LoadContext) -> UnroutedLimits {
        let gateway = self.gateway;
        let limits = gateway.limits.iter().enumerate();
        let limits_of_every_route = limits.filter(|(_, limit)| !limit.routes.is_only_listed());
        let rules: Vec<_> = limits_of_every_route
            .flat_map(|(limit_index, limit)| self.compile_shared_limit(cx, limit_index, limit, ""))
            .filter(|rule| rule.counts_own_responses())
            .collect();
        let needs_credential = |rule: &Arc<Rule>| {
            let mut identities = rule.key.identities().chain(rule.clients.identities());
            rule.plans || identities.any(|identity| identity != Identity::Ip)
        };
        UnroutedLimits {
            by_credential: rules.iter().any(needs_credential),
            rules: rules.into_iter().collect(),
            headers: gateway.headers,
        }
    }

    /// Brings the values of a condition into the form in which requests have them.
    fn normalise_condition(&self, condition: ClientCondition) -> ClientCondition {
        let Identity::Custom(custom) = condition.identity else {
            return condition;
        };
        let source = self.identity.custom_source(custom);
        match (condition.test, source) {
            (IdentityTest::OneOf(values), Some(source)) => ClientCondition {
                test: IdentityTest::OneOf(
                    values.iter().map(|value| source.normalise(value)).collect(),
                ),
                ..condition
            },
            (test, _) => ClientCondition { test, ..condition },
        }
    }

    /// Compiles a shared limit for the route `route_name`, which is empty for requests without a route. If routes count
    /// together, the rules of the first call are returned again.
    fn compile_shared_limit(
        &mut self,
        cx: &mut LoadContext,
        limit_index: usize,
        limit: &LimitConfig,
        route_name: &str,
    ) -> Vec<Arc<Rule>> {
        if limit.routes.counts_each_route() {
            return self.add_rules(cx, limit, &format!("{route_name}/{}", limit.name.value));
        }
        if let Some(rules) = self.shared.get(limit_index).and_then(Option::as_ref) {
            return rules.clone();
        }
        let rules = self.add_rules(cx, limit, limit.name.value.as_str());
        if let Some(shared) = self.shared.get_mut(limit_index) {
            *shared = Some(rules.clone());
        }
        rules
    }

    /// Compiles a limit to a new rule, or to one for each plan that has rates of its own. `scope` identifies the limit's
    /// counts in the store; the name of the plan is added to it.
    fn add_rules(
        &mut self,
        cx: &mut LoadContext,
        config: &LimitConfig,
        scope: &str,
    ) -> Vec<Arc<Rule>> {
        let variants = split_by_plan(config).into_iter();
        let rules = variants.map(|variant| {
            let scope = match &variant.plan {
                Some(plan) => format!("{scope}#{plan}"),
                None => scope.to_owned(),
            };
            self.add_rule(cx, &variant, scope)
        });
        rules.collect()
    }

    /// Compiles a limit to a new rule. `scope` identifies its counts in the store.
    fn add_rule(
        &mut self,
        cx: &mut LoadContext,
        variant: &LimitVariant,
        scope: String,
    ) -> Arc<Rule> {
        let gateway = self.gateway;
        let config = &variant.limit;
        let count = config
            .count
            .as_ref()
            .map_or(CountMode::All, |count| count.value.clone());
        let limit = match config.concurrent {
            Some(max_open) => RuleLimit::Open(Concurrency {
                max_open: max_open.value,
                throttle: compile_throttle(config),
                max_plan_factor: gateway.max_plan_factor(config),
            }),
            None => RuleLimit::Rate(compile_rate_limit(
                gateway,
                config,
                count.is_settled_later(),
            )),
        };
        let nat64 = &gateway.identity.ip.nat64;
        let conditions = config
            .clients
            .conditions()
            .into_iter()
            .map(|at| match at.value.test {
                IdentityTest::InNetwork(networks) => ClientCondition {
                    test: IdentityTest::InNetwork(
                        (networks.into_iter())
                            .map(|network| untranslated_network(network, nat64))
                            .collect(),
                    ),
                    ..at.value
                },
                _ => self.normalise_condition(at.value),
            });
        let rule = Arc::new(Rule {
            name: config.name.value.clone(),
            index: self.all.len(),
            origin: cx.sources.origin(config.name.location),
            scope,
            key: compile_overrides(config),
            clients: ClientFilter {
                conditions: conditions.chain(variant.condition.clone()).collect(),
            },
            sharing: store::compile_sharing(config, &limit),
            on_store_error: config.on_store_error,
            header_texts: header_texts::UnclonedCell::default(),
            limit,
            algorithm_is_written: config.algorithm.is_some(),
            count,
            reserve: config.reserve.as_ref().map(|reserve| reserve.value.clone()),
            condition: config
                .condition
                .as_ref()
                .map(|condition| condition.value.clone()),
            plans: config.plans.is_some_and(|plans| plans.value),
            shadow: config.is_shadow.unwrap_or(false),
            exempt: config
                .exempt
                .iter()
                .map(|network| untranslated_network(*network, nat64))
                .collect(),
            disclose: config.disclose.unwrap_or(Disclose::All),
        });
        check_keys_in_memory(cx, store::store_budget(&gateway.store), config, &rule);
        let first_part = config.key.first();
        self.key_locations
            .push(first_part.map_or(config.name.location, |identity| identity.location));
        self.all.push(Arc::clone(&rule));
        rule
    }
}

fn compile_overrides(limit: &LimitConfig) -> KeySpec {
    let parts = limit.key.iter().filter_map(|part| match &part.value {
        KeyPartConfig::FirstOf(part) => Some(part.clone()),
        KeyPartConfig::Everyone => None,
    });
    KeySpec::new(parts.collect())
}

/// What the limit does above its rate; by default it refuses.
fn compile_throttle(limit: &LimitConfig) -> ThrottleMode {
    match limit.throttle.map(|throttle| throttle.value) {
        Some(ThrottleConfig::Soft(percent)) => ThrottleMode::Soft { percent },
        // `check` has made sure that `at_most` has the window of a rate.
        Some(ThrottleConfig::Elastic) => {
            limit
                .elastic_rates()
                .map_or(ThrottleMode::Hard, |(rate, at_most)| {
                    ThrottleMode::Elastic {
                        at_most: at_most.quota(),
                        base: rate.quota(),
                    }
                })
        }
        Some(ThrottleConfig::Hard) | None => ThrottleMode::Hard,
    }
}

/// Compiles the rates of a limit, the shortest window first. `reserves` says that the cost of a request becomes known
/// after its admission.
fn compile_rate_limit(gateway: &GatewayConfig, limit: &LimitConfig, reserves: bool) -> RateLimit {
    let mut windows: Vec<_> = limit.rates.iter().collect();
    windows.sort_by_key(|rate| rate.window());
    let throttle = compile_throttle(limit);
    let max_plan_factor = gateway.max_plan_factor(limit);
    let quota = windows.iter().map(|rate| rate.quota()).max().unwrap_or(0);
    // `check` has made sure that this fits 32 bits.
    let max_units = throttle.ceiling(quota).saturating_mul(max_plan_factor);
    let algorithm = compile_algorithm(limit, quota, max_units);
    RateLimit {
        windows,
        algorithm,
        throttle,
        reserves,
        max_plan_factor,
    }
}

/// The algorithm of a limit. If the file names none, it depends on `quota`, the largest of the limit, and on
/// `max_units`, that quota with all that plans and the throttle add.
fn compile_algorithm(limit: &LimitConfig, quota: u32, max_units: u32) -> Algorithm {
    match limit.algorithm.map(|algorithm| algorithm.value) {
        Some(Algorithm::Gcra { .. }) => Algorithm::Gcra {
            burst: limit.burst.map(|burst| burst.value),
        },
        Some(Algorithm::LeakyBucket { .. }) => Algorithm::LeakyBucket {
            max_delay: limit.delay.map_or(Nanos(0), |delay| delay.value.into()),
        },
        Some(written) => written,
        None => Algorithm::default_for(quota, max_units),
    }
}

/// Reports a limit if the memory for counts, `budget` bytes, holds fewer than [`MIN_KEYS_IN_MEMORY`] of its keys, and
/// warns below [`FEW_KEYS_IN_MEMORY`].
fn check_keys_in_memory(cx: &mut LoadContext, budget: usize, limit: &LimitConfig, rule: &Rule) {
    let RuleLimit::Rate(rate_limit) = &rule.limit else {
        return;
    };
    let key_bytes = rate_limit.bytes_per_key().max(1);
    let keys = budget / key_bytes;
    let message = || {
        format!(
            "a key of `{}` may take {key_bytes} bytes, so that memory for counts holds {keys} of them",
            rule.name
        )
    };
    let location = limit
        .algorithm
        .map_or(limit.name.location, |algorithm| algorithm.location);
    let help = "use `algorithm: sliding-window`, which takes little whatever the rate, or a larger `store: { memory: … }`";
    if keys < MIN_KEYS_IN_MEMORY {
        cx.error(location, message(), Some(help.into()));
    } else if keys < FEW_KEYS_IN_MEMORY {
        cx.warn(location, message(), Some(help.into()));
    }
}
