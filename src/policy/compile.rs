//! Compiles the model to the settings of the running gateway. This reports mistakes that only files on the disk show,
//! such as a missing key, and limits without room in memory or store. It also warns of limits that clients can evade.
//! `check` has reported mistakes of the model itself.

use std::path::Path;
use std::sync::Arc;

use super::context::LoadContext;
use super::decode::{GatewayConfig, PolicyConfig};
use super::key_control;
use super::settings::{
    AccessLogSettings, BindSettings, Endpoints, LogDestination, ProcessSettings, Ruleset,
};
use super::source::Files;
use super::tree::{Located, SourceLocation};
use crate::record;
use crate::route::{Route, RouteTable};
use crate::store::snapshot;

pub(super) mod body_reads;
mod files;
mod identity;
mod push;
mod rules;
mod store;
mod tls;
mod upstreams;

use files::read_named_secret;
use rules::RuleCompiler;

/// Maximum number of limits of all routes together, because a store numbers them with 16 bits.
const MAX_RULES: usize = u16::MAX as usize;
/// Lengths of the admin token in characters. A shorter one could be guessed.
const ADMIN_TOKEN_CHARS: std::ops::RangeInclusive<usize> = 16..=4096;

/// Compiles the configuration. `base` is the folder of the gateway file, and names of files are relative to it. Returns
/// `None` if there is a mistake, also one of an earlier step. All mistakes are reported to `cx`.
pub fn compile(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
    policies: Vec<PolicyConfig>,
) -> Option<(ProcessSettings, Ruleset)> {
    let process = compile_process(cx, files, base, gateway);
    let identity = identity::compile_identity(cx, files, base, gateway);
    let listeners = tls::compile_listeners(cx, files, base, gateway);
    let mut upstreams = upstreams::compile_upstreams(cx, files, base, gateway);
    if cx.has_errors() {
        return None;
    }
    let mut rules = RuleCompiler::new(gateway, &identity);
    let mut routes = Vec::with_capacity(policies.len());
    for policy in &policies {
        routes.extend(rules.compile_routes(cx, &upstreams, routes.len(), policy)?);
    }
    body_reads::set_body_reads(&mut routes, &identity, gateway.paths);
    let unrouted = rules.compile_unrouted(cx);
    if cx.has_errors() {
        return None;
    }
    let table = RouteTable::build(routes.iter().map(|route| &route.pattern)).ok()?;
    if rules.all.len() > MAX_RULES {
        let message = format!(
            "all routes together have {} limits; the most is {MAX_RULES}",
            rules.all.len()
        );
        let help = "share limits between routes: drop `routes: each`";
        cx.error(SourceLocation::start_of(0), message, Some(help.into()));
        return None;
    }
    for (index, upstream) in upstreams.iter_mut().enumerate() {
        let served = routes.iter().filter(|route| route.upstream_index == index);
        upstreams::compile_pressure(upstream, gateway, served);
    }
    let routes: Vec<Arc<Route>> = routes.into_iter().map(Arc::new).collect();
    key_control::warn_of_controlled_keys(cx, &rules.all, &rules.key_locations, &routes, &identity);
    let ruleset = Ruleset {
        table,
        paths: gateway.paths,
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
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
) -> ProcessSettings {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let endpoints = compile_endpoints(cx, files, base, gateway);
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
                })
            })
            .collect(),
        admin: endpoints.admin,
        admin_token: endpoints.admin_token,
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
    }
}

fn compile_access_log(base: &Path, gateway: &GatewayConfig) -> AccessLogSettings {
    AccessLogSettings {
        requests: gateway.access_log.requests,
        destination: match gateway.access_log.file.clone() {
            Some(LogDestination::File { path, rotate }) => LogDestination::File {
                path: base.join(path),
                rotate,
            },
            standard_stream => standard_stream.unwrap_or(LogDestination::Stdout),
        },
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

/// Compiles the addresses of the gateway, and reads the file of the admin token. A token with a mistake, which is
/// reported, is `None`.
pub fn compile_endpoints(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
) -> Endpoints {
    let addresses = gateway.listen.iter();
    let addresses = addresses.filter_map(|listener| listener.address.as_ref());
    let admin = gateway.admin.as_ref();
    let token_file = admin.and_then(|admin| admin.token_file.as_ref());
    Endpoints {
        listen: addresses.map(|address| address.value.clone()).collect(),
        admin: admin.map(|admin| {
            let address = admin.address.map(|address| address.value);
            address.unwrap_or(Endpoints::DEFAULT_ADMIN)
        }),
        admin_token: token_file.and_then(|name| read_admin_token(cx, files, base, name)),
        probes: admin
            .and_then(|admin| admin.probes)
            .map(|probes| probes.value),
    }
}

/// Reads the admin token. `None` if the file cannot be read, or has no printable ASCII of [`ADMIN_TOKEN_CHARS`]. Both
/// are reported.
fn read_admin_token(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
) -> Option<String> {
    let token = read_named_secret(cx, files, base, name, "the admin token")?;
    if ADMIN_TOKEN_CHARS.contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Some(token);
    }
    let message = format!(
        "`{}` holds no token of 16 to 4096 printable characters",
        name.value
    );
    let help = "make one with `openssl rand -hex 32`";
    cx.error(name.location, message, Some(help.into()));
    None
}
