//! Reads the configuration again and replaces the running one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use super::changes::Changes;
use super::error::Error;
use super::gateway::App;
use super::listeners::{self, listeners};
use super::servers::servers;
use super::{events, reset_limits};
use crate::base::telemetry::{Label, Metric};
use crate::policy::{self, Diagnostic};
use crate::serve::worker::generation::RunningConfig;
use crate::serve::worker::run::WorkerOrder;

/// The result of a reload.
#[derive(Debug)]
pub struct Reloaded {
    /// Warnings about the new configuration.
    pub notes: Vec<Diagnostic>,
    /// Settings that changed and take effect at the next start only.
    pub restart: Vec<&'static str>,
    /// What the reload changed.
    pub changes: Changes,
}

impl App {
    /// Reopens the access log, for instance after its file was moved away.
    pub fn reopen_log(&self) {
        if let Some((writer, _)) = &*self.log.lock() {
            writer.reopen();
        }
    }

    /// Reads the configuration again and replaces the running one. Returns once all workers run it.
    ///
    /// Counters, connections and open requests continue. The access log is reopened even if the reload fails.
    ///
    /// # Errors
    ///
    /// The configuration has mistakes or cannot be run; the previous one still runs.
    pub async fn reload(&self) -> Result<Reloaded, Error> {
        self.reopen_log();
        let result = self.load_and_swap().await;
        let outcome = if result.is_ok() { "ok" } else { "refused" };
        if let Err(error) = &result {
            // Only the first mistake; the caller reports all of them.
            let detail = error.to_string();
            let detail = detail.lines().next().unwrap_or_default();
            self.record_event("reload_failed", detail, Vec::new());
        }
        self.registry
            .counter(Metric::Reloads, &[(Label::Outcome, outcome)])
            .increment(1);
        result
    }

    async fn load_and_swap(&self) -> Result<Reloaded, Error> {
        let (reloaded, acknowledged) = {
            let _one = self.reloading.lock();
            let loaded = policy::load(&self.config).map_err(Error::Policy)?;
            let ruleset = Arc::new(loaded.ruleset);
            let before = self.running();
            let admission = before.admission.with_rules(&ruleset.rules)?;
            let running = RunningConfig {
                listeners: listeners(
                    &self.process,
                    &ruleset,
                    &self.tickets,
                    &self.acme,
                    &before.listeners,
                )?,
                tokens: self.acme.tokens(),
                insight: before.insight.clone(),
                upstreams: servers(&ruleset, &before.upstreams, &self.clock),
                ruleset,
                admission,
                own_keyer: self.keyer.clone(),
            };
            listeners::follow(&self.acme, &running.listeners).map_err(Error::Thread)?;
            self.set_unacked_timeout(running.ruleset.timeouts.send);
            *self.running.write() = running.clone();
            let mut acknowledged = Vec::new();
            for worker in &*self.workers.lock() {
                let (done, receiver) = oneshot::channel();
                if worker
                    .orders
                    .send(WorkerOrder::Run(Box::new(running.clone()), done))
                    .is_ok()
                {
                    acknowledged.push(receiver);
                }
            }
            if let Some(push) = &*self.push.lock() {
                push.renew(&loaded.process.push);
            }
            let restart = self.process.differences(&loaded.process);
            let changes = events::changes(&before.ruleset, &running.ruleset);
            let mut notes = loaded.notes;
            notes.extend(reset_limits::warnings(
                (&before.ruleset, &before.admission),
                (&running.ruleset, &running.admission),
            ));
            let same = self
                .loaded_fingerprint
                .swap(loaded.fingerprint, Ordering::Relaxed)
                == loaded.fingerprint;
            let reloaded = Reloaded {
                notes,
                restart,
                changes: Changes::between(&before.ruleset, &running.ruleset, changes.clone(), same),
            };
            self.record_event("reloaded", "the policies were read again", changes);
            (reloaded, acknowledged)
        };
        for worker in acknowledged {
            let _ = worker.await;
        }
        Ok(reloaded)
    }
}
