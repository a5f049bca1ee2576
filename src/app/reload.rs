//! Replaces the running configuration: at a reload by the files as they are now, or with newly fetched keys alone. Also
//! reopens the access log. What a reload cannot change is reported, and changes with the next start.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::error::Error;
use super::events::{find_limit_changes, find_operator_changes};
use super::gateway::Gateway;
use super::listeners::{build_listeners, renew_certificates_of};
use super::reload_changes::ReloadChanges;
use super::reset_warnings::reset_warnings;
use super::servers::build_servers;
use crate::base::telemetry::{Label, Metric};
use crate::policy::{self, Diagnostic, Ruleset};
use crate::serve::worker::generation::RunningConfig;

/// What a reload that succeeded reports.
#[derive(Debug)]
pub struct ReloadReport {
    /// Warnings about the new configuration.
    pub warnings: Vec<Diagnostic>,
    /// The fields of the gateway file that changed, but take effect only at the next start.
    pub needs_restart: Vec<&'static str>,
    /// The changes of files and limits.
    pub changes: ReloadChanges,
}

impl Gateway {
    /// Orders the access log to be reopened, for instance after its file was moved away.
    pub fn reopen_log(&self) {
        if let Some((writer, _)) = &*self.access_log.lock() {
            writer.reopen();
        }
    }

    /// Reads the configuration again and replaces the running one. Returns once all workers run it.
    ///
    /// Connections and open requests continue. So do the counts of limits that both configurations have, except those
    /// that a warning names: see `reset_warnings.rs`. The access log is reopened even if the reload fails.
    ///
    /// # Errors
    ///
    /// The configuration has mistakes or cannot be run: see the variants of [`Error`]. The previous one still runs.
    pub async fn reload(&self) -> Result<ReloadReport, Error> {
        self.reopen_log();
        let result = self.load_and_replace().await;
        let outcome = if result.is_ok() { "ok" } else { "refused" };
        if let Err(error) = &result {
            // The event has the first mistake only, because the caller reports all of them.
            let detail = error.to_string();
            let detail = detail.lines().next().unwrap_or_default();
            self.record_event("reload_failed", detail, Vec::new());
        }
        self.registry
            .counter(Metric::Reloads, &[(Label::Outcome, outcome)])
            .increment(1);
        result
    }

    /// The part of [`Gateway::reload`] that may fail.
    async fn load_and_replace(&self) -> Result<ReloadReport, Error> {
        let (report, acknowledgements) = {
            let _reload_guard = self.publisher.lock.lock();
            let loaded = policy::load(&self.config_path).map_err(Error::Policy)?;
            let mut ruleset = loaded.ruleset;
            let mut rules = ruleset.rules.iter();
            let credits = rules.find(|rule| rule.limit.is_credits());
            if let Some(rule) = credits.filter(|_| !self.process_settings.keeps_counts()) {
                return Err(Error::ForgottenCredits(rule.name.clone()));
            }
            let config_before = self.running();
            let operators_before = &config_before.ruleset.operators;
            // The listener may be reached from everywhere until the next start, so it stays closed to strangers.
            let keeps_operators = ruleset.operators.is_none() && operators_before.is_some();
            if keeps_operators {
                ruleset.operators.clone_from(operators_before);
            }
            let admission = config_before.admission.with_rules(&ruleset.rules)?;
            let listeners = build_listeners(
                &self.process_settings,
                &ruleset,
                &self.ticket_keys,
                &self.certificate_renewer,
                &config_before.listeners,
            )?;
            renew_certificates_of(&listeners, &self.certificate_renewer).map_err(Error::Thread)?;
            // The last step that may fail, because it marks the keys as used.
            self.key_set_fetchers
                .use_keys_of(&mut ruleset.identity)
                .map_err(Error::Thread)?;
            let ruleset = Arc::new(ruleset);
            let running = RunningConfig {
                listeners,
                challenge_tokens: self.certificate_renewer.challenge_tokens(),
                insight: config_before.insight.clone(),
                bans: config_before.bans.clone(),
                grants: config_before.grants.clone(),
                api_keys: config_before.api_keys.clone(),
                entries: config_before.entries.clone(),
                upstreams: build_servers(&ruleset, &config_before.upstreams, &self.clock),
                loaded: ruleset.clone(),
                ruleset,
                admission,
                process_keyer: self.keyer.clone(),
            };
            let running = running.with_current_grants()?;
            self.set_unacked_timeout(running.ruleset.timeouts.send);
            // Hashes the keys of overrides into a cache now, so that no worker has to while requests wait.
            drop(running.build_identifier());
            // The files may define identities now that bans name.
            running.bans.invalidate_index();
            let acknowledgements = self.publisher.publish(&running);
            if let Some(pusher) = &*self.pusher.lock() {
                pusher.update_settings(&loaded.process.push);
            }
            if let Some(exporter) = &*self.exporter.lock()
                && let Some(reloaded) = &loaded.process.traces
            {
                exporter.update_settings(reloaded);
            }
            let limit_changes = find_limit_changes(&config_before.loaded, &running.loaded);
            let mut warnings = loaded.warnings;
            warnings.extend(reset_warnings(
                (&config_before.loaded, &config_before.admission),
                (&running.loaded, &running.admission),
            ));
            let has_same_contents = self
                .loaded_fingerprint
                .swap(loaded.fingerprint, Ordering::Relaxed)
                == loaded.fingerprint;
            let mut needs_restart = self.process_settings.differences(&loaded.process);
            if keeps_operators && !needs_restart.contains(&"admin") {
                needs_restart.push("admin");
            }
            let report = ReloadReport {
                warnings,
                needs_restart,
                changes: ReloadChanges::compare(
                    &config_before.loaded,
                    &running.loaded,
                    limit_changes.clone(),
                    has_same_contents,
                ),
            };
            let operator_changes = find_operator_changes(&config_before.loaded, &running.loaded);
            let detail = format!("the policies were read again{operator_changes}");
            self.record_event("reloaded", &detail, limit_changes);
            (report, acknowledgements)
        };
        for acknowledgement in acknowledgements {
            let _ = acknowledgement.await;
        }
        Ok(report)
    }

    /// Waits until a key set was fetched that differs from the running one. Only one task may wait.
    pub async fn wait_for_new_keys(&self) {
        self.key_set_fetchers.wait_for_new_keys().await;
    }

    /// Verifies tokens by the fetched keys from now on, and returns once all workers do. Everything else of the running
    /// configuration stays.
    ///
    /// # Errors
    ///
    /// A thread that fetches keys is missing and cannot be started, or the store has no slot left for a grant.
    pub async fn renew_keys(&self) -> Result<(), Error> {
        let acknowledgements = {
            let _reload_guard = self.publisher.lock.lock();
            let config_before = self.running();
            let mut ruleset = Ruleset::clone(&config_before.loaded);
            let identity = &mut ruleset.identity;
            self.key_set_fetchers
                .use_keys_of(identity)
                .map_err(Error::Thread)?;
            let ruleset = Arc::new(ruleset);
            let running = RunningConfig {
                loaded: ruleset.clone(),
                ruleset,
                ..config_before
            };
            self.publisher.publish(&running.with_current_grants()?)
        };
        for acknowledgement in acknowledgements {
            let _ = acknowledgement.await;
        }
        Ok(())
    }
}
