//! The way back to a store that was away, step by step: meet it, tell it what it may not know, wait until all
//! gateways have. Never waits and never talks to a store; that is the keeper's part.

use smallvec::SmallVec;

use super::call::{CounterName, LiveGateways, StoreError, StoreLoss};
use super::decider::Decider;
use super::pending::PendingCall;
use crate::base::clock::Nanos;

/// Counters that are told of in one call.
pub(super) const BATCH: usize = 64;
/// How long a gateway that starts leaves an empty store to those that know whom it counted before.
const YIELD: Nanos = Nanos::from_millis(500);
/// How long it waits for what they tell.
const NEWCOMER: Nanos = Nanos::from_secs(1);

/// What is to be done next.
#[derive(Debug)]
pub enum RecoveryStep {
    /// Meet the store, then [`Recovery::met`].
    Meet,
    /// See who is there, then [`Recovery::saw`].
    Look,
    /// Ask this, then [`Decider::compared`].
    Compare(Box<PendingCall>),
    /// Ask this, then [`Decider::told`].
    Tell(Box<PendingCall>),
    /// See who is there, and if so say that all is told; then [`Recovery::beaten`]. Once in a while: others take
    /// their time.
    Beat(bool),
}

/// How far a return is.
#[derive(Debug, Default)]
pub struct Recovery {
    begun: Option<RecoveryAttempt>,
    /// This life of the store has been told all that it did not grant itself.
    whole: bool,
    /// Another server leads, and it was not yet compared with the former one what it has.
    moved: bool,
    /// When a gateway that knows nothing of a store first found it empty.
    empty: Option<Nanos>,
}

#[derive(Debug)]
struct RecoveryAttempt {
    /// When the store was met.
    since: Nanos,
    /// Who had said by then that it has told all, and when. Only what is said after that counts, whatever the
    /// store's clock did.
    earlier: Option<Vec<(u32, u64)>>,
    /// Until then something that this gateway cannot tell of, or that others have not told yet, may be in a
    /// window.
    untold: Nanos,
    /// Gateways that must have told it what they know.
    gateways: u32,
    /// Counters of which it is not known how much of the former master's it has, if it is another.
    compares: Option<Vec<CounterName>>,
    /// Counters that it has not been told of.
    names: Vec<CounterName>,
    /// What it is to be told next.
    tells: SmallVec<[PendingCall; 2]>,
    /// It has been told since the last beat.
    swept: bool,
    /// It was told all and has been asked who else has; answers since that were late in a row.
    beats: bool,
    late: u32,
}

impl Recovery {
    /// Whether the store has been met.
    pub fn begun(&self) -> bool {
        self.begun.is_some()
    }

    /// What is to be done.
    pub fn next(&mut self, core: &Decider, now: Nanos) -> RecoveryStep {
        let Some(begun) = &mut self.begun else {
            return RecoveryStep::Meet;
        };
        if let Some(names) = &mut begun.compares {
            while !names.is_empty() {
                let rest = names.len().saturating_sub(BATCH);
                if let Some(asking) = core.compare(&names.split_off(rest), now) {
                    return RecoveryStep::Compare(Box::new(asking));
                }
            }
            (begun.compares, self.moved) = (None, false);
            core.moved();
            core.ladder.met(now);
        }
        if begun.earlier.is_none() {
            return RecoveryStep::Look;
        }
        loop {
            if let Some(asking) = begun.tells.pop() {
                return RecoveryStep::Tell(Box::new(asking));
            }
            if begun.names.is_empty() && !begun.swept {
                begun.swept = true;
                let untold = core.ledger.untold();
                let each = untold.chunks(BATCH);
                begun.tells = each
                    .filter_map(|batch| core.tell_alone(batch, now))
                    .collect();
            } else if begun.names.is_empty() {
                // What was admitted without the store has been told, and may not count twice.
                begun.tells = core.backs.take(|_| true).into_iter().rev().collect();
                if !begun.tells.is_empty() {
                    continue;
                }
                begun.beats = true;
                return RecoveryStep::Beat(now >= begun.untold);
            } else {
                let rest = begun.names.len().saturating_sub(BATCH);
                begun.tells = core.tell_all(&begun.names.split_off(rest), now);
            }
        }
    }

    /// Whether a gateway that knows nothing of a store begins in it if it is empty: others that know it come first.
    pub fn begins(&self, now: Nanos) -> bool {
        self.empty.is_some_and(|empty| now.since(empty) >= YIELD)
    }

    /// The store answers.
    pub fn met(&mut self, core: &Decider, lost: StoreLoss, now: Nanos) {
        self.empty = None;
        let same = lost != StoreLoss::All;
        if !same {
            core.backs.renewed();
            self.whole = false;
        }
        self.moved = same && (self.moved || lost == StoreLoss::Moved);
        let mut untold = core
            .ledger
            .untracked(same)
            .map_or(Nanos::ZERO, |last| last.after(core.ledger.longest()));
        if core.ladder.is_new() {
            untold = untold.max(now.after(NEWCOMER));
        }
        if !self.moved {
            core.ladder.met(now);
        }
        self.begun = Some(RecoveryAttempt {
            since: now,
            earlier: None,
            untold,
            gateways: core.ladder.gateways(),
            // Before anything is asked of it: what it grants is numbered like what it lacks.
            compares: self.moved.then(|| core.ledger.names_where(|_| true)),
            // What it granted itself would count twice where it keeps no totals.
            names: match lost {
                StoreLoss::Nothing if self.whole => Vec::new(),
                _ => core.ledger.counted(),
            },
            tells: SmallVec::new(),
            swept: false,
            beats: false,
            late: 0,
        });
    }

    /// These are listed already: to a gateway that has never shared the store they are all that it knows of others.
    pub fn saw(&mut self, core: &Decider, beats: LiveGateways) {
        if core.ladder.is_new() {
            core.ladder.count(beats.gateways.len() + 1);
        }
        if let Some(begun) = &mut self.begun {
            begun.earlier = Some(beats.gateways);
        }
    }

    /// It knows that all is told, and who else has. The store is shared again when nobody is missing and this
    /// gateway is `ready`; else how many have told, and of how many.
    pub fn beaten(
        &mut self,
        core: &Decider,
        beats: &LiveGateways,
        ready: bool,
        now: Nanos,
    ) -> Result<(), (u32, u32)> {
        let Some(begun) = &mut self.begun else {
            return Err((0, core.ladder.gateways()));
        };
        (begun.swept, begun.late) = (false, 0);
        let earlier = begun.earlier.as_deref().unwrap_or_default();
        let told = beats.gateways.iter().filter(|one| !earlier.contains(one));
        let told = told.count() as u32;
        // What a gateway that is gone has counted has left all windows.
        let over = now.since(begun.since) > core.ledger.longest();
        if (told < begun.gateways && !over) || now < begun.untold || !ready {
            return Err((told, begun.gateways));
        }
        core.ladder.count(beats.gateways.len());
        core.ladder.learnt(now);
        self.begun = None;
        self.whole = true;
        Ok(())
    }

    /// A step failed. Once all was told, one late answer may be this machine's fault, and a return that waits for
    /// long meets some.
    pub fn failed(&mut self, core: &Decider, failure: &StoreError, now: Nanos) {
        if *failure == StoreError::Empty {
            self.empty.get_or_insert(now);
        }
        if let Some(begun) = &mut self.begun
            && (begun.beats, begun.late, failure) == (true, 0, &StoreError::Late)
        {
            (begun.swept, begun.late) = (false, 1);
            return;
        }
        core.ladder.lost(now);
        let left = self.begun.take().map(|begun| begun.tells);
        for back in left.into_iter().flatten().rev() {
            if back.call.gives_back() {
                core.backs.push(back, core.backs.life());
            }
        }
    }
}
