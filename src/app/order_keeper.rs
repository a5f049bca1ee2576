//! [`OrderKeeper`]: a thread that keeps what operators order up to date. It ends orders at their time, takes over what
//! another process has written, and publishes to the workers what has changed. Each change becomes a log line and an event of
//! the record.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use super::config_publisher::{Acknowledgement, ConfigPublisher};
use super::events::new_event;
use super::metrics_recorder::EventQueue;
use crate::base::clock::{Clock, Nanos};
use crate::operator::{ChangeKind, CreditOrder, EntryChange, EntryKind, OperatorEntry};

/// The pause between two looks for changes. What is ordered here is published at once.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);
/// The shortest pause between two publications of grants. Orders that come meanwhile share the next one.
const PUBLICATION_PAUSE: Nanos = Nanos::from_millis(20);
/// The pause after a failed publication of grants, which costs as much as one that succeeds.
const RETRY_PAUSE: Nanos = Nanos::from_secs(5);
/// The most changes at a time that are reported one by one.
const MAX_REPORTS: usize = 20;
/// The most bans by limits, and ends of such bans, that are reported one by one within [`REPORT_PERIOD`]. A flood of offenders
/// would displace what operators ordered from the record.
const MAX_OFFENDER_REPORTS: usize = 60;
/// After this the other bans by limits are reported as one number.
const REPORT_PERIOD: Nanos = Nanos::from_secs(3_600);

/// The running thread. Dropping it stops the thread without waiting for it.
pub struct OrderKeeper {
    updater: OrderUpdater,
    stop_sender: Sender<()>,
    thread: JoinHandle<()>,
}

/// Publishes and reports changes of orders.
#[derive(Clone)]
pub struct OrderUpdater {
    /// Has the configuration that workers run, and replaces it for grants.
    pub publisher: ConfigPublisher,
    /// Takes the events; `None` without a record.
    pub events: Option<EventQueue>,
    /// The clock of the gateway.
    pub clock: Clock,
    /// What was reported of offenders. Held during an update: when one returns, everything that was ordered before it is
    /// published.
    pub offender_reports: Arc<Mutex<OffenderReports>>,
    /// When grants were published last. Held while they are, until all workers have them: whoever waits for it finds what
    /// it has ordered published, or publishes it together with all else that was ordered.
    pub published_at: Arc<Mutex<Nanos>>,
    /// When the last publication of grants has failed; `None` if it has not.
    pub failed_at: Arc<Mutex<Option<Nanos>>>,
}

/// What was reported of bans by limits in the current [`REPORT_PERIOD`].
#[derive(Default)]
pub struct OffenderReports {
    /// When the period ends; zero before the first one.
    ends_at: Nanos,
    /// Changes that were reported one by one.
    reported: usize,
    /// Bans and ends of bans that were not.
    unreported: [usize; 2],
}

/// Kinds of entries that are reported by the same words.
struct ReportedKind {
    kinds: &'static [EntryKind],
    /// The kinds of events of an order, of one that is taken back, and of its end.
    events: [&'static str; 3],
}

/// The kinds of events about bans.
const BAN_EVENTS: [&str; 3] = ["banned", "ban_lifted", "ban_ended"];

/// All kinds of entries.
const REPORTED_KINDS: [ReportedKind; 3] = [
    ReportedKind {
        kinds: &EntryKind::BANS,
        events: BAN_EVENTS,
    },
    ReportedKind {
        kinds: &[EntryKind::Grant, EntryKind::Credit],
        events: ["granted", "grant_revoked", "grant_ended"],
    },
    ReportedKind {
        kinds: &[EntryKind::ApiKey],
        events: ["key_added", "key_revoked", "key_ended"],
    },
];

impl OrderUpdater {
    /// Publishes what has changed since the last call, and reports each change. Grants wait for the next call while
    /// somebody else replaces the configuration, which may take long.
    pub fn update(&self) {
        self.publish();
        let is_paused = self.failed_at.lock().is_some_and(|failed_at| {
            let now = self.clock.now();
            now.since(failed_at) < RETRY_PAUSE
        });
        if is_paused {
            return;
        }
        let Some(mut published_at) = self.published_at.try_lock() else {
            return;
        };
        let acknowledgements = match self.publisher.lock.try_lock() {
            Some(_publisher_guard) => self.publish_grants(),
            None => return,
        };
        *published_at = self.clock.now();
        wait_for(acknowledgements);
    }

    /// The same, but waits until grants are published too. Many orders at once share a publication.
    pub fn update_with_grants(&self) {
        self.publish();
        let mut published_at = self.published_at.lock();
        let running = self.publisher.running();
        if !running.grants.needs_publication(running.keyer().seed()) {
            return;
        }
        let since = self.clock.now().since(*published_at);
        thread::sleep(PUBLICATION_PAUSE.since(since).into());
        let acknowledgements = {
            let _publisher_guard = self.publisher.lock.lock();
            self.publish_grants()
        };
        *published_at = self.clock.now();
        wait_for(acknowledgements);
    }

    /// Publishes grants if they have changed. The caller holds the publisher's lock.
    fn publish_grants(&self) -> Vec<Acknowledgement> {
        let running = self.publisher.running();
        if !running.grants.take_publication(running.keyer().seed()) {
            return Vec::new();
        }
        match self.publisher.publish_grants() {
            Ok(acknowledgements) => {
                *self.failed_at.lock() = None;
                acknowledgements
            }
            Err(error) => {
                running.grants.invalidate_publication();
                let failed_before = self.failed_at.lock().replace(self.clock.now()).is_some();
                if !failed_before {
                    tracing::error!(%error, "the store has no room for the limits of grants");
                }
                Vec::new()
            }
        }
    }

    /// Publishes everything but grants. Waits for nobody who replaces the configuration.
    fn publish(&self) {
        let mut offender_reports = self.offender_reports.lock();
        let running = self.publisher.running();
        running.bans.ban_offenders();
        let refreshed = running.entries.refresh();
        let seed = running.keyer().seed();
        let build_identifier = || running.build_identifier();
        running.bans.publish(&refreshed, seed, build_identifier);
        running.api_keys.publish(&refreshed);
        running.grants.note_changes(&refreshed);
        let (by_limits, by_operators): (Vec<&EntryChange>, Vec<_>) =
            refreshed.changes.iter().partition(|change| {
                let is_revoked = change.kind == ChangeKind::Revoked;
                change.entry.kind == EntryKind::LimitBan && !is_revoked
            });
        self.report_offenders(&mut offender_reports, &by_limits);
        for reported in &REPORTED_KINDS {
            let changes = by_operators.iter().copied();
            let is_of_kind = |change: &&EntryChange| reported.kinds.contains(&change.entry.kind);
            let changes: Vec<&EntryChange> = changes.filter(is_of_kind).collect();
            let (first, others) = changes.split_at(changes.len().min(MAX_REPORTS));
            for change in first {
                self.report(reported.events, change);
            }
            self.report_others(reported, others);
        }
    }

    /// Reports bans by limits: the first ones of a period one by one, and how many others there were at its end.
    fn report_offenders(&self, reports: &mut OffenderReports, changes: &[&EntryChange]) {
        let now = self.clock.now();
        if now >= reports.ends_at {
            let [banned, _, ended] = BAN_EVENTS;
            for (event, count) in [banned, ended].into_iter().zip(reports.unreported) {
                if count > 0 {
                    tracing::info!(event, count, "further bans by limits within the last hour");
                    let detail = format!("{count} more keys by limits within the last hour");
                    self.add_event(event, &detail);
                }
            }
            *reports = OffenderReports {
                ends_at: now.after(REPORT_PERIOD),
                ..OffenderReports::default()
            };
        }
        for change in changes {
            if reports.reported < MAX_OFFENDER_REPORTS {
                reports.reported += 1;
                self.report(BAN_EVENTS, change);
            } else {
                reports.unreported[usize::from(change.kind == ChangeKind::Ended)] += 1;
            }
        }
    }

    /// Reports in one line for each kind of change how many other changes there are.
    fn report_others(&self, reported: &ReportedKind, changes: &[&EntryChange]) {
        let kinds = [ChangeKind::Ordered, ChangeKind::Revoked, ChangeKind::Ended];
        for (kind, event) in kinds.into_iter().zip(reported.events) {
            let count = changes.iter().filter(|change| change.kind == kind).count();
            if count == 0 {
                continue;
            }
            tracing::info!(event, count, "further changes at the same time");
            self.add_event(event, &format!("{count} more keys at the same time"));
        }
    }

    fn report(&self, events: [&'static str; 3], change: &EntryChange) {
        let EntryChange { kind, entry, order } = change;
        let [ordered, revoked, ended] = events;
        if let Some(order) = order {
            let event = match kind {
                ChangeKind::Revoked => revoked,
                ChangeKind::Ordered | ChangeKind::Ended => ordered,
            };
            self.report_credits(event, entry, order);
            return;
        }
        let (subject, by, reason) = (entry.description(), &*entry.by, &*entry.reason);
        let (event, detail) = match kind {
            ChangeKind::Ordered => {
                let until = entry.end().map(|end| end.div_ceil(1_000));
                tracing::info!(key = %subject, by, reason, until, "{}", words(ordered));
                let span = entry.end().map_or_else(String::new, |end| {
                    let seconds = end.saturating_sub(entry.changed_at).div_ceil(1_000);
                    format!(" for {seconds} s")
                });
                let reason = match reason {
                    "" => String::new(),
                    reason => format!(": {reason}"),
                };
                let detail = format!("{subject}{span}, by {by}{reason}");
                (ordered, detail)
            }
            ChangeKind::Revoked => {
                tracing::info!(key = %subject, by, "{}", words(revoked));
                (revoked, format!("{subject}, by {by}"))
            }
            ChangeKind::Ended => {
                tracing::info!(key = %subject, "{}", words(ended));
                (ended, subject.into_owned())
            }
        };
        self.add_event(event, &detail);
    }

    /// Reports an order about an account. Who has ordered it and why is known of the last one.
    fn report_credits(&self, event: &'static str, account: &OperatorEntry, order: &CreditOrder) {
        let Some(terms) = account.credit_terms() else {
            return;
        };
        let (key, limit, units) = (&account.key, &terms.limit, order.units.unsigned_abs());
        let is_last = terms.orders.last() == Some(order);
        let (by, reason) = match is_last {
            true => (&*account.by, &*account.reason),
            false => ("", ""),
        };
        let id = &*order.id;
        tracing::info!(%key, limit, units, order = id, by, reason, "credits {}", words(event));
        let mut detail = format!("{key} of {limit}: {units} credits, order {id}");
        for (words, text) in [(", by ", by), (": ", reason)] {
            if !text.is_empty() {
                detail += &format!("{words}{text}");
            }
        }
        self.add_event(event, &detail);
    }

    fn add_event(&self, event: &'static str, detail: &str) {
        if let Some(events) = &self.events {
            events.add(new_event(&self.clock, event, detail, Vec::new()));
        }
    }
}

/// Waits until workers run a configuration. The publisher's lock is free meanwhile, because a worker may be busy.
fn wait_for(acknowledgements: Vec<Acknowledgement>) {
    for acknowledgement in acknowledgements {
        let _ = acknowledgement.blocking_recv();
    }
}

/// The kind of an event as words of a log line.
fn words(event: &str) -> String {
    event.replace('_', " ")
}

impl OrderKeeper {
    /// Publishes what was ordered already, and starts the thread.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(updater: OrderUpdater) -> io::Result<OrderKeeper> {
        updater.update_with_grants();
        let (stop_sender, stop) = channel::<()>();
        let of_thread = updater.clone();
        let thread = thread::Builder::new()
            .name("orders".into())
            .spawn(move || {
                while stop.recv_timeout(REFRESH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    of_thread.update();
                }
            })?;
        Ok(OrderKeeper {
            updater,
            stop_sender,
            thread,
        })
    }

    /// The updater, for what was ordered just now.
    pub fn updater(&self) -> OrderUpdater {
        self.updater.clone()
    }

    /// Stops the thread, waits for its end, and writes what is not on the disk yet.
    pub fn finish(self) {
        drop(self.stop_sender);
        if self.thread.join().is_err() {
            tracing::error!("the thread of the orders panicked");
        }
        // The last offenders are not banned yet.
        self.updater.update();
        let entries = self.updater.publisher.running().entries;
        entries.save();
    }
}
