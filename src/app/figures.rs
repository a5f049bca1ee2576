//! Metrics that are computed when a scrape or the record reads them.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::{Mutex, RwLock};
use rustix::param::page_size;

use super::listeners;
use crate::base::clock::Clock;
use crate::base::telemetry::{Label, Metric, Registry};
use crate::limit::pressure::RequestClass;
use crate::serve::stack::outcome::RequestOutcome;
use crate::serve::worker::generation::RunningConfig;
use crate::store::shared::breaker::StoreStatus;
use crate::store::{Memory, Shared};
use crate::upstream::health::ServerHealth;

/// The metrics, and the state that they are computed from.
pub struct Figures {
    /// All metrics.
    pub registry: Registry,
    /// The running configuration.
    pub running: Arc<RwLock<RunningConfig>>,
    /// The memory store.
    pub store: Arc<Memory>,
    /// The shared store, if there is one.
    pub shared: Option<Arc<Shared>>,
    /// The clock.
    pub clock: Clock,
    /// Held while metrics are refreshed and read, so that no reader sees a part of a refresh.
    pub reading: Mutex<()>,
}

impl Figures {
    /// Refreshes the metrics and reads them.
    pub fn read<T>(&self, read: impl FnOnce(&Registry) -> T) -> T {
        let _one = self.reading.lock();
        self.refresh();
        read(&self.registry)
    }

    /// The seed by which keys are hashed now.
    pub fn seed(&self) -> u64 {
        self.running.read().keyer().seed()
    }

    fn refresh(&self) {
        let running = self.running.read().clone();
        let mut open: BTreeMap<&str, u64> = BTreeMap::new();
        for (rule, open_now) in running
            .ruleset
            .rules
            .iter()
            .zip(running.admission.open_permits())
        {
            if let Some(permits) = open_now {
                *open.entry(rule.name.as_str()).or_default() += permits;
            }
        }
        self.registry
            .gauges(Metric::PermitsOpen, Label::Limit, &open);
        let usage = self.store.usage();
        let expiry = listeners::expiry(&running.listeners);
        let expiry = expiry.iter().map(|(name, until)| (name.as_str(), *until));
        self.registry.gauges(
            Metric::CertificateExpiry,
            Label::Certificate,
            &expiry.collect(),
        );
        self.registry
            .gauge(Metric::StoreBytes, &[])
            .set(usage.bytes as f64);
        self.registry
            .gauge(Metric::StoreBudget, &[])
            .set(usage.budget as f64);
        self.registry
            .gauge(Metric::StoreKeys, &[])
            .set(usage.keys as f64);
        self.registry
            .counter(Metric::StoreSketched, &[])
            .absolute(usage.sketched);
        if let Some(shared) = &self.shared {
            self.count_shared(shared);
        }
        self.count_servers(&running);
        self.count_pressure(&running);
        self.count_open(&running);
        self.count_process();
    }

    fn count_open(&self, running: &RunningConfig) {
        // A reload may have removed a route.
        self.registry.forget(Metric::RequestsOpen);
        for route in &running.ruleset.routes {
            let label = (Label::Route, &*route.name);
            let ended = |outcome: RequestOutcome| {
                let labels = [label, (Label::Outcome, outcome.as_str())];
                self.registry.total(Metric::Requests, &labels)
            };
            // Ended requests are read first, so that each of them is among the started ones.
            let ended: u64 = RequestOutcome::ALL.into_iter().map(ended).sum();
            let started = self.registry.total(Metric::RequestsStarted, &[label]);
            let open = started.saturating_sub(ended);
            self.registry
                .gauge(Metric::RequestsOpen, &[label])
                .set(open as f64);
        }
    }

    fn count_process(&self) {
        if let Some(used) = self.clock.cpu() {
            self.registry
                .counter(Metric::ProcessCpu, &[])
                .absolute(used.0 / 1_000_000);
        }
        // The second number is the resident size in pages.
        let pages = fs::read_to_string("/proc/self/statm").ok();
        let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
        if let Some(pages) = pages {
            let bytes = pages * page_size() as u64;
            self.registry
                .gauge(Metric::ProcessMemory, &[])
                .set(bytes as f64);
        }
    }

    fn count_shared(&self, shared: &Shared) {
        let (standing, gateways, _) = shared.status();
        let up = f64::from(u8::from(standing == StoreStatus::Shared));
        self.registry.gauge(Metric::SharedUp, &[]).set(up);
        let gateways = f64::from(gateways);
        self.registry
            .gauge(Metric::SharedGateways, &[])
            .set(gateways);
        let keys = shared.decider.ledger.len() as f64;
        self.registry.gauge(Metric::SharedKeys, &[]).set(keys);
        let tally = &shared.tally;
        for (metric, outcome, count) in [
            (Metric::SharedCalls, "answered", &tally.answered),
            (Metric::SharedCalls, "late", &tally.late),
            (Metric::SharedCalls, "failed", &tally.failed),
            (Metric::SharedDecisions, "alone", &tally.alone),
            (Metric::SharedDecisions, "saved", &tally.saved),
            (Metric::SharedDecisions, "asked", &tally.asked),
        ] {
            let count = count.load(Relaxed);
            let labels = [(Label::Outcome, outcome)];
            self.registry.counter(metric, &labels).absolute(count);
        }
    }

    fn count_pressure(&self, running: &RunningConfig) {
        let gauges = [
            Metric::UpstreamLoad,
            Metric::UpstreamConcurrency,
            Metric::ElasticFactor,
            Metric::SheddingLevel,
        ];
        for gauge in gauges {
            self.registry.forget(gauge);
        }
        for servers in &running.upstreams {
            let Some(pressure) = servers.pressure() else {
                continue;
            };
            let upstream = (Label::Upstream, servers.settings.name.as_str());
            let now = pressure.figures();
            let values = [now.load, now.limit, now.factor.get(), now.level];
            for (gauge, value) in gauges.into_iter().zip(values) {
                self.registry.gauge(gauge, &[upstream]).set(value);
            }
            self.registry
                .counter(Metric::Lent, &[upstream])
                .absolute(now.lent);
            for (class, shed) in RequestClass::ALL.into_iter().zip(now.shed) {
                let labels = [upstream, (Label::Priority, class.as_str())];
                self.registry.counter(Metric::Shed, &labels).absolute(shed);
            }
        }
    }

    fn count_servers(&self, running: &RunningConfig) {
        let gauges = [Metric::ServerUp, Metric::ServerOpen];
        for gauge in gauges {
            self.registry.forget(gauge);
        }
        for servers in &running.upstreams {
            let now = self.clock.now();
            // One series per name, because addresses change without end.
            servers.for_each_server(|name, all, gone| {
                let upstream = (Label::Upstream, servers.settings.name.as_str());
                let labels = [upstream, (Label::Server, name)];
                let up = all.iter().any(|one| servers.state(one, now).is_asked());
                let open: u32 = all.iter().map(|one| one.health.open()).sum();
                let values = [f64::from(u8::from(up)), f64::from(open)];
                for (gauge, value) in gauges.into_iter().zip(values) {
                    self.registry.gauge(gauge, &labels).set(value);
                }
                let sum = |count: fn(&ServerHealth) -> u64| -> u64 {
                    all.iter().map(|one| count(&one.health)).sum()
                };
                let ejections = gone.ejections + sum(ServerHealth::ejections);
                let failed_checks = gone.failed_checks + sum(ServerHealth::failed_checks);
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
