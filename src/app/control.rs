//! Implements [`Control`] for [`Gateway`]. The admin listener reads and reloads the gateway through this trait only.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use serde_json::json;

use super::error::Error;
use super::events::new_audit_event;
use super::gateway::Gateway;
use super::metrics_recorder::MetricsRecorder;
use super::order_keeper::{OrderKeeper, OrderUpdater};
use crate::base::clock::Clock;
use crate::base::telemetry::{Label, Metric, MetricsFormat};
use crate::operator::{
    AddedApiKey, ApiKeyError, BanError, GrantOrderError, GrantTerms, ListedApiKey, ListedBan,
    ListedGrant, NewApiKey, NewBan, NewCredits, NewGrant,
};
use crate::policy::{Diagnostic, GrantMistake};
use crate::record::Record;
use crate::record::insight::AuditEntry;
use crate::record::push;
use crate::serve::admin::{Control, GrantOrder, Granted, ReloadOutcome};
use crate::serve::worker::generation::RunningConfig;
use crate::store::shared::breaker::StoreStatus;

impl Control for Gateway {
    fn running(&self) -> RunningConfig {
        self.running.read().clone()
    }

    fn reload(&self) -> Pin<Box<dyn Future<Output = ReloadOutcome> + Send + '_>> {
        Box::pin(async {
            match Gateway::reload(self).await {
                Ok(report) => {
                    let warnings = report.warnings.iter();
                    let warnings: Vec<_> = warnings.map(Diagnostic::to_json).collect();
                    ReloadOutcome::Done(json!({
                        "changed": !report.changes.is_empty(),
                        "changes": report.changes.to_json(),
                        "notes": warnings,
                        "needs_restart": report.needs_restart,
                    }))
                }
                Err(Error::Policy(report)) => ReloadOutcome::Mistakes(report),
                Err(error) => ReloadOutcome::Failed(error.to_string()),
            }
        })
    }

    fn ban(&self, ban: NewBan) -> Result<ListedBan, BanError> {
        let running = self.running();
        let banned = running.bans.ban(ban, &running.build_identifier())?;
        self.publish_orders();
        Ok(banned)
    }

    fn lift_ban(&self, key: &str, by: &str) -> Result<ListedBan, BanError> {
        let running = self.running();
        let lifted = running.bans.lift(key, by, &running.build_identifier())?;
        self.publish_orders();
        Ok(lifted)
    }

    fn grant(&self, order: GrantOrder) -> Result<Granted, GrantMistake> {
        let running = self.running();
        let identifier = running.build_identifier_of_files();
        let GrantOrder {
            limit,
            key,
            grant,
            duration,
            order: order_id,
            reason,
            by,
        } = order;
        let subject = running.loaded.grant_subject(&limit, &key, &identifier)?;
        if subject.has_credits {
            if grant.times > 1 || duration.is_some() {
                return Err(GrantMistake::OfCredits(subject.limit));
            }
            let store = running.admission.shared_store();
            if store.is_some_and(|store| matches!(store.status().status, StoreStatus::Away(_))) {
                return Err(GrantMistake::StoreAway);
            }
            let loaded = &running.loaded;
            loaded.check_account(&subject, grant.add, &identifier)?;
            let (account, order) = running.grants.add_credits(NewCredits {
                limit: subject.limit,
                key: subject.key,
                fingerprint: subject.fingerprint,
                add: grant.add,
                order: order_id,
                reason,
                by,
            })?;
            return Ok(Granted {
                grant: self.publish_grant(account),
                order: Some(order),
            });
        }
        let duration = duration.ok_or(GrantMistake::NoEnd)?;
        if order_id.is_some() {
            return Err(GrantMistake::OrderOfGrant(subject.limit));
        }
        let others = running.grants.list();
        let loaded = &running.loaded;
        loaded.check_grant(&subject, grant, others, &identifier)?;
        let terms = GrantTerms {
            limit: subject.limit,
            times: grant.times,
            add: grant.add,
        };
        let granted = running.grants.grant(NewGrant {
            terms,
            key: subject.key,
            fingerprint: subject.fingerprint,
            duration,
            reason,
            by,
        })?;
        Ok(Granted {
            grant: self.publish_grant(granted),
            order: None,
        })
    }

    fn revoke_grant(&self, limit: &str, key: &str, by: &str) -> Result<ListedGrant, GrantMistake> {
        let running = self.running();
        // As it is listed, also if no policy has the limit any more.
        let mut revoked = running.grants.revoke(limit, key, by);
        if matches!(revoked, Err(GrantOrderError::NotGranted { .. })) {
            let identifier = running.build_identifier_of_files();
            let subject = running.loaded.grant_subject(limit, key, &identifier)?;
            revoked = running.grants.revoke(&subject.limit, &subject.key, by);
        }
        self.publish_grants();
        Ok(revoked?)
    }

    fn take_credits_back(
        &self,
        account: &ListedGrant,
        left: u32,
        by: &str,
    ) -> Result<ListedGrant, GrantMistake> {
        let taken_back = self.running().grants.take_credits_back(account, left, by);
        self.publish_grants();
        Ok(taken_back?)
    }

    fn add_api_key(&self, new_key: NewApiKey) -> Result<AddedApiKey, ApiKeyError> {
        let running = self.running();
        let added = running.api_keys.add(new_key, &running.ruleset.identity)?;
        self.publish_orders();
        Ok(added)
    }

    fn revoke_api_key(&self, id: &str, by: &str) -> Result<ListedApiKey, ApiKeyError> {
        let revoked = self.running().api_keys.revoke(id, by)?;
        self.publish_orders();
        Ok(revoked)
    }

    fn audit(&self, entry: AuditEntry) {
        let AuditEntry {
            by,
            peer,
            action,
            target,
            reason,
            result,
        } = &entry;
        match (entry.is_done(), entry.may_have_effect()) {
            (true, _) => tracing::info!(by, peer, action, target, reason, result, "ordered"),
            (_, true) => tracing::warn!(by, peer, action, target, reason, result, "ordered"),
            _ => tracing::warn!(by, peer, action, target, reason, result, "order refused"),
        }
        if let Some(recorder) = &*self.recorder.lock() {
            let event = new_audit_event(&self.clock, entry);
            recorder.event_queue().add(event);
        }
    }

    fn write_audit(&self) {
        // A copy, so that no event waits for the disk.
        let queue = self
            .recorder
            .lock()
            .as_ref()
            .map(MetricsRecorder::event_queue);
        if let Some(queue) = queue {
            queue.write();
        }
    }

    fn metrics(&self, format: MetricsFormat) -> String {
        self.live_metrics.read(|registry| registry.render(format))
    }

    fn has_traces(&self) -> bool {
        self.process_settings.traces.is_some()
    }

    fn record(&self) -> Option<Arc<OnceLock<Record>>> {
        self.recorder.lock().as_ref().map(MetricsRecorder::record)
    }

    fn counter_total(&self, metric: Metric, labels: &[(Label, &str)]) -> u64 {
        self.registry.total(metric, labels)
    }

    fn started_at(&self) -> u64 {
        self.started_at
    }

    fn push_status(&self) -> Vec<push::DestinationStatus> {
        Gateway::push_status(self)
    }

    fn is_ready(&self) -> bool {
        // The list is empty before the workers start and after they end.
        !self.is_end_announced.load(Ordering::Relaxed) && !self.publisher.workers.lock().is_empty()
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }
}

impl Gateway {
    /// Publishes to the workers what was ordered just now, except grants.
    fn publish_orders(&self) {
        if let Some(updater) = self.order_updater() {
            updater.update();
        }
    }

    /// Publishes grants too, even if that has to wait for a reload.
    fn publish_grants(&self) {
        if let Some(updater) = self.order_updater() {
            updater.update_with_grants();
        }
    }

    /// Publishes a grant or an account, and returns it as it is listed then.
    fn publish_grant(&self, granted: ListedGrant) -> ListedGrant {
        self.publish_grants();
        // Whether it holds beside all other grants is known now.
        self.running().grants.relist(&granted).unwrap_or(granted)
    }

    /// A copy, so that no order waits for the publication of another one.
    fn order_updater(&self) -> Option<OrderUpdater> {
        let order_keeper = self.order_keeper.lock();
        order_keeper.as_ref().map(OrderKeeper::updater)
    }
}
