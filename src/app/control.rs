//! Implements [`Control`] for [`Gateway`]. The admin listener reads and reloads the gateway through this trait only.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use serde_json::json;

use super::error::Error;
use super::gateway::Gateway;
use super::metrics_recorder::MetricsRecorder;
use crate::base::clock::Clock;
use crate::base::telemetry::{Label, Metric, MetricsFormat};
use crate::operator::{BanError, ListedBan, NewBan};
use crate::policy::Diagnostic;
use crate::record::Record;
use crate::record::push;
use crate::serve::admin::{Control, ReloadOutcome};
use crate::serve::worker::generation::RunningConfig;

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
        !self.is_end_announced.load(Ordering::Relaxed) && !self.workers.lock().is_empty()
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn token(&self) -> Option<&str> {
        self.process_settings.admin_token.as_deref()
    }
}

impl Gateway {
    /// Publishes to the workers what was ordered just now.
    fn publish_orders(&self) {
        if let Some(order_keeper) = &*self.order_keeper.lock() {
            order_keeper.update();
        }
    }
}
