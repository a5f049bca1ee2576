//! The figures that a scrape brings up to date.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use super::{App, entrances};
use crate::pressure::Class;
use crate::store::Shared;
use crate::store::shared::ladder::Standing;
use crate::telemetry::{Label, Metric};

impl App {
    /// `/metrics`, with the store's figures as of now.
    pub fn metrics(&self) -> String {
        let running = self.running();
        let mut open: BTreeMap<&str, u64> = BTreeMap::new();
        for (rule, open_now) in running.ruleset.rules.iter().zip(running.admission.open()) {
            if let Some(permits) = open_now {
                *open.entry(rule.name.as_str()).or_default() += permits;
            }
        }
        self.registry
            .gauges(Metric::PermitsOpen, Label::Limit, &open);
        let usage = self.store.usage();
        let expiry = entrances::expiry(&running.entrances);
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
        if let Some((shared, _)) = &self.shared {
            self.count_shared(shared);
        }
        // No other scrape may see what is there only in part.
        let _one = self.scraping.lock();
        self.count_servers();
        self.count_pressure();
        self.registry.render()
    }

    fn count_shared(&self, shared: &Shared) {
        let (standing, gateways, _) = shared.status();
        let up = f64::from(u8::from(standing == Standing::Shared));
        self.registry.gauge(Metric::SharedUp, &[]).set(up);
        let gateways = f64::from(gateways);
        self.registry
            .gauge(Metric::SharedGateways, &[])
            .set(gateways);
        let known = shared.core.ledger.len() as f64;
        self.registry.gauge(Metric::SharedKeys, &[]).set(known);
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

    fn count_pressure(&self) {
        let gauges = [
            Metric::UpstreamLoad,
            Metric::UpstreamConcurrency,
            Metric::ElasticFactor,
            Metric::SheddingLevel,
        ];
        for gauge in gauges {
            self.registry.forget(gauge);
        }
        for servers in &self.running.read().upstreams {
            let Some(pressure) = servers.pressure() else {
                continue;
            };
            let upstream = (Label::Upstream, servers.settings.name.as_str());
            let now = pressure.snapshot();
            let values = [now.load, now.limit, now.factor.get(), now.level];
            for (gauge, value) in gauges.into_iter().zip(values) {
                self.registry.gauge(gauge, &[upstream]).set(value);
            }
            self.registry
                .counter(Metric::Lent, &[upstream])
                .absolute(now.lent);
            for (class, shed) in Class::ALL.into_iter().zip(now.shed) {
                let labels = [upstream, (Label::Priority, class.as_str())];
                self.registry.counter(Metric::Shed, &labels).absolute(shed);
            }
        }
    }

    fn count_servers(&self) {
        let gauges = [Metric::ServerUp, Metric::ServerOpen];
        for gauge in gauges {
            self.registry.forget(gauge);
        }
        for servers in &self.running.read().upstreams {
            for (server, known) in servers.all().iter().enumerate() {
                let upstream = (Label::Upstream, servers.settings.name.as_str());
                let labels = [upstream, (Label::Server, &*known.name)];
                let up = servers.state(server, self.clock.now()).is_asked();
                let values = [f64::from(u8::from(up)), f64::from(known.health.open())];
                for (gauge, value) in gauges.into_iter().zip(values) {
                    self.registry.gauge(gauge, &labels).set(value);
                }
                let counts = [
                    (Metric::ServerEjections, known.health.ejections()),
                    (Metric::ServerCheckFailures, known.health.failed_checks()),
                ];
                for (metric, count) in counts {
                    self.registry.counter(metric, &labels).absolute(count);
                }
            }
        }
    }
}
