//! The settings of upstreams, with their defaults.

use std::path::Path;
use std::time::Duration;

use super::super::collect::Cx;
use super::super::model::{self, EjectConfig, GatewayConfig};
use super::super::source::Files;
use super::tls::ServerBuilder;
use crate::limit::ThrottleMode;
use crate::limit::pressure;
use crate::limit::pressure::Trust;
use crate::route::{Priority, Route};
use crate::upstream;

/// Open requests at which even critical ones are shed, where no file says otherwise.
const MOST_OPEN: u32 = 16_384;
/// How often servers are asked whether they are well.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// How long their answer may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// Failed checks in a row that take a server out, and good ones that bring it back.
const FALL: u32 = 3;
const RISE: u32 = 2;
/// Failed requests in a row that eject a server.
const EJECT_AFTER: u32 = 3;
/// For how long, the first time.
const EJECT_FOR: Duration = Duration::from_secs(10);

/// All upstreams of the gateway file.
pub fn compile(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
) -> Vec<upstream::Settings> {
    let timeouts = &gateway.timeouts;
    let mut servers = ServerBuilder::new(files, base);
    let mut settings = |written: &model::UpstreamConfig| {
        let balance = written.balance.as_ref();
        Some(upstream::Settings {
            name: written.name.value.clone(),
            servers: servers.servers_of(cx, written)?,
            http2: written.http2,
            proxy: written.proxy.map(|version| version.value),
            balance: balance.map(|at| at.value.clone()).unwrap_or_default(),
            check: written.health.as_ref().map(check),
            eject: eject(written.eject),
            slow_start: written.slow_start,
            bounds: written.bounds,
            load_metric: written
                .load_report
                .as_ref()
                .map(|report| report.metric.clone()),
            pressure: None,
            connect: written.timeouts.connect.unwrap_or(timeouts.connect),
            first_byte: written.timeouts.first_byte.unwrap_or(timeouts.first_byte),
            idle: written.timeouts.idle.unwrap_or(timeouts.idle),
            total: written.timeouts.total.or(timeouts.total),
        })
    };
    gateway.upstreams.iter().filter_map(&mut settings).collect()
}

/// Turns on pressure for an upstream where something depends on its load: an elastic limit, or a priority.
pub fn steer<'a>(
    upstream: &mut upstream::Settings,
    gateway: &GatewayConfig,
    routes: impl Iterator<Item = &'a Route> + Clone,
) {
    let prefers = |priority: Option<Priority>| priority.is_some_and(|is| is != Priority::Normal);
    let by_route = routes.clone().any(|route| prefers(route.priority));
    let by_plan = gateway
        .plans
        .iter()
        .any(|plan| prefers(plan.value.priority));
    let factors = routes
        .clone()
        .flat_map(|route| route.rules.iter())
        .filter_map(|rule| match rule.limit.throttle() {
            ThrottleMode::Elastic { at_most, base } => {
                Some(f64::from(at_most) / f64::from(base.max(1)))
            }
            ThrottleMode::Hard | ThrottleMode::Soft { .. } => None,
        });
    let max_factor = factors.reduce(f64::max);
    let by_plan = by_plan && routes.count() > 0;
    if !by_route && !by_plan && max_factor.is_none() {
        return;
    }
    let written = gateway
        .upstreams
        .iter()
        .find(|other| other.name.value == upstream.name);
    let report = written.and_then(|written| written.load_report.as_ref());
    upstream.pressure = Some(pressure::Settings {
        max_open: upstream.bounds.open.unwrap_or(MOST_OPEN),
        max_factor: max_factor.unwrap_or(1.0),
        trust: report.map_or(Trust::Lower, |report| report.trust),
    });
}

fn check(health: &model::HealthConfig) -> upstream::HealthCheck {
    let every = health.every.unwrap_or(CHECK_EVERY);
    upstream::HealthCheck {
        path: health.path.clone(),
        every,
        timeout: health.timeout.unwrap_or(CHECK_TIMEOUT.min(every)),
        fall: health.fall.unwrap_or(FALL),
        rise: health.rise.unwrap_or(RISE),
    }
}

fn eject(written: EjectConfig) -> Option<upstream::Ejection> {
    match written {
        EjectConfig::Off => None,
        EjectConfig::On { after, span } => Some(upstream::Ejection {
            after: after.unwrap_or(EJECT_AFTER),
            span: span.unwrap_or(EJECT_FOR),
        }),
    }
}
