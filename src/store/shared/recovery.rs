//! The way back to a store that was away, step by step: meet it, report what it may not know, wait until all gateways
//! have reported. Never waits and does no I/O; that is the keeper's part.

use smallvec::SmallVec;

use super::call::{CounterName, LiveGateways, StoreError, StoreLoss};
use super::decider::Decider;
use super::pending::PendingCall;
use crate::base::clock::Nanos;

/// Counters that are reported in one call.
pub(super) const BATCH: usize = 64;
/// How long a gateway that starts leaves an empty store to gateways that know its former secret.
const EMPTY_STORE_PAUSE: Nanos = Nanos::from_millis(500);
/// How long such a gateway waits for the reports of others.
const NEWCOMER_PAUSE: Nanos = Nanos::from_secs(1);

/// The next step.
#[derive(Debug)]
pub enum RecoveryStep {
    /// Meet the store, then [`Recovery::on_met`].
    Meet,
    /// List the gateways, then [`Recovery::on_listed`].
    Look,
    /// Send this call, then [`Decider::record_copied`].
    Compare(Box<PendingCall>),
    /// Send this call, then [`Decider::record_report`].
    Report(Box<PendingCall>),
    /// Send a beat, which says that all is reported if `true`; then [`Recovery::on_beat`]. Once in a while, because
    /// other gateways take their time.
    Beat(bool),
}

/// How far a recovery is.
#[derive(Debug, Default)]
pub struct Recovery {
    attempt: Option<RecoveryAttempt>,
    /// Whether the store, under its current mark, knows all units that it did not grant itself.
    is_whole: bool,
    /// Whether another server is the master, and its counts were not yet compared with the former one's.
    moved: bool,
    /// When a gateway without a secret first found the store empty.
    empty: Option<Nanos>,
}

#[derive(Debug)]
struct RecoveryAttempt {
    /// When the store was met.
    since: Nanos,
    /// Gateways that were listed by then, and when each had reported. Only later reports count, whatever the store's
    /// clock did.
    listed_before: Option<Vec<(u32, u64)>>,
    /// Until then, units that this gateway cannot report, or that others have not reported yet, may be in a window.
    untold: Nanos,
    /// The number of gateways that must report.
    gateways: u32,
    /// After a change of the master: counters that are still to be compared.
    to_compare: Option<Vec<CounterName>>,
    /// Counters that are still to be reported.
    names: Vec<CounterName>,
    /// Calls that are sent next.
    reports: SmallVec<[PendingCall; 2]>,
    /// Whether unreported units were reported since the last beat.
    reported: bool,
    /// Whether all was reported and a beat was sent.
    beats: bool,
    /// Late replies in a row since then.
    late: u32,
}

impl Recovery {
    /// Whether the store has been met.
    pub fn is_started(&self) -> bool {
        self.attempt.is_some()
    }

    /// The next step.
    pub fn next_step(&mut self, decider: &Decider, now: Nanos) -> RecoveryStep {
        let Some(attempt) = &mut self.attempt else {
            return RecoveryStep::Meet;
        };
        if let Some(names) = &mut attempt.to_compare {
            while !names.is_empty() {
                let rest = names.len().saturating_sub(BATCH);
                if let Some(pending_call) = decider.compare(&names.split_off(rest), now) {
                    return RecoveryStep::Compare(Box::new(pending_call));
                }
            }
            (attempt.to_compare, self.moved) = (None, false);
            decider.return_copied();
            decider.breaker.start_learning(now);
        }
        if attempt.listed_before.is_none() {
            return RecoveryStep::Look;
        }
        loop {
            if let Some(pending_call) = attempt.reports.pop() {
                return RecoveryStep::Report(Box::new(pending_call));
            }
            if attempt.names.is_empty() && !attempt.reported {
                attempt.reported = true;
                let untold = decider.ledger.unreported();
                let each = untold.chunks(BATCH);
                attempt.reports = each
                    .filter_map(|batch| decider.report_alone(batch, now))
                    .collect();
            } else if attempt.names.is_empty() {
                // Only now: what was admitted without the store is reported, and must not count twice.
                attempt.reports = decider
                    .give_backs
                    .take(|_| true)
                    .into_iter()
                    .rev()
                    .collect();
                if !attempt.reports.is_empty() {
                    continue;
                }
                attempt.beats = true;
                return RecoveryStep::Beat(now >= attempt.untold);
            } else {
                let rest = attempt.names.len().saturating_sub(BATCH);
                attempt.reports = decider.report_all(&attempt.names.split_off(rest), now);
            }
        }
    }

    /// Whether a gateway without a secret may initialise an empty store: gateways that know its secret come first.
    pub fn may_initialize(&self, now: Nanos) -> bool {
        self.empty
            .is_some_and(|empty| now.since(empty) >= EMPTY_STORE_PAUSE)
    }

    /// The store was met.
    pub fn on_met(&mut self, decider: &Decider, lost: StoreLoss, now: Nanos) {
        self.empty = None;
        let same = lost != StoreLoss::All;
        if !same {
            decider.give_backs.renewed();
            self.is_whole = false;
        }
        self.moved = same && (self.moved || lost == StoreLoss::Moved);
        let mut untold = decider
            .ledger
            .untracked(same)
            .map_or(Nanos::ZERO, |last| last.after(decider.ledger.longest()));
        if decider.breaker.is_new() {
            untold = untold.max(now.after(NEWCOMER_PAUSE));
        }
        if !self.moved {
            decider.breaker.start_learning(now);
        }
        self.attempt = Some(RecoveryAttempt {
            since: now,
            listed_before: None,
            untold,
            gateways: decider.breaker.gateways(),
            // Before the store grants anything: grants get the same numbers as those that it lacks.
            to_compare: self.moved.then(|| decider.ledger.names_where(|_| true)),
            // In a store without totals, its own grants would count twice.
            names: match lost {
                StoreLoss::Nothing if self.is_whole => Vec::new(),
                _ => decider.ledger.counted(),
            },
            reports: SmallVec::new(),
            reported: false,
            beats: false,
            late: 0,
        });
    }

    /// These gateways are listed. A gateway that has never shared the store takes their number from here.
    pub fn on_listed(&mut self, decider: &Decider, beats: LiveGateways) {
        if decider.breaker.is_new() {
            decider.breaker.set_gateways(beats.gateways.len() + 1);
        }
        if let Some(attempt) = &mut self.attempt {
            attempt.listed_before = Some(beats.gateways);
        }
    }

    /// The store has replied to a beat. It is shared again when all gateways have reported and this one is `ready`.
    ///
    /// # Errors
    ///
    /// How many gateways have reported, and how many there are.
    pub fn on_beat(
        &mut self,
        decider: &Decider,
        beats: &LiveGateways,
        ready: bool,
        now: Nanos,
    ) -> Result<(), (u32, u32)> {
        let Some(attempt) = &mut self.attempt else {
            return Err((0, decider.breaker.gateways()));
        };
        (attempt.reported, attempt.late) = (false, 0);
        let listed_before = attempt.listed_before.as_deref().unwrap_or_default();
        let told = beats
            .gateways
            .iter()
            .filter(|one| !listed_before.contains(one));
        let told = told.count() as u32;
        // By then the units of gateways that are gone have left all windows.
        let over = now.since(attempt.since) > decider.ledger.longest();
        if (told < attempt.gateways && !over) || now < attempt.untold || !ready {
            return Err((told, attempt.gateways));
        }
        decider.breaker.set_gateways(beats.gateways.len());
        decider.breaker.finish_learning(now);
        self.attempt = None;
        self.is_whole = true;
        Ok(())
    }

    /// A step failed. After the first beat a single late reply is forgiven: this machine may be the cause, and a long
    /// recovery sees some.
    pub fn on_failure(&mut self, decider: &Decider, failure: &StoreError, now: Nanos) {
        if *failure == StoreError::Empty {
            self.empty.get_or_insert(now);
        }
        if let Some(attempt) = &mut self.attempt
            && (attempt.beats, attempt.late, failure) == (true, 0, &StoreError::Late)
        {
            (attempt.reported, attempt.late) = (false, 1);
            return;
        }
        decider.breaker.stop_learning(now);
        let left = self.attempt.take().map(|attempt| attempt.reports);
        for back in left.into_iter().flatten().rev() {
            if back.call.gives_back() {
                decider.give_backs.push(back, decider.give_backs.life());
            }
        }
    }
}
