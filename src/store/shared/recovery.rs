//! The way back to a store that was away, step by step: meet it, tell it what it may not know, wait until all
//! gateways have. Never waits and never talks to a store; that is the keeper's part.

use smallvec::SmallVec;

use super::call::{Beats, Failure, Lost, Name};
use super::decider::Core;
use super::pending::Asking;
use crate::base::clock::Nanos;

/// Counters that are told of in one call.
pub(super) const BATCH: usize = 64;
/// How long a gateway that starts leaves an empty store to those that know whom it counted before.
const YIELD: Nanos = Nanos::from_millis(500);
/// How long it waits for what they tell.
const NEWCOMER: Nanos = Nanos::from_secs(1);

/// What is to be done next.
#[derive(Debug)]
pub enum Step {
    /// Meet the store, then [`Return::met`].
    Meet,
    /// See who is there, then [`Return::saw`].
    Look,
    /// Ask this, then [`Core::compared`].
    Compare(Box<Asking>),
    /// Ask this, then [`Core::told`].
    Tell(Box<Asking>),
    /// See who is there, and if so say that all is told; then [`Return::beaten`]. Once in a while: others take
    /// their time.
    Beat(bool),
}

/// How far a return is.
#[derive(Debug, Default)]
pub struct Return {
    begun: Option<Begun>,
    /// This life of the store has been told all that it did not grant itself.
    whole: bool,
    /// Another server leads, and it was not yet compared with the former one what it has.
    moved: bool,
    /// When a gateway that knows nothing of a store first found it empty.
    empty: Option<Nanos>,
}

#[derive(Debug)]
struct Begun {
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
    compares: Option<Vec<Name>>,
    /// Counters that it has not been told of.
    names: Vec<Name>,
    /// What it is to be told next.
    tells: SmallVec<[Asking; 2]>,
    /// It has been told since the last beat.
    swept: bool,
    /// It was told all and has been asked who else has; answers since that were late in a row.
    beats: bool,
    late: u32,
}

impl Return {
    /// Whether the store has been met.
    pub fn begun(&self) -> bool {
        self.begun.is_some()
    }

    /// What is to be done.
    pub fn next(&mut self, core: &Core, now: Nanos) -> Step {
        let Some(begun) = &mut self.begun else {
            return Step::Meet;
        };
        if let Some(names) = &mut begun.compares {
            while !names.is_empty() {
                let rest = names.len().saturating_sub(BATCH);
                if let Some(asking) = core.compare(&names.split_off(rest), now) {
                    return Step::Compare(Box::new(asking));
                }
            }
            (begun.compares, self.moved) = (None, false);
            core.moved();
            core.ladder.met(now);
        }
        if begun.earlier.is_none() {
            return Step::Look;
        }
        loop {
            if let Some(asking) = begun.tells.pop() {
                return Step::Tell(Box::new(asking));
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
                return Step::Beat(now >= begun.untold);
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
    pub fn met(&mut self, core: &Core, lost: Lost, now: Nanos) {
        self.empty = None;
        let same = lost != Lost::All;
        if !same {
            core.backs.renewed();
            self.whole = false;
        }
        self.moved = same && (self.moved || lost == Lost::Moved);
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
        self.begun = Some(Begun {
            since: now,
            earlier: None,
            untold,
            gateways: core.ladder.gateways(),
            // Before anything is asked of it: what it grants is numbered like what it lacks.
            compares: self.moved.then(|| core.ledger.names_where(|_| true)),
            // What it granted itself would count twice where it keeps no totals.
            names: match lost {
                Lost::Nothing if self.whole => Vec::new(),
                _ => core.ledger.counted(),
            },
            tells: SmallVec::new(),
            swept: false,
            beats: false,
            late: 0,
        });
    }

    /// These are listed already: to a gateway that has never shared the store they are all that it knows of others.
    pub fn saw(&mut self, core: &Core, beats: Beats) {
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
        core: &Core,
        beats: &Beats,
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
    pub fn failed(&mut self, core: &Core, failure: &Failure, now: Nanos) {
        if *failure == Failure::Empty {
            self.empty.get_or_insert(now);
        }
        if let Some(begun) = &mut self.begun
            && (begun.beats, begun.late, failure) == (true, 0, &Failure::Late)
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
