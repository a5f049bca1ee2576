//! [`Recovery`]: the steps back to a store that was away. They identify the store, report the units that it may not know,
//! and end when all gateways have reported. This file does no I/O and never waits; the keeper carries out the steps.

use smallvec::SmallVec;

use super::call::{CounterName, GatewayHeartbeat, LiveGateways, StoreError, StoreLoss};
use super::decider::Decider;
use super::pending_call::PendingCall;
use crate::base::clock::Nanos;

/// The most counters that one call reports or compares, which bounds the size of the call.
pub(super) const MAX_REPORTED_COUNTERS: usize = 64;
/// How long a gateway without a secret leaves an empty store to gateways that know its former secret.
const INITIALIZE_DELAY: Nanos = Nanos::from_millis(500);
/// How long a gateway that has never shared the store waits for the reports of others.
const NEWCOMER_DELAY: Nanos = Nanos::from_secs(1);

/// The next step of a recovery, for the keeper to carry out.
#[derive(Debug)]
pub enum RecoveryStep {
    /// Identify the store, then call [`Recovery::on_identified`].
    Identify,
    /// List the gateways, then call [`Recovery::on_listed`].
    ListGateways,
    /// Send this call, then call [`Decider::record_copied`].
    Compare(Box<PendingCall>),
    /// Send this call, then call [`Decider::record_report`].
    Report(Box<PendingCall>),
    /// Send a heartbeat, then call [`Recovery::on_heartbeat`]. Wait before the next step, because other gateways take their
    /// time.
    Heartbeat {
        /// See [`HeartbeatSender::has_reported`](super::call::HeartbeatSender::has_reported).
        has_reported: bool,
    },
}

/// The store is not shared yet: some gateways have not reported, units of a window cannot be reported, or a worker has no
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingReports {
    /// The number of gateways that have reported.
    pub reported_count: u32,
    /// The number of gateways that must report.
    pub gateway_count: u32,
}

/// The way back to a store that was away.
#[derive(Debug, Default)]
pub struct Recovery {
    /// The attempt that is under way; `None` until the store is identified, and again after a failed step.
    attempt: Option<RecoveryAttempt>,
    /// Whether the store, under its current mark, knows all units that it did not grant itself.
    knows_all_units: bool,
    /// Whether another server is the master, and its counters were not yet compared with the former one's.
    must_compare: bool,
    /// When this gateway first saw the store empty; `None` once the store is identified.
    empty_since: Option<Nanos>,
}

/// The progress since the store was identified.
#[derive(Debug)]
struct RecoveryAttempt {
    /// When the store was identified.
    started_at: Nanos,
    /// The last heartbeats that the store had listed when it was identified; `None` until they are read. Only other
    /// heartbeats count, whatever the store's clock did.
    former_heartbeats: Option<Vec<GatewayHeartbeat>>,
    /// Until this time a window may hold units that were counted before the attempt and that this gateway cannot report. For
    /// a gateway that has never shared the store, others may not have reported theirs until then.
    unreported_until: Nanos,
    /// The fewest gateways that must report: so many shared the store before it was away.
    sharing_gateway_count: u32,
    /// Counters that are still to be compared; `None` where the master is the same, or all are compared.
    counters_to_compare: Option<Vec<CounterName>>,
    /// Counters that are still to be reported.
    counters_to_report: Vec<CounterName>,
    /// Calls that are sent next, from the last to the first.
    next_calls: SmallVec<[PendingCall; 2]>,
    /// Whether new unreported units were reported since the last heartbeat.
    has_reported_new_units: bool,
    /// Whether everything was reported and a heartbeat was sent.
    has_sent_heartbeat: bool,
    /// Late replies in a row after the first heartbeat: 0 or 1, because the second one ends the attempt.
    late_reply_count: u32,
}

impl Recovery {
    /// Whether the store has been identified.
    pub fn is_started(&self) -> bool {
        self.attempt.is_some()
    }

    /// The next step, to be carried out before this is called again.
    pub fn next_step(&mut self, decider: &Decider, now: Nanos) -> RecoveryStep {
        let Some(attempt) = &mut self.attempt else {
            return RecoveryStep::Identify;
        };
        if let Some(names) = &mut attempt.counters_to_compare {
            while !names.is_empty() {
                let batch = take_batch(names);
                if let Some(pending_call) = decider.make_comparison(&batch, now) {
                    return RecoveryStep::Compare(Box::new(pending_call));
                }
            }
            (attempt.counters_to_compare, self.must_compare) = (None, false);
            decider.keep_copied_give_backs(now);
            decider.breaker.start_learning(now);
        }
        if attempt.former_heartbeats.is_none() {
            return RecoveryStep::ListGateways;
        }
        attempt.next_report_or_heartbeat(decider, now)
    }

    /// Whether a gateway without a secret may initialise an empty store: gateways that know its secret come first.
    pub fn may_initialize(&self, now: Nanos) -> bool {
        self.empty_since
            .is_some_and(|since| now.since(since) >= INITIALIZE_DELAY)
    }

    /// Begins an attempt, after the store was identified. `loss` is the data that it may have lost. Drops all give-backs if
    /// it has lost everything. The store is learning from now on; with a new master, only once its counters are compared.
    pub fn on_identified(&mut self, decider: &Decider, loss: StoreLoss, now: Nanos) {
        self.empty_since = None;
        let has_data = loss != StoreLoss::All;
        if !has_data {
            decider.give_backs.clear();
            self.knows_all_units = false;
        }
        self.must_compare = has_data && (self.must_compare || loss == StoreLoss::NewMaster);
        let mut unreported_until = end_of_unreportable_use(decider, has_data);
        if decider.breaker.was_never_shared() {
            unreported_until = unreported_until.max(now.after(NEWCOMER_DELAY));
        }
        if !self.must_compare {
            decider.breaker.start_learning(now);
        }
        // Compared before the store grants anything, because new grants get the same totals as those that it lacks.
        let counters_to_compare = self
            .must_compare
            .then(|| decider.ledger.counters_where(|_| true));
        // In a complete store without totals, its own grants would count twice.
        let counters_to_report = match loss {
            StoreLoss::Nothing if self.knows_all_units => Vec::new(),
            _ => decider.ledger.counters_with_units(),
        };
        self.attempt = Some(RecoveryAttempt {
            started_at: now,
            former_heartbeats: None,
            unreported_until,
            sharing_gateway_count: decider.breaker.sharing_gateway_count(),
            counters_to_compare,
            counters_to_report,
            next_calls: SmallVec::new(),
            has_reported_new_units: false,
            has_sent_heartbeat: false,
            late_reply_count: 0,
        });
    }

    /// Records the gateways that were listed. The number of gateways includes them and this one.
    pub fn on_listed(&mut self, decider: &Decider, live_gateways: LiveGateways) {
        let senders = live_gateways
            .heartbeats
            .iter()
            .map(|heartbeat| heartbeat.sender);
        let others = senders.filter(|sender| sender.gateway != decider.gateway);
        decider.breaker.raise_gateway_count(others.count() + 1);
        if let Some(attempt) = &mut self.attempt {
            attempt.former_heartbeats = Some(live_gateways.heartbeats);
        }
    }

    /// Records the reply to a heartbeat. The store is shared again when no live gateway states that it has not reported, and
    /// as many have reported as shared the store before; for a gateway that has never shared it, all that are alive. Or the
    /// attempt has lasted for the longest window. This gateway must also be `is_ready`, with no unreportable units left in a
    /// window.
    ///
    /// # Errors
    ///
    /// [`MissingReports`] as long as the store is not shared.
    pub fn on_heartbeat(
        &mut self,
        decider: &Decider,
        live_gateways: &LiveGateways,
        is_ready: bool,
        now: Nanos,
    ) -> Result<(), MissingReports> {
        let Some(attempt) = &mut self.attempt else {
            return Err(MissingReports {
                reported_count: 0,
                gateway_count: decider.breaker.gateway_count(),
            });
        };
        (attempt.has_reported_new_units, attempt.late_reply_count) = (false, 0);
        let former_heartbeats = attempt.former_heartbeats.as_deref().unwrap_or_default();
        let heartbeats = &live_gateways.heartbeats;
        decider.breaker.raise_gateway_count(heartbeats.len());
        let new_reports = heartbeats.iter().filter(|heartbeat| {
            heartbeat.sender.has_reported && !former_heartbeats.contains(heartbeat)
        });
        let reported_count = new_reports.count() as u32;
        let unreported = heartbeats
            .iter()
            .filter(|heartbeat| !heartbeat.sender.has_reported);
        let listed_count = match decider.breaker.was_never_shared() {
            // Which of them shared the store before is not known.
            true => heartbeats.len() as u32,
            false => reported_count + unreported.count() as u32,
        };
        let gateway_count = attempt.sharing_gateway_count.max(listed_count);
        // By then the units of gateways that have stopped have left all windows.
        let has_lasted_longest_window =
            now.since(attempt.started_at) > decider.ledger.longest_window();
        let all_reported = reported_count >= gateway_count || has_lasted_longest_window;
        if !all_reported || now < attempt.unreported_until(decider) || !is_ready {
            return Err(MissingReports {
                reported_count,
                gateway_count,
            });
        }
        decider.breaker.set_gateway_count(heartbeats.len());
        decider.breaker.finish_learning(now);
        self.attempt = None;
        self.knows_all_units = true;
        Ok(())
    }

    /// Ends the attempt after a failed step. Give-backs that were not sent wait again. After the first heartbeat a single
    /// late reply is forgiven, because this machine may be the cause, and a long recovery sees some.
    pub fn on_failure(&mut self, decider: &Decider, error: &StoreError, now: Nanos) {
        if *error == StoreError::Empty {
            self.empty_since.get_or_insert(now);
        }
        if let Some(attempt) = &mut self.attempt
            && (attempt.has_sent_heartbeat, attempt.late_reply_count, error)
                == (true, 0, &StoreError::Late)
        {
            (attempt.has_reported_new_units, attempt.late_reply_count) = (false, 1);
            return;
        }
        decider.breaker.stop_learning(now);
        let unsent = self.attempt.take().map(|attempt| attempt.next_calls);
        for call in unsent.into_iter().flatten().rev() {
            if call.call.gives_back() {
                decider
                    .give_backs
                    .put_back(call, decider.give_backs.store_epoch());
            }
        }
    }
}

impl RecoveryAttempt {
    /// See [`RecoveryAttempt::unreported_until`]; with the units that were counted since, while the store was late.
    fn unreported_until(&self, decider: &Decider) -> Nanos {
        self.unreported_until
            .max(end_of_unreportable_use(decider, true))
    }

    /// The next call that reports units or gives them back; a heartbeat where there is none.
    fn next_report_or_heartbeat(&mut self, decider: &Decider, now: Nanos) -> RecoveryStep {
        loop {
            if let Some(pending_call) = self.next_calls.pop() {
                return RecoveryStep::Report(Box::new(pending_call));
            }
            if !self.counters_to_report.is_empty() {
                let batch = take_batch(&mut self.counters_to_report);
                self.next_calls = decider.report_all(&batch, now);
            } else if !self.has_reported_new_units {
                self.has_reported_new_units = true;
                let unreported = decider.ledger.counters_with_unreported_units();
                let batches = unreported.chunks(MAX_REPORTED_COUNTERS);
                self.next_calls = batches
                    .filter_map(|batch| decider.report_ungranted(batch, now))
                    .collect();
            } else {
                // Only now: ungranted units are reported, and units to give back must not count beside them.
                let give_backs = decider.give_backs.take_ready(|_| true);
                self.next_calls = give_backs.into_iter().rev().collect();
                if self.next_calls.is_empty() {
                    self.has_sent_heartbeat = true;
                    let has_reported = now >= self.unreported_until(decider);
                    return RecoveryStep::Heartbeat { has_reported };
                }
            }
        }
    }
}

/// When the units that this gateway cannot report have left all windows; see [`Ledger::last_unreportable_use`] for
/// `has_data`.
///
/// [`Ledger::last_unreportable_use`]: super::ledger::Ledger::last_unreportable_use
fn end_of_unreportable_use(decider: &Decider, has_data: bool) -> Nanos {
    let ledger = &decider.ledger;
    let last_use = ledger.last_unreportable_use(has_data);
    last_use.map_or(Nanos::ZERO, |last_use| {
        last_use.after(ledger.longest_window())
    })
}

/// Removes the last counters of a list, at most [`MAX_REPORTED_COUNTERS`], and returns them.
fn take_batch(names: &mut Vec<CounterName>) -> Vec<CounterName> {
    names.split_off(names.len().saturating_sub(MAX_REPORTED_COUNTERS))
}
