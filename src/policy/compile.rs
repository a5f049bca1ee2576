//! Compiles the model to the settings of the running gateway. This reports mistakes that only files on the disk show,
//! such as a missing key, and limits without room in memory or store. It also warns of limits that clients can evade.
//! `check` has reported mistakes of the model itself.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::context::LoadContext;
use super::decode::{GatewayConfig, PolicyFiles, logged_field};
use super::hidden_from_proxies;
use super::key_control;
use super::settings::{
    AccessLogSettings, BindSettings, Endpoints, ListenerRole, ListenerRoutes, LogDestination,
    ProcessSettings, Ruleset,
};
use super::shared_limits::SharedLimits;
use super::source::Files;
use super::tree::SourceLocation;
use super::unclear_addresses;
use crate::route::{Route, RouteAction, RouteTable};
use crate::store::snapshot;
use crate::trace;
use crate::{operator, record};

mod access_lists;
mod action;
pub(super) mod body_reads;
mod descriptors;
mod error_templates;
mod expiry;
mod files;
mod identity;
mod operators;
mod overrides;
mod push;
mod redirect_loops;
mod route_changes;
mod rules;
mod store;
mod tls;
mod upstreams;
mod usage;
mod ways_around;

use access_lists::AccessListCompiler;
use error_templates::ErrorPageCompiler;
use operators::{compile_peers, read_operators};
use overrides::OverrideReader;
use rules::{MAX_RULES, RuleCompiler};

/// The name of the file of what operators order at run time.
const ENTRY_FILE: &str = "orders";

/// Compiles the configuration. `base` is the folder of the gateway file, and names of files are relative to it. Returns
/// `None` if there is a mistake, also one of an earlier step. All mistakes are reported to `cx`.
pub fn compile(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
    PolicyFiles { policies, defaults }: &PolicyFiles,
    shared: &SharedLimits<'_>,
) -> Option<(ProcessSettings, Ruleset)> {
    let endpoints = compile_endpoints(cx, files, base, gateway);
    let process = compile_process(cx, files, base, gateway, &endpoints);
    let mut identity = identity::compile_identity(cx, files, base, gateway);
    descriptors::add_entry_identities(&mut identity, policies);
    let listeners = tls::compile_listeners(cx, files, base, gateway);
    let mut upstreams = upstreams::compile_upstreams(cx, files, base, gateway);
    let compile_action =
        |policy| action::compile_action(cx, files, base, gateway, &upstreams, policy);
    let actions: Vec<Option<RouteAction>> = policies.iter().map(compile_action).collect();
    if cx.has_errors() {
        return None;
    }
    let mut overrides = OverrideReader::new(gateway, shared, &identity, files, base);
    let shared_overrides = overrides.read_shared_overrides(cx, gateway, defaults);
    let access = AccessListCompiler::new(cx, files, base, gateway, defaults, &identity);
    let mut error_pages = ErrorPageCompiler::new(cx, files, base, gateway);
    let mut rules = RuleCompiler::new(gateway, shared, &identity, shared_overrides);
    let mut routes = Vec::with_capacity(policies.len());
    for (policy, action) in policies.iter().zip(actions) {
        let policy_overrides = overrides.read_policy_overrides(cx, policy);
        let policy_access = access.compile_policy(cx, policy);
        let error_pages = error_pages.compile_policy(cx, policy);
        let policy_routes = rules.compile_routes(
            cx,
            action?,
            routes.len(),
            policy,
            &policy_overrides,
            policy_access,
        )?;
        routes.extend(policy_routes.into_iter().map(|route| Route {
            error_pages: error_pages.clone(),
            ..route
        }));
    }
    body_reads::set_body_reads(&mut routes, &identity, gateway.paths);
    let unrouted = rules.compile_unrouted(cx, access.of_gateway());
    if cx.has_errors() {
        return None;
    }
    routes.extend(usage::compile_usage(
        gateway,
        &routes,
        &identity,
        &unrouted,
        &access.on_every_route(),
        error_pages.of_gateway().as_ref(),
    ));
    let default_table = build_table(&routes, None)?;
    let descriptor_table = descriptors::build_table(&routes)?;
    let names = routes.iter().flat_map(|route| route.listeners.iter());
    let names: BTreeSet<&Arc<str>> = names.collect();
    let listener_tables = names.into_iter().map(|name| {
        Some(ListenerRoutes {
            name: name.clone(),
            table: build_table(&routes, Some(name))?,
        })
    });
    let listener_tables = listener_tables.collect::<Option<Vec<_>>>()?;
    let rule_count = rules.all.len() + rules.override_count;
    if rule_count > MAX_RULES {
        let message = format!(
            "all routes together have {rule_count} limits and different overrides; the most is {MAX_RULES}"
        );
        let help =
            "share limits between routes: drop `routes: each`; or give more keys the same rate";
        cx.error(SourceLocation::start_of(0), message, Some(help.into()));
        return None;
    }
    for (index, upstream) in upstreams.iter_mut().enumerate() {
        let served = routes
            .iter()
            .filter(|route| route.upstream_index() == Some(index));
        upstreams::compile_pressure(upstream, gateway, served);
    }
    let routes: Vec<Arc<Route>> = routes.into_iter().map(Arc::new).collect();
    key_control::warn_of_controlled_keys(cx, &rules.all, &rules.key_locations, &routes, &identity);
    key_control::warn_of_chosen_bans(cx, &rules.all, &rules.key_locations, &identity);
    if let Some(http) = &gateway.decide.http {
        hidden_from_proxies::warn_of_hidden_facts(cx, http.location, &rules.all, &routes);
    }
    unclear_addresses::warn_of_bans_without_address(
        cx,
        &rules.all,
        &rules.key_locations,
        &routes,
        &listeners,
        &identity,
    );
    let uses_cors = unrouted.cors.is_some() || routes.iter().any(|route| route.cors.is_some());
    let has_error_pages = error_pages.of_gateway().is_some()
        || routes.iter().any(|route| route.error_pages.is_some());
    let compresses = routes.iter().any(|route| !route.codings.is_empty());
    let response_changes = || {
        routes
            .iter()
            .filter_map(|route| route.response_changes.as_ref())
    };
    let is_for_requests = |route: &&Arc<Route>| !matches!(route.action, RouteAction::Decide(_));
    let ruleset = Ruleset {
        has_one_request_route: routes.iter().filter(is_for_requests).count() == 1,
        default_table,
        descriptor_table,
        listener_tables,
        path_matching: gateway.paths,
        uses_cors,
        keeps_slashes: routes.iter().any(|route| route.keeps_slashes),
        needs_extra_facts: uses_cors || identity.request_id_field.is_some(),
        has_error_pages,
        error_pages: error_pages.of_gateway(),
        needs_heads_in_responses: uses_cors
            || has_error_pages
            || compresses
            || response_changes().any(|changes| changes.needs_host()),
        changes_responses: uses_cors
            || has_error_pages
            || compresses
            || response_changes().next().is_some()
            || identity.request_id_field.is_some()
            || listeners
                .iter()
                .any(|listener| listener.hsts.is_some() || listener.http3),
        routes,
        rules: rules.all,
        override_cache: Arc::default(),
        granted_keys: Arc::default(),
        unrouted,
        ban_response: gateway.bans.response,
        operators: endpoints.operators,
        peers: endpoints.peers,
        identity,
        upstreams,
        listeners,
        connections: gateway.connections,
        timeouts: gateway.timeouts.clone(),
        trace_sample: gateway.traces.as_ref().map(|traces| traces.sample),
        files: Vec::new(),
    };
    redirect_loops::report_loops(cx, &ruleset, policies);
    ways_around::warn_of_ways_around(cx, &ruleset, policies);
    if cx.has_errors() {
        return None;
    }
    Some((process, ruleset))
}

/// The table of the routes that hold on the listener of this name; `None` as the name stands for every listener that no
/// policy names. Returns `None` if routes conflict, which `check` has reported.
fn build_table(routes: &[Route], listener: Option<&str>) -> Option<RouteTable> {
    let routes = routes.iter().filter(|route| route.holds_on(listener));
    RouteTable::build(routes.map(|route| (route.index, &route.pattern))).ok()
}

fn compile_process(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
    endpoints: &Endpoints,
) -> ProcessSettings {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    ProcessSettings {
        workers: gateway.workers.unwrap_or(cores),
        listen: gateway
            .listen
            .iter()
            .filter_map(|listener| {
                Some(BindSettings {
                    address: listener.address.as_ref()?.value.clone(),
                    mode: listener
                        .mode
                        .map_or(BindSettings::DEFAULT_MODE, |mode| mode.value),
                    tls: !listener.tls.is_empty(),
                    http3: listener.http3.is_some_and(|http3| http3.value),
                    role: ListenerRole::Proxy,
                })
            })
            .chain(
                (gateway.decide.addresses()).map(|(address, role)| BindSettings {
                    address: address.value.clone(),
                    mode: BindSettings::DEFAULT_MODE,
                    tls: false,
                    http3: false,
                    role,
                }),
            )
            .collect(),
        admin: endpoints.admin,
        probes: endpoints.probes,
        store_budget: store::store_budget(&gateway.store),
        shared: store::compile_shared_store(cx, files, base, &gateway.store),
        snapshots: gateway
            .store
            .snapshots
            .as_ref()
            .map(|folder| snapshot::Settings {
                folder: base.join(folder),
                interval: gateway.store.every,
            }),
        access_log: compile_access_log(base, gateway),
        push: push::compile_destinations(cx, files, base, gateway),
        record: compile_record(base, gateway),
        traces: compile_traces(cx, files, base, gateway),
        operator: compile_operator(base, gateway),
    }
}

/// Where that is kept which operators order at run time: beside the record, or else beside the snapshots of counts.
fn compile_operator(base: &Path, gateway: &GatewayConfig) -> operator::Settings {
    let record_folder = gateway
        .record
        .as_ref()
        .and_then(|record| record.dir.as_ref());
    let record_folder = record_folder.map(|folder| base.join(&folder.value));
    let snapshot_folder = gateway.store.snapshots.as_ref();
    let folder = record_folder.or_else(|| snapshot_folder.map(|folder| base.join(folder)));
    operator::Settings {
        file: folder.map(|folder| folder.join(ENTRY_FILE)),
    }
}

/// Compiles where spans are sent; `None` without traces. Mistakes in named files are reported to `cx`.
fn compile_traces(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
) -> Option<trace::Settings> {
    let traces = gateway.traces.as_ref()?;
    let token = traces.token_file.as_ref();
    let token = token.and_then(|name| push::read_token(cx, files, base, name));
    let roots = traces.ca.as_ref();
    let roots = roots.and_then(|name| tls::read_named_roots(cx, files, base, name));
    let to = traces.to.as_ref()?;
    Some(trace::Settings {
        url: to.url.clone(),
        display_url: to.display.clone(),
        sample: traces.sample,
        service: traces.service.clone(),
        token,
        roots,
    })
}

fn compile_access_log(base: &Path, gateway: &GatewayConfig) -> AccessLogSettings {
    AccessLogSettings {
        requests: gateway.access_log.requests,
        destination: match gateway.access_log.file.clone() {
            Some(LogDestination::File { path, rotation }) => LogDestination::File {
                path: base.join(path),
                rotation,
            },
            standard_stream => standard_stream.unwrap_or(LogDestination::Stdout),
        },
        format: gateway.access_log.format,
        fields: (gateway.access_log.fields.iter())
            .filter_map(|name| logged_field(&name.value))
            .collect(),
    }
}

/// The settings of the record, which is kept in memory unless it has a folder. `None` if the gateway keeps no record.
fn compile_record(base: &Path, gateway: &GatewayConfig) -> Option<record::Settings> {
    let record = gateway.record.as_ref()?;
    Some(record::Settings {
        folder: record.dir.as_ref().map(|folder| base.join(&folder.value)),
        max_bytes: record.size as u64,
    })
}

/// Compiles the addresses of the gateway, and reads the tokens of operators. A file with a mistake, which is reported, gives
/// no tokens.
pub fn compile_endpoints(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
) -> Endpoints {
    let addresses = gateway.listen.iter();
    let addresses = addresses.filter_map(|listener| listener.address.as_ref());
    let addresses = addresses.chain(gateway.decide.addresses().map(|(address, _)| address));
    let admin = gateway.admin.as_ref();
    let operators = admin.and_then(|admin| read_operators(cx, files, base, admin));
    let (operators, admin_token) = operators.unzip();
    let peers = admin.map(|admin| compile_peers(cx, files, base, admin));
    let peers = peers.unwrap_or_default();
    Endpoints {
        listen: addresses.map(|address| address.value.clone()).collect(),
        admin: admin.map(|admin| {
            let address = admin.address.map(|address| address.value);
            address.unwrap_or(Endpoints::DEFAULT_ADMIN)
        }),
        operators: operators.map(Arc::new),
        admin_token: admin_token.flatten(),
        peers: Arc::new(peers),
        probes: admin
            .and_then(|admin| admin.probes)
            .map(|probes| probes.value),
    }
}
