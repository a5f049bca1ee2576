//! Compiles the settings of upstreams, with their defaults, and decides which upstreams measure their load.

use std::path::Path;
use std::time::Duration;

use super::super::context::LoadContext;
use super::super::decode::{GatewayConfig, HealthConfig, HostChoice, UpstreamConfig};
use super::super::source::Files;
use super::tls::ServerCompiler;
use crate::limit::ThrottleMode;
use crate::limit::pressure;
use crate::limit::pressure::Trust;
use crate::route::{Priority, Route};
use crate::upstream;

/// Default number of open requests to an upstream at which even critical requests are shed. The capacity that is
/// measured from latencies never exceeds it.
const DEFAULT_MAX_OPEN: u32 = 16_384;
/// Default timeout of a health check. If the interval between checks is shorter, that is the default.
const DEFAULT_CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Compiles the upstreams of the gateway file. One whose TLS settings have a mistake is reported and left out.
pub fn compile_upstreams(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
) -> Vec<upstream::Settings> {
    let timeouts = &gateway.timeouts;
    let mut servers = ServerCompiler::new(files, base);
    let mut compile_upstream = |written: &UpstreamConfig| {
        let balance = written.balance.as_ref();
        Some(upstream::Settings {
            name: written.name.value.clone(),
            servers: servers.compile_servers(cx, written)?,
            host: compile_host(written),
            uses_http2: written.http2,
            proxy_protocol: written.proxy_protocol.map(|version| version.value),
            balance_method: balance
                .map(|balance| balance.value.clone())
                .unwrap_or_default(),
            health_check: written.health.as_ref().map(compile_health_check),
            ejection: written.eject.as_ref().map(|eject| upstream::Ejection {
                failures: eject.after,
                first_duration: eject.span,
            }),
            slow_start: written.slow_start,
            bounds: upstream::Bounds {
                open: written.max_requests,
                pending: written.max_pending,
            },
            load_metric: written
                .load_report
                .as_ref()
                .map(|report| report.metric.clone()),
            pressure: None,
            connect_timeout: written.timeouts.connect.unwrap_or(timeouts.connect),
            first_byte_timeout: written.timeouts.first_byte.unwrap_or(timeouts.first_byte),
            idle_timeout: written.timeouts.idle.unwrap_or(timeouts.idle),
            total_timeout: written.timeouts.total.or(timeouts.total),
        })
    };
    gateway
        .upstreams
        .iter()
        .filter_map(&mut compile_upstream)
        .collect()
}

/// The host that servers get in place of the client's; `None` if they get the client's.
fn compile_host(written: &UpstreamConfig) -> Option<String> {
    match written.host.as_ref().map(|host| &host.value) {
        None | Some(HostChoice::Client) => None,
        // All servers have the same host, which was checked before.
        Some(HostChoice::Upstream) => written.servers.first()?.value.host(),
        Some(HostChoice::Name(name)) => Some(name.clone()),
    }
}

/// Sets [`upstream::Settings::pressure`], so that the load of the upstream is measured, if something depends on the
/// load. That is an elastic limit of `routes`, the routes that the upstream serves, or a priority other than `normal`.
/// The priority may be one of `routes`, or one of any plan if there are `routes`.
pub fn compile_pressure<'a>(
    upstream: &mut upstream::Settings,
    gateway: &GatewayConfig,
    routes: impl Iterator<Item = &'a Route> + Clone,
) {
    let is_special =
        |priority: Option<Priority>| priority.is_some_and(|priority| priority != Priority::Normal);
    let has_route_priority = routes.clone().any(|route| is_special(route.priority));
    let has_plan_priority = gateway.plans.iter().any(|plan| is_special(plan.priority));
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
    let has_plan_priority = has_plan_priority && routes.count() > 0;
    if !has_route_priority && !has_plan_priority && max_factor.is_none() {
        return;
    }
    let written = gateway
        .upstreams
        .iter()
        .find(|written| written.name.value == upstream.name);
    let report = written.and_then(|written| written.load_report.as_ref());
    upstream.pressure = Some(pressure::Settings {
        max_open: upstream.bounds.open.unwrap_or(DEFAULT_MAX_OPEN),
        max_factor: max_factor.unwrap_or(1.0),
        // Without `load_report` no report is read, so this value has no effect.
        trust: report.map_or(Trust::Lower, |report| report.trust),
    });
}

fn compile_health_check(health: &HealthConfig) -> upstream::HealthCheck {
    let timeout = health.timeout;
    upstream::HealthCheck {
        path: health.path.clone(),
        interval: health.every,
        timeout: timeout.unwrap_or(DEFAULT_CHECK_TIMEOUT.min(health.every)),
        fall: health.fall,
        rise: health.rise,
    }
}
