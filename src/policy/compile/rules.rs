//! Compiles the limits of the gateway file and of policies to rules, and the routes that refer to them.
//!
//! A limit of the gateway file or of a folder becomes one rule that its routes share, or one rule for each route. A
//! limit with rates by plan becomes one rule for each plan that has rates. The default of `sharing` is set in
//! `store.rs`. Defaults of other fields are set here or in `decode`.

use std::sync::Arc;

use super::super::context::LoadContext;
use super::super::decode::{
    CorsChoice, GatewayConfig, LimitConfig, LimitUse, LimitVariant, PolicyConfig, ThrottleConfig,
    required_user_sources, split_with_candidates,
};
use super::super::settings::UnroutedLimits;
use super::super::shared_limits::{SharedLimit, SharedLimits};
use super::super::tree::{Located, SourceLocation};
use super::identity::network_list::counted_network;
use super::overrides::{LimitOverrides, SharedOverrides};
use super::route_changes::{compile_back_mapping, compile_field_changes, compile_path_change};
use super::store;
use crate::base::clock::Nanos;
use crate::identity;
use crate::limit::{
    AccessLists, Algorithm, ClientCondition, ClientFilter, Concurrency, CountMode, Disclose,
    Identity, IdentitySet, IdentityTest, Overrides, RateLimit, Reserve, Rule, RuleLimit,
    ThrottleMode, header_texts,
};
use crate::route::{Cors, OwnResponseRules, Pattern, Route, RouteAction, RouteReads};

/// Maximum number of limits of all routes together, and of different overrides, because a store numbers them with 16 bits.
pub(super) const MAX_RULES: usize = u16::MAX as usize;
/// The number of keys of each limit that must fit the memory for counts; with fewer the configuration is refused.
const MIN_KEYS_IN_MEMORY: usize = 16;
/// If fewer keys of a limit than this fit the memory for counts, the user gets a warning.
const FEW_KEYS_IN_MEMORY: usize = 10_000;

/// Compiles limits, and numbers their rules.
pub(super) struct RuleCompiler<'g> {
    gateway: &'g GatewayConfig,
    limits: &'g SharedLimits<'g>,
    identity: &'g identity::Settings,
    /// What the gateway file says of pages of other origins.
    gateway_cors: Option<Arc<Cors>>,
    /// All rules so far, by [`Rule::index`].
    pub(super) all: Vec<Arc<Rule>>,
    /// The location of each rule's key, by [`Rule::index`].
    pub(super) key_locations: Vec<SourceLocation>,
    /// The rules that routes share, by [`SharedLimit::index`]. `None` until the first route needs them, and always for a
    /// limit that each route counts for itself.
    shared: Vec<Option<Vec<Arc<Rule>>>>,
    /// The overrides of the limits that several routes have.
    overrides: SharedOverrides,
    /// The number of copies of rules for keys with limits of their own. A copy has the [`Rule::index`] of its rule.
    pub(super) override_count: usize,
}

impl<'g> RuleCompiler<'g> {
    pub(super) fn new(
        gateway: &'g GatewayConfig,
        limits: &'g SharedLimits<'g>,
        identity: &'g identity::Settings,
        overrides: SharedOverrides,
    ) -> RuleCompiler<'g> {
        RuleCompiler {
            gateway,
            limits,
            identity,
            gateway_cors: gateway
                .cors
                .as_ref()
                .and_then(CorsChoice::compile)
                .map(Arc::new),
            all: Vec::new(),
            key_locations: Vec::new(),
            shared: vec![None; limits.all().len()],
            overrides,
            override_count: 0,
        }
    }

    /// Compiles the routes of a policy: one for each pair of a match and a host, all with the same name, action and limits.
    /// `first_index` is the index of the first of these routes, `overrides` are those of the policy's own limits, and
    /// `access` are the lists that hold on them.
    /// Returns `None` if the policy has no match, which was reported before.
    pub(super) fn compile_routes(
        &mut self,
        cx: &mut LoadContext,
        action: RouteAction,
        first_index: usize,
        policy: &PolicyConfig,
        overrides: &[LimitOverrides],
        access: AccessLists,
    ) -> Option<Vec<Route>> {
        let mut rules = Vec::new();
        let limits = self.limits;
        for limit in limits.of_policy(policy) {
            rules.extend(self.compile_shared_limit(cx, &limit, &policy.name));
        }
        for limit in policy.limits.iter().filter_map(LimitUse::own) {
            let scope = format!("{}/{}", policy.name, limit.name.value);
            let overrides = overrides.iter().find(|overrides| overrides.is_of(limit));
            rules.extend(self.add_rules(cx, (limit, false), &scope, overrides));
        }
        let require: Vec<_> = policy
            .require
            .iter()
            .map(|required| required.identity.value)
            .collect();
        let patterns = policy.patterns_with_hosts();
        let request_changes = compile_field_changes(&policy.request);
        let response_changes = compile_field_changes(&policy.response);
        let changes = request_changes.iter().chain(&response_changes);
        let changed_identities = changes.map(|changes| changes.identities());
        let reads = RouteReads::new(&rules, &require, &access);
        // The gateway's own responses are short.
        let is_forwarded = matches!(action, RouteAction::Forward(_));
        let codings = policy.compress.as_ref().or(self.gateway.compress.as_ref());
        let codings = codings
            .filter(|_| is_forwarded)
            .cloned()
            .unwrap_or_default();
        let first_route = Route {
            name: policy.name.as_str().into(),
            index: first_index,
            pattern: patterns.first()?.value.clone(),
            other_patterns: Vec::new(),
            listeners: policy
                .listen
                .iter()
                .map(|name| name.value.as_str().into())
                .collect(),
            action,
            own_response_rules: OwnResponseRules::new(&rules, &require),
            reads: RouteReads {
                custom: changed_identities.fold(reads.custom, IdentitySet::union),
                ..reads
            },
            access,
            rules: rules.into_iter().collect(),
            require,
            user_sources: required_user_sources(&self.gateway.identity.users, &policy.require),
            max_body_bytes: policy.max_body_bytes.map(|bytes| bytes as u64),
            codings,
            cors: match &policy.cors {
                Some(choice) => choice.compile().map(Arc::new),
                None => self.gateway_cors.clone(),
            },
            priority: policy.priority,
            headers: policy.headers.unwrap_or(self.gateway.headers),
            keeps_slashes: policy.keeps_slashes,
            path_change: compile_path_change(policy),
            back_mapping: compile_back_mapping(self.gateway, policy),
            request_changes,
            response_changes,
            error_pages: None,
            may_share_server: self.gateway.decide.http.is_some(),
        };
        let with_pattern = |(index, pattern): (usize, Located<Pattern>)| Route {
            index,
            pattern: pattern.value,
            ..first_route.clone()
        };
        Some((first_index..).zip(patterns).map(with_pattern).collect())
    }

    /// Compiles the limits of requests without a route: those of the gateway file that hold on every route and count
    /// responses of the gateway itself. Where each route counts for itself, such requests are counted as if they had a
    /// route of their own. `access` are the lists of the gateway file.
    pub(super) fn compile_unrouted(
        &mut self,
        cx: &mut LoadContext,
        access: AccessLists,
    ) -> UnroutedLimits {
        let gateway = self.gateway;
        let limits = self.limits.of_gateway().iter();
        let limits_of_every_route = limits.filter(|shared| !shared.limit.routes.is_only_listed());
        let rules: Vec<_> = limits_of_every_route
            .flat_map(|limit| self.compile_shared_limit(cx, limit, ""))
            .filter(|rule| rule.counts_own_responses())
            .collect();
        let depends_on_credential = |rule: &Arc<Rule>| {
            let mut identities = rule.key.identities().chain(rule.clients.identities());
            rule.plans || identities.any(|identity| identity != Identity::Ip)
        };
        UnroutedLimits {
            needs_credential: rules.iter().any(depends_on_credential)
                || access.identities().next().is_some(),
            access,
            rules: rules.into_iter().collect(),
            header_style: gateway.headers,
            cors: self.gateway_cors.clone(),
        }
    }

    /// Compiles a shared limit for the route `route_name`, which is empty for requests without a route. If routes count
    /// together, the rules of the first call are returned again.
    fn compile_shared_limit(
        &mut self,
        cx: &mut LoadContext,
        shared: &SharedLimit<'_>,
        route_name: &str,
    ) -> Vec<Arc<Rule>> {
        if let Some(rules) = self.shared.get(shared.index).and_then(Option::as_ref) {
            return rules.clone();
        }
        let limit = shared.limit;
        let scope = match limit.counts_each_route() {
            true => format!("{route_name}/{}", limit.name.value),
            false => shared.common_scope(),
        };
        let overrides = self.overrides.get(shared.index).cloned().flatten();
        let counts_each_route = limit.counts_each_route();
        let config = (limit, counts_each_route);
        let rules = self.add_rules(cx, config, &scope, overrides.as_deref());
        if counts_each_route {
            return rules;
        }
        if let Some(compiled) = self.shared.get_mut(shared.index) {
            *compiled = Some(rules.clone());
        }
        rules
    }

    /// Compiles a limit to a new rule, or to one for each plan that has rates of its own, and its candidate rates likewise.
    /// `scope` identifies the limit's counts in the store; the name of the plan is added to it. The flag beside the limit is
    /// [`Rule::counts_each_route`].
    fn add_rules(
        &mut self,
        cx: &mut LoadContext,
        (config, counts_each_route): (&LimitConfig, bool),
        scope: &str,
        overrides: Option<&LimitOverrides>,
    ) -> Vec<Arc<Rule>> {
        let variants = split_with_candidates(config).into_iter();
        let rules = variants.map(|variant| {
            let suffix = match variant.is_candidate {
                true => Rule::CANDIDATE_SUFFIX,
                false => "",
            };
            let scope = &[scope, suffix].concat();
            let scope = match &variant.plan {
                Some(plan) => format!("{scope}#{plan}"),
                None => scope.to_owned(),
            };
            self.add_rule(cx, (&variant, counts_each_route), scope, overrides)
        });
        rules.collect()
    }

    /// Compiles a limit to a new rule. `scope` identifies its counts in the store.
    fn add_rule(
        &mut self,
        cx: &mut LoadContext,
        (variant, counts_each_route): (&LimitVariant, bool),
        scope: String,
        overrides: Option<&LimitOverrides>,
    ) -> Arc<Rule> {
        let gateway = self.gateway;
        let config = &variant.limit;
        let count = config
            .count
            .as_ref()
            .map_or(CountMode::All, |count| count.value.clone());
        let limit = compile_limit(gateway, config, &count);
        let nat64 = &gateway.identity.ip.nat64;
        let mut conditions: Vec<_> = config
            .clients
            .conditions()
            .into_iter()
            .map(|condition| match condition.value.test {
                IdentityTest::InNetwork(networks) => ClientCondition {
                    test: IdentityTest::InNetwork(
                        (networks.into_iter())
                            .map(|network| counted_network(cx, condition.location, network, nat64))
                            .collect(),
                    ),
                    ..condition.value
                },
                _ => normalise_condition(cx, self.identity, condition),
            })
            .collect();
        conditions.extend(variant.condition.clone());
        let exempt = config.exempt.iter();
        let exempt = exempt
            .map(|network| counted_network(cx, config.name.location, *network, nat64))
            .collect();
        let mut rule = Rule {
            name: config.name.value.clone(),
            index: self.all.len(),
            origin: cx.sources.origin(config.name.location),
            scope,
            counts_each_route,
            key: config.key_spec(),
            clients: ClientFilter { conditions },
            sharing: store::compile_sharing(config, &limit, &count),
            on_store_error: store::compile_on_store_error(config),
            header_texts: header_texts::UnclonedCell::default(),
            limit,
            algorithm_is_written: config.algorithm.is_some() || config.credits.is_some(),
            count,
            reserve: compile_reserve(config),
            condition: config
                .condition
                .as_ref()
                .map(|condition| condition.value.clone()),
            plans: config.plans.is_some_and(|plans| plans.value),
            shadow: config.is_shadow.unwrap_or(false),
            is_candidate: variant.is_candidate,
            exempt,
            disclose: config.disclose.unwrap_or(Disclose::All),
            ban: config.ban.as_ref().and_then(|ban| ban.value.policy()),
            overrides: None,
            override_number: 0,
            grant: None,
        };
        self.override_count += overrides.map_or(0, |overrides| overrides.variants.len());
        // Above the bound `compile` reports a mistake, so these copies would only fill memory.
        let has_room = self.override_count <= MAX_RULES;
        rule.overrides = overrides
            .filter(|_| has_room)
            .map(|overrides| Arc::new(compile_overrides(gateway, &rule, overrides)));
        let rule = Arc::new(rule);
        check_keys_in_memory(cx, store::store_budget(&gateway.store), config, &rule);
        let first_part = config.key.first();
        self.key_locations
            .push(first_part.map_or(config.name.location, |identity| identity.location));
        self.all.push(Arc::clone(&rule));
        rule
    }
}

/// Brings the values of a condition on a custom identity into the form in which requests have them. Other conditions
/// stay as they are. Reports values that no request has.
pub(super) fn normalise_condition(
    cx: &mut LoadContext,
    identity: &identity::Settings,
    condition: Located<ClientCondition>,
) -> ClientCondition {
    let location = condition.location;
    let condition = condition.value;
    let Identity::Custom(custom) = condition.identity else {
        return condition;
    };
    let (IdentityTest::OneOf(values), Some(source)) =
        (&condition.test, identity.custom_source(custom))
    else {
        return condition;
    };
    let mut normalise = |value: &String| {
        let normal = source.normalise(value);
        if normal.is_none() {
            let message = format!("no request has `{value}` as `{}`", custom.as_str());
            let help =
                "write a value of 1 to 256 bytes in its plain form, without blanks at its ends";
            cx.error(location, message, Some(help.into()));
        }
        normal
    };
    let values = values.iter().filter_map(&mut normalise).collect();
    ClientCondition {
        test: IdentityTest::OneOf(values),
        ..condition
    }
}

/// Compiles the limits of single keys to copies of their rule, numbered from 1 in the order of `overrides.variants`.
fn compile_overrides(
    gateway: &GatewayConfig,
    rule: &Rule,
    overrides: &LimitOverrides,
) -> Overrides {
    let variants = (1..).zip(&overrides.variants);
    let rules = variants.map(|(override_number, limit)| {
        let rule_limit = compile_limit(gateway, limit, &rule.count);
        Arc::new(Rule {
            sharing: store::compile_sharing(limit, &rule_limit, &rule.count),
            limit: rule_limit,
            plans: false,
            override_number,
            ..rule.clone()
        })
    });
    Overrides {
        set: overrides.set.clone(),
        rules: rules.collect(),
        granted_set: None,
    }
}

/// Compiles a limit on open requests, with credits or on rates.
fn compile_limit(gateway: &GatewayConfig, config: &LimitConfig, count: &CountMode) -> RuleLimit {
    if config.credits.is_some() {
        return RateLimit::of_credits(count.is_settled_later()).into();
    }
    match config.concurrent {
        Some(max_open) => RuleLimit::Open(Concurrency {
            max_open: max_open.value,
            added: 0,
            throttle: compile_throttle(config),
            max_plan_factor: gateway.max_plan_factor(config),
        }),
        None => RuleLimit::Rate(compile_rate_limit(
            gateway,
            config,
            count.is_settled_later(),
        )),
    }
}

/// The units that a request uses up or holds at its admission; `None` for one unit.
fn compile_reserve(limit: &LimitConfig) -> Option<Reserve> {
    match limit.count.as_ref().map(|count| &count.value) {
        Some(CountMode::CostRequest(cost)) => Some(Reserve::for_request_cost(cost.clone())),
        _ => limit.reserve.as_ref().map(|reserve| reserve.value.clone()),
    }
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
