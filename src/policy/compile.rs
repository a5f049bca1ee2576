//! Compiles the model to the settings of the running gateway. Mistakes that only files on the disk show, such as a
//! missing key, are reported here; mistakes of the model itself were reported by `check`.

use std::path::Path;
use std::sync::Arc;

use super::context::LoadContext;
use super::key_control;
use super::model::{AdminConfig, GatewayConfig, Located, PolicyConfig, RecordConfig};
use super::settings::{
    AccessLogSettings, BindSettings, Endpoints, LogDestination, LoggedRequests, ProcessSettings,
    Ruleset,
};
use super::source::Files;
use super::tree::SourceLocation;
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

/// Compiles the configuration if it has no mistake. `base` is the folder of the gateway file, and names of files are
/// relative to it.
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
    let mut rules = RuleCompiler::new(gateway);
    let mut routes = Vec::with_capacity(policies.len());
    for policy in policies {
        routes.push(rules.compile_route(cx, &upstreams, routes.len(), policy)?);
    }
    body_reads::set_body_reads(&mut routes, &identity, gateway.paths.unwrap_or_default());
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
            .map(|listener| BindSettings {
                address: listener.value.address.clone(),
                mode: listener.value.mode.unwrap_or(BindSettings::DEFAULT_MODE),
                tls: !listener.value.tls.is_empty(),
            })
            .collect(),
        admin: endpoints.admin,
        admin_token: endpoints.admin_token,
        probes: endpoints.probes,
        store_budget: store::store_budget(&gateway.store),
        shared: store::compile_shared_store(cx, files, base, &gateway.store),
        snapshots: gateway.store.snapshots.clone().map(|settings| {
            let folder = base.join(settings.folder);
            snapshot::Settings { folder, ..settings }
        }),
        access_log: compile_access_log(base, gateway),
        push: push::compile_destinations(cx, files, base, gateway),
        record: compile_record(base, gateway),
    }
}

fn compile_access_log(base: &Path, gateway: &GatewayConfig) -> AccessLogSettings {
    let access_log = gateway.access_log.as_ref();
    AccessLogSettings {
        requests: access_log.map_or(LoggedRequests::All, |log| log.requests),
        destination: match access_log.map(|log| log.destination.clone()) {
            Some(LogDestination::File { path, rotate }) => LogDestination::File {
                path: base.join(path),
                rotate,
            },
            other => other.unwrap_or(LogDestination::Stdout),
        },
    }
}

/// The settings of the record, which is kept in memory by default.
fn compile_record(base: &Path, gateway: &GatewayConfig) -> Option<record::Settings> {
    match gateway.record.clone() {
        Some(RecordConfig::Off) => None,
        Some(RecordConfig::On(settings, _)) => Some(record::Settings {
            folder: settings.folder.map(|folder| base.join(folder)),
            ..settings
        }),
        None => Some(record::Settings {
            folder: None,
            max_bytes: record::Settings::DEFAULT_BYTES,
        }),
    }
}

/// Compiles the addresses of the gateway, and reads the file of the admin token.
pub fn compile_endpoints(
    cx: &mut LoadContext,
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
            admin: Some(address.map_or(Endpoints::DEFAULT_ADMIN, |address| address.value)),
            admin_token: token_file
                .as_ref()
                .and_then(|name| read_admin_token(cx, files, base, name)),
            probes: probes.map(|probes| probes.value),
        },
    }
}

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
