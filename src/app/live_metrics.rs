//! Computes the metrics that are the state of a part, such as open requests, servers and stores. They are refreshed
//! whenever a scrape, the record or the pusher reads the metrics. Events are counted where they happen.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::{Mutex, RwLock};
use rustix::param::page_size;

use super::listeners::certificate_expiries;
use crate::base::clock::Clock;
use crate::base::telemetry::{Label, Metric, Registry};
use crate::limit::pressure::RequestClass;
use crate::serve::stack::request_outcome::RequestOutcome;
use crate::serve::worker::generation::RunningConfig;
use crate::store::shared::breaker::StoreStatus;
use crate::store::{MemoryStore, SharedStore};
use crate::upstream::server_health::ServerHealth;

/// The unit of [`Metric::ProcessCpu`] in nanoseconds.
const NANOS_PER_MILLISECOND: u64 = 1_000_000;

/// All metrics, and the state from which some of them are computed.
pub struct LiveMetrics {
    /// The values of all metrics.
    pub registry: Registry,
    /// The configuration that workers run.
    pub running: Arc<RwLock<RunningConfig>>,
    /// The store of the counts of this gateway.
    pub memory_store: Arc<MemoryStore>,
    /// The store that gateways share; `None` if this gateway counts for itself.
    pub shared_store: Option<Arc<SharedStore>>,
    /// The clock, which also gives the CPU time of the process.
    pub clock: Clock,
    /// Held while [`LiveMetrics::read`] refreshes and reads metrics, so that no reader sees a part of a refresh.
    pub refresh_lock: Mutex<()>,
}

impl LiveMetrics {
    /// Refreshes the metrics of this file, and calls `read_metrics` with all metrics. `read_metrics` must not call this
    /// method, which would wait for itself.
    pub fn read<T>(&self, read_metrics: impl FnOnce(&Registry) -> T) -> T {
        let _refresh_guard = self.refresh_lock.lock();
        self.refresh();
        read_metrics(&self.registry)
    }

    /// The seed with which keys are hashed now. A shared store may change it.
    pub fn seed(&self) -> u64 {
        self.running.read().keyer().seed()
    }

    /// Computes all metrics of this file.
    fn refresh(&self) {
        let running = self.running.read().clone();
        self.refresh_permits(&running);
        let expiries = certificate_expiries(&running.listeners);
        let expiries = expiries
            .iter()
            .map(|(name, expiry)| (name.as_str(), *expiry));
        self.registry.set_gauges(
            Metric::CertificateExpiry,
            Label::Certificate,
            &expiries.collect(),
        );
        self.refresh_memory_store();
        self.registry
            .gauge(Metric::Bans, &[])
            .set(running.bans.count() as f64);
        self.registry
            .gauge(Metric::ApiKeys, &[])
            .set(running.api_keys.count() as f64);
        if let Some(shared_store) = &self.shared_store {
            self.refresh_shared_store(shared_store);
        }
        self.refresh_servers(&running);
        self.refresh_pressure(&running);
        self.refresh_open_requests(&running);
        self.refresh_process();
    }

    fn refresh_permits(&self, running: &RunningConfig) {
        let mut permits_by_limit: BTreeMap<&str, u64> = BTreeMap::new();
        let rules = running.ruleset.rules.iter();
        for (rule, open_permits) in rules.zip(running.admission.open_permits()) {
            if let Some(permits) = open_permits {
                *permits_by_limit.entry(rule.name.as_str()).or_default() += permits;
            }
        }
        self.registry
            .set_gauges(Metric::PermitsOpen, Label::Limit, &permits_by_limit);
    }

    fn refresh_memory_store(&self) {
        let usage = self.memory_store.usage();
        self.registry
            .gauge(Metric::StoreBytes, &[])
            .set(usage.used_bytes as f64);
        self.registry
            .gauge(Metric::StoreBudget, &[])
            .set(usage.budget_bytes as f64);
        self.registry
            .gauge(Metric::StoreKeys, &[])
            .set(usage.key_count as f64);
        self.registry
            .counter(Metric::SketchDecisions, &[])
            .absolute(usage.sketched_decisions);
    }

    fn refresh_open_requests(&self, running: &RunningConfig) {
        // A reload may have removed a route.
        self.registry.remove_series(Metric::RequestsOpen);
        for route in &running.ruleset.routes {
            let route_label = (Label::Route, &*route.name);
            let ended_requests = |outcome: RequestOutcome| {
                let labels = [route_label, (Label::Outcome, outcome.as_str())];
                self.registry.total(Metric::Requests, &labels)
            };
            // Ended requests are read first, so that each of them is among the started ones.
            let ended_count: u64 = RequestOutcome::ALL.into_iter().map(ended_requests).sum();
            let started_count = self.registry.total(Metric::RequestsStarted, &[route_label]);
            let open_count = started_count.saturating_sub(ended_count);
            self.registry
                .gauge(Metric::RequestsOpen, &[route_label])
                .set(open_count as f64);
        }
    }

    /// Refreshes the CPU time of the process in milliseconds, and its resident memory in bytes.
    fn refresh_process(&self) {
        if let Some(cpu_time) = self.clock.cpu_time() {
            self.registry
                .counter(Metric::ProcessCpu, &[])
                .absolute(cpu_time.0 / NANOS_PER_MILLISECOND);
        }
        // The second number is the resident size in pages: see `proc_pid_statm(5)`.
        let statm = fs::read_to_string("/proc/self/statm").ok();
        let resident_pages = statm.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
        if let Some(resident_pages) = resident_pages {
            let resident_bytes = resident_pages * page_size() as u64;
            self.registry
                .gauge(Metric::ProcessMemory, &[])
                .set(resident_bytes as f64);
        }
    }

    fn refresh_shared_store(&self, shared_store: &SharedStore) {
        let status = shared_store.status();
        let is_up = f64::from(u8::from(status.status == StoreStatus::Shared));
        self.registry.gauge(Metric::SharedStoreUp, &[]).set(is_up);
        let gateway_count = f64::from(status.gateway_count);
        self.registry
            .gauge(Metric::SharedStoreGateways, &[])
            .set(gateway_count);
        let key_count = shared_store.decider.ledger.len() as f64;
        self.registry
            .gauge(Metric::SharedStoreKeys, &[])
            .set(key_count);
        let tally = &shared_store.tally;
        for (metric, outcome, count) in [
            (Metric::SharedStoreCalls, "answered", &tally.answered_calls),
            (Metric::SharedStoreCalls, "late", &tally.late_calls),
            (Metric::SharedStoreCalls, "failed", &tally.failed_calls),
            (Metric::SharedStoreDecisions, "alone", &tally.decided_alone),
            (
                Metric::SharedStoreDecisions,
                "saved",
                &tally.decided_without_call,
            ),
            (
                Metric::SharedStoreDecisions,
                "asked",
                &tally.decided_with_call,
            ),
        ] {
            let count = count.load(Relaxed);
            let labels = [(Label::Outcome, outcome)];
            self.registry.counter(metric, &labels).absolute(count);
        }
    }

    fn refresh_pressure(&self, running: &RunningConfig) {
        let gauges = [
            Metric::UpstreamLoad,
            Metric::UpstreamConcurrency,
            Metric::ElasticFactor,
            Metric::SheddingLevel,
        ];
        // A reload may have removed an upstream. Counters of a removed one keep their values.
        for gauge in gauges {
            self.registry.remove_series(gauge);
        }
        for servers in &running.upstreams {
            let Some(pressure) = servers.pressure() else {
                continue;
            };
            let upstream_label = (Label::Upstream, servers.settings.name.as_str());
            let figures = pressure.figures();
            let values = [
                figures.load,
                figures.capacity,
                figures.factor.get(),
                figures.level,
            ];
            for (gauge, value) in gauges.into_iter().zip(values) {
                self.registry.gauge(gauge, &[upstream_label]).set(value);
            }
            self.registry
                .counter(Metric::LentRequests, &[upstream_label])
                .absolute(figures.lent);
            for (class, shed_count) in RequestClass::ALL.into_iter().zip(figures.shed) {
                let labels = [upstream_label, (Label::Priority, class.as_str())];
                self.registry
                    .counter(Metric::ShedRequests, &labels)
                    .absolute(shed_count);
            }
        }
    }

    fn refresh_servers(&self, running: &RunningConfig) {
        let gauges = [Metric::ServerUp, Metric::ServerOpen];
        // A reload may have removed a server. Counters of a removed one keep their values.
        for gauge in gauges {
            self.registry.remove_series(gauge);
        }
        for servers in &running.upstreams {
            let now = self.clock.now();
            // A server has one series of each metric for all its addresses. Names resolve to ever new addresses, so
            // series by address would have no bound.
            servers.for_each_server(|name, endpoints, removed_counts| {
                let upstream_label = (Label::Upstream, servers.settings.name.as_str());
                let labels = [upstream_label, (Label::Server, name)];
                let is_up = endpoints
                    .iter()
                    .any(|endpoint| servers.state(endpoint, now).gets_requests());
                let open_requests: u32 = endpoints
                    .iter()
                    .map(|endpoint| endpoint.health.open_requests())
                    .sum();
                let values = [f64::from(u8::from(is_up)), f64::from(open_requests)];
                for (gauge, value) in gauges.into_iter().zip(values) {
                    self.registry.gauge(gauge, &labels).set(value);
                }
                let sum = |count: fn(&ServerHealth) -> u64| -> u64 {
                    endpoints
                        .iter()
                        .map(|endpoint| count(&endpoint.health))
                        .sum()
                };
                let ejections = removed_counts.ejections + sum(ServerHealth::ejections);
                let failed_checks = removed_counts.failed_checks + sum(ServerHealth::failed_checks);
                let counts = [
                    (Metric::ServerEjections, ejections),
                    (Metric::ServerCheckFailures, failed_checks),
                ];
                for (metric, count) in counts {
                    self.registry.counter(metric, &labels).absolute(count);
                }
            });
        }
    }
}
