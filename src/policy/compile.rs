//! Makes the settings of the running gateway from the model. Nothing else does.

use std::path::Path;
use std::sync::Arc;

use super::collect::Cx;
use super::keys;
use super::model::{
    self, AdminConfig, GatewayConfig, LimitUse, Located, PolicyConfig, RecordConfig,
};
use super::settings::{AccessLog, Endpoints, Listen, LogTo, Logged, Process, Ruleset, Unrouted};
use super::source::Files;
use super::tree::SourcePlace;
use crate::identity::embedded::translated_network;
use crate::limit::{
    Algorithm, Concurrency, CountMode, Identity, Limit, Rule, RuleLimit, ThrottleMode, header_texts,
};
use crate::route::{OwnRules, Reads, Route, RouteTable};
use crate::store::snapshot;
use crate::{record, upstream};

mod files;
mod identity;
mod push;
pub(super) mod reads;
mod store;
mod tls;
mod upstreams;

use files::named_secret;

/// Most limits of all routes together: a store numbers them with 16 bits.
const MAX_RULES: usize = u16::MAX as usize;
/// Fewest keys of a limit that memory must hold, and how few are worth a warning.
const FEWEST_KEYS: usize = 16;
const FEW_KEYS: usize = 10_000;
/// Fewest and most characters of the admin token.
const ADMIN_TOKEN: std::ops::RangeInclusive<usize> = 16..=4096;

/// The settings, if there is no mistake. Files that the gateway file names are read here, so that a missing one is
/// reported together with all other mistakes.
pub fn compile(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
    policies: Vec<PolicyConfig>,
) -> Option<(Process, Ruleset)> {
    let process = compile_process(cx, files, base, gateway);
    let identity = identity::compile(cx, files, base, gateway);
    let listeners = tls::listeners(cx, files, base, gateway);
    let mut upstreams = upstreams::compile(cx, files, base, gateway);
    if cx.failed() {
        return None;
    }
    let mut rules = RuleBuilder::new(gateway);
    let mut routes = Vec::with_capacity(policies.len());
    for policy in policies {
        routes.push(rules.route(cx, gateway, &upstreams, routes.len(), policy)?);
    }
    reads::note(&mut routes, &identity, gateway.paths.unwrap_or_default());
    let unrouted = rules.unrouted(cx, gateway);
    if cx.failed() {
        return None;
    }
    let table = RouteTable::build(routes.iter().map(|route| &route.pattern)).ok()?;
    if rules.all.len() > MAX_RULES {
        let place = SourcePlace {
            file: 0,
            line: 1,
            column: 1,
            width: 1,
            more: 0,
        };
        let message = format!(
            "all routes together have {} limits; the most is {MAX_RULES}",
            rules.all.len()
        );
        cx.error(
            place,
            message,
            Some("share limits between routes: drop `routes: each`".into()),
        );
        return None;
    }
    for (place, upstream) in upstreams.iter_mut().enumerate() {
        let served = routes.iter().filter(|route| route.upstream == place);
        upstreams::steer(upstream, gateway, served);
    }
    let routes: Vec<Arc<Route>> = routes.into_iter().map(Arc::new).collect();
    keys::warn(cx, (&rules.all, &rules.places), &routes, &identity);
    let ruleset = Ruleset {
        table,
        paths: gateway.paths.unwrap_or_default(),
        keeps_slashes: routes.iter().any(|route| route.keeps_slashes),
        routes,
        rules: rules.all,
        unrouted,
        identity,
        upstreams,
        listeners,
        connections: gateway.connections,
        timeouts: gateway.timeouts.clone(),
        files: Vec::new(),
    };
    Some((process, ruleset))
}

fn compile_process(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
) -> Process {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let endpoints = endpoints(cx, files, base, gateway);
    let access_log = gateway.access_log.as_ref();
    Process {
        workers: gateway.workers.unwrap_or(cores),
        listen: gateway
            .listen
            .iter()
            .map(|listener| Listen {
                address: listener.value.address.clone(),
                mode: listener.value.mode.unwrap_or(Listen::MODE),
                tls: !listener.value.tls.is_empty(),
            })
            .collect(),
        admin: endpoints.admin,
        admin_token: endpoints.admin_token,
        probes: endpoints.probes,
        store_budget: store::budget(&gateway.store),
        shared: store::shared(cx, files, base, &gateway.store),
        snapshots: gateway.store.snapshots.clone().map(|settings| {
            let folder = base.join(settings.folder);
            snapshot::Settings { folder, ..settings }
        }),
        access_log: AccessLog {
            requests: access_log.map_or(Logged::All, |log| log.requests),
            to: match access_log.map(|log| log.to.clone()) {
                Some(LogTo::File { path, rotate }) => LogTo::File {
                    path: base.join(path),
                    rotate,
                },
                other => other.unwrap_or(LogTo::Stdout),
            },
        },
        push: push::compile(cx, files, base, gateway),
        record: match gateway.record.clone() {
            Some(RecordConfig::Off) => None,
            Some(RecordConfig::Kept(settings, _)) => Some(record::Settings {
                folder: settings.folder.map(|folder| base.join(folder)),
                ..settings
            }),
            None => Some(record::Settings {
                folder: None,
                most_bytes: record::Settings::USUAL,
            }),
        },
    }
}

/// The addresses of a running gateway.
pub fn endpoints(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
) -> Endpoints {
    let listen = gateway.listen.iter();
    let listen = listen
        .map(|listener| listener.value.address.clone())
        .collect();
    match &gateway.admin {
        AdminConfig::Off => Endpoints {
            listen,
            admin: None,
            admin_token: None,
            probes: None,
        },
        AdminConfig::On {
            address,
            token_file,
            probes,
        } => Endpoints {
            listen,
            admin: Some(address.map_or(Endpoints::ADMIN, |address| address.value)),
            admin_token: token_file
                .as_ref()
                .and_then(|name| admin_token(cx, files, base, name)),
            probes: probes.map(|probes| probes.value),
        },
    }
}

fn admin_token(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
) -> Option<String> {
    let token = named_secret(cx, files, base, name, "the admin token")?;
    if ADMIN_TOKEN.contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Some(token);
    }
    let message = format!(
        "`{}` holds no token of 16 to 4096 printable characters",
        name.value
    );
    let help = "make one with `openssl rand -hex 32`";
    cx.error(name.place, message, Some(help.into()));
    None
}

/// Collects the limits of the running policies.
struct RuleBuilder {
    all: Vec<Arc<Rule>>,
    /// Where the key of each is written.
    places: Vec<SourcePlace>,
    /// The rule of each limit of the gateway file, once it has one.
    shared: Vec<Option<Arc<Rule>>>,
}

impl RuleBuilder {
    fn new(gateway: &GatewayConfig) -> RuleBuilder {
        RuleBuilder {
            all: Vec::new(),
            places: Vec::new(),
            shared: vec![None; gateway.limits.len()],
        }
    }

    fn route(
        &mut self,
        cx: &mut Cx,
        gateway: &GatewayConfig,
        upstreams: &[upstream::Settings],
        index: usize,
        policy: PolicyConfig,
    ) -> Option<Route> {
        let pattern = policy.pattern_with_host()?;
        let name = policy.upstream.as_ref()?;
        let upstream = upstreams
            .iter()
            .position(|upstream| upstream.name == name.value)?;
        let lists = |limit: &model::LimitConfig| {
            let name = limit.name.value.as_str();
            policy
                .limits
                .iter()
                .any(|used| matches!(used, LimitUse::Shared(at) if at.value == name))
        };
        let mut rules = Vec::new();
        for (place, limit) in gateway.limits.iter().enumerate() {
            if !limit.routes.is_only_listed() || lists(limit) {
                rules.push(self.gateway_rule(cx, gateway, place, limit, &policy.name));
            }
        }
        for used in &policy.limits {
            if let LimitUse::Own(limit) = used {
                let scope = format!("{}/{}", policy.name, limit.name.value);
                rules.push(self.add(cx, gateway, limit, scope));
            }
        }
        let require = policy.require.iter().map(|identity| identity.value);
        let require: Vec<_> = require.collect();
        Some(Route {
            name: policy.name.as_str().into(),
            index,
            pattern,
            upstream,
            own: OwnRules::of(&rules, &require),
            reads: Reads::of(&rules, &require),
            rules: rules.into_iter().collect(),
            require,
            priority: policy.priority,
            headers: policy.headers.or(gateway.headers).unwrap_or_default(),
            keeps_slashes: policy.keeps_slashes,
        })
    }

    /// The limits that hold on every route hold without one too. Where each route counts for itself, requests that take
    /// none are counted as those of a route.
    fn unrouted(&mut self, cx: &mut Cx, gateway: &GatewayConfig) -> Unrouted {
        let limits = gateway.limits.iter().enumerate();
        let everywhere = limits.filter(|(_, limit)| !limit.routes.is_only_listed());
        let rules: Vec<_> = everywhere
            .map(|(place, limit)| self.gateway_rule(cx, gateway, place, limit, ""))
            .filter(|rule| rule.counts_own_responses())
            .collect();
        let needs = |rule: &Arc<Rule>| rule.plans || rule.key != [Identity::Ip];
        Unrouted {
            by_credential: rules.iter().any(needs),
            rules: rules.into_iter().collect(),
            headers: gateway.headers.unwrap_or_default(),
        }
    }

    /// A limit of the gateway file: one for all routes, unless each route counts for itself.
    fn gateway_rule(
        &mut self,
        cx: &mut Cx,
        gateway: &GatewayConfig,
        place: usize,
        limit: &model::LimitConfig,
        route: &str,
    ) -> Arc<Rule> {
        if limit.routes.counts_each_route() {
            return self.add(cx, gateway, limit, format!("{route}/{}", limit.name.value));
        }
        if let Some(rule) = self.shared.get(place).and_then(Option::as_ref) {
            return Arc::clone(rule);
        }
        let rule = self.add(cx, gateway, limit, limit.name.value.to_string());
        if let Some(shared) = self.shared.get_mut(place) {
            *shared = Some(Arc::clone(&rule));
        }
        rule
    }

    fn add(
        &mut self,
        cx: &mut Cx,
        gateway: &GatewayConfig,
        limit: &model::LimitConfig,
        scope: String,
    ) -> Arc<Rule> {
        let count = limit
            .count
            .as_ref()
            .map_or(CountMode::All, |count| count.value.clone());
        let bound = match limit.concurrent {
            Some(most) => RuleLimit::Open(Concurrency {
                max_open: most.value,
                throttle: compile_throttle(limit),
                max_multiply: gateway.max_multiply(limit),
            }),
            None => RuleLimit::Rate(compile_limit(gateway, limit, count.needs_response())),
        };
        let (exempt, nat64) = (limit.exempt.iter(), &gateway.identity.ip.nat64);
        let rule = Arc::new(Rule {
            name: limit.name.value.clone(),
            index: self.all.len(),
            origin: cx.sources.origin(limit.name.place),
            scope,
            key: limit.key.iter().map(|part| part.value).collect(),
            sharing: store::sharing(limit, &bound),
            on_store_error: limit.on_store_error,
            header_texts: header_texts::UnclonedCell::default(),
            limit: bound,
            algorithm_is_written: limit.algorithm.is_some(),
            count,
            reserve: limit.reserve.as_ref().map(|reserve| reserve.value.clone()),
            condition: limit.condition.as_ref().map(|at| at.value.clone()),
            plans: limit.plans.is_some_and(|plans| plans.value),
            shadow: limit.shadow,
            exempt: exempt
                .map(|network| translated_network(*network, nat64))
                .collect(),
            disclose: limit.disclose,
        });
        check_memory(cx, store::budget(&gateway.store), limit, &rule);
        let key = limit.key.first();
        self.places
            .push(key.map_or(limit.name.place, |part| part.place));
        self.all.push(Arc::clone(&rule));
        rule
    }
}

fn compile_throttle(limit: &model::LimitConfig) -> ThrottleMode {
    match limit.throttle.map(|throttle| throttle.value) {
        Some(model::ThrottleConfig::Soft(percent)) => ThrottleMode::Soft { percent },
        // Checked to name the window of a rate.
        Some(model::ThrottleConfig::Elastic) => {
            limit
                .growth()
                .map_or(ThrottleMode::Hard, |(rate, most)| ThrottleMode::Elastic {
                    at_most: most.quota(),
                    base: rate.quota(),
                })
        }
        Some(model::ThrottleConfig::Hard) | None => ThrottleMode::Hard,
    }
}

fn compile_limit(gateway: &GatewayConfig, limit: &model::LimitConfig, reserves: bool) -> Limit {
    let mut windows: Vec<_> = limit.rates.iter().map(|rate| rate.value).collect();
    windows.sort_by_key(|rate| rate.window());
    let throttle = compile_throttle(limit);
    let max_multiply = gateway.max_multiply(limit);
    let quota = windows.iter().map(|rate| rate.quota()).max().unwrap_or(0);
    // Checked to fit: what plans and `soft` add is bounded.
    let most = throttle.ceiling(quota).saturating_mul(max_multiply);
    let algorithm = compile_algorithm(limit, quota, most);
    Limit {
        windows,
        algorithm,
        throttle,
        reserves,
        max_multiply,
    }
}

fn compile_algorithm(limit: &model::LimitConfig, quota: u32, most: u32) -> Algorithm {
    match limit.algorithm.map(|algorithm| algorithm.value) {
        Some(Algorithm::Gcra { .. }) => Algorithm::Gcra {
            burst: limit.burst.map(|at| at.value),
        },
        Some(Algorithm::LeakyBucket { .. }) => Algorithm::LeakyBucket {
            max_delay: limit.delay.map(|at| at.value).unwrap_or_default(),
        },
        Some(written) => written,
        None => Algorithm::default_for(quota, most),
    }
}

/// Reports a limit of which memory holds but few keys.
fn check_memory(cx: &mut Cx, budget: usize, limit: &model::LimitConfig, rule: &Rule) {
    let RuleLimit::Rate(kept) = &rule.limit else {
        return;
    };
    let each = kept.bytes_per_key().max(1);
    let keys = budget / each;
    let message = || {
        format!(
            "a key of `{}` may take {each} bytes, so that memory for counts holds {keys} of them",
            rule.name
        )
    };
    let place = limit
        .algorithm
        .map_or(limit.name.place, |algorithm| algorithm.place);
    let help = "use `algorithm: sliding-window`, which takes little whatever the rate, or a larger `store: { memory: … }`";
    if keys < FEWEST_KEYS {
        cx.error(place, message(), Some(help.into()));
    } else if keys < FEW_KEYS {
        cx.warn(place, message(), Some(help.into()));
    }
}
