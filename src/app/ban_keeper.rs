//! [`BanKeeper`]: a thread that keeps the bans up to date. It ends bans at their time, takes over what another process has
//! written, and publishes to the workers what has changed. Each change becomes a log line and an event of the record.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::RwLock;

use super::events::new_event;
use super::metrics_recorder::EventQueue;
use crate::base::clock::Clock;
use crate::operator::{BanChange, BanChangeKind};
use crate::serve::worker::generation::RunningConfig;

/// The pause between two looks for changes. What is ordered here is published at once.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);
/// The most changes at a time that are reported one by one. A flood of offenders would displace all else from the record.
const MAX_REPORTS: usize = 20;

/// The running thread. Dropping it stops the thread without waiting for it.
pub struct BanKeeper {
    updater: BanUpdater,
    stop_sender: Sender<()>,
    thread: JoinHandle<()>,
}

/// Publishes and reports changes of bans.
#[derive(Clone)]
pub struct BanUpdater {
    /// The configuration that workers run.
    pub running: Arc<RwLock<RunningConfig>>,
    /// Takes the events; `None` without a record.
    pub events: Option<EventQueue>,
    /// The clock of the gateway.
    pub clock: Clock,
}

impl BanUpdater {
    /// Publishes what has changed since the last call, and reports each change.
    pub fn update(&self) {
        let running = self.running.read().clone();
        let seed = running.keyer().seed();
        let changes = running.bans.refresh(seed, || running.build_identifier());
        for change in changes.iter().take(MAX_REPORTS) {
            self.report(change);
        }
        self.report_others(changes.get(MAX_REPORTS..).unwrap_or_default());
    }

    /// Reports in one line for each kind how many other changes there are.
    fn report_others(&self, changes: &[BanChange]) {
        for (kind, event) in [
            (BanChangeKind::Banned, "banned"),
            (BanChangeKind::Lifted, "ban_lifted"),
            (BanChangeKind::Ended, "ban_ended"),
        ] {
            let count = changes.iter().filter(|change| change.kind == kind).count();
            if count == 0 {
                continue;
            }
            tracing::info!(event, count, "further changes of bans at the same time");
            if let Some(events) = &self.events {
                let detail = format!("{count} more keys at the same time");
                events.add(new_event(&self.clock, event, &detail, Vec::new()));
            }
        }
    }

    fn report(&self, BanChange { kind, entry }: &BanChange) {
        let (key, by, reason) = (&*entry.key, &*entry.by, &*entry.reason);
        let until = entry.until.div_ceil(1_000);
        let (event, detail) = match kind {
            BanChangeKind::Banned => {
                tracing::info!(key, by, reason, until, "banned");
                let seconds = entry.until.saturating_sub(entry.changed_at).div_ceil(1_000);
                let reason = match reason {
                    "" => String::new(),
                    reason => format!(": {reason}"),
                };
                ("banned", format!("{key} for {seconds} s, by {by}{reason}"))
            }
            BanChangeKind::Lifted => {
                tracing::info!(key, by, "ban lifted");
                ("ban_lifted", format!("{key}, by {by}"))
            }
            BanChangeKind::Ended => {
                tracing::info!(key, "ban ended");
                ("ban_ended", key.to_owned())
            }
        };
        if let Some(events) = &self.events {
            events.add(new_event(&self.clock, event, &detail, Vec::new()));
        }
    }
}

impl BanKeeper {
    /// Publishes the bans that are known already, and starts the thread.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(updater: BanUpdater) -> io::Result<BanKeeper> {
        updater.update();
        let (stop_sender, stop) = channel::<()>();
        let of_thread = updater.clone();
        let thread = thread::Builder::new().name("bans".into()).spawn(move || {
            while stop.recv_timeout(REFRESH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                of_thread.update();
            }
        })?;
        Ok(BanKeeper {
            updater,
            stop_sender,
            thread,
        })
    }

    /// Publishes and reports what was ordered just now.
    pub fn update(&self) {
        self.updater.update();
    }

    /// Stops the thread, waits for its end, and writes what is not on the disk yet.
    pub fn finish(self) {
        drop(self.stop_sender);
        if self.thread.join().is_err() {
            tracing::error!("the thread of the bans panicked");
        }
        // The last offenders are not banned yet.
        self.updater.update();
        let bans = self.updater.running.read().bans.clone();
        bans.save();
    }
}
