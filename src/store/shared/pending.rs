//! Decisions: those that are made, and those that wait for the store.

use smallvec::SmallVec;

use super::call::Call;
use super::ledger::SpentUnits;
use super::line::SharedItems;
use crate::base::clock::Nanos;
use crate::limit::Reading;

/// Where what a limit took is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountedIn {
    /// By this gateway alone.
    #[default]
    Gateway,
    /// By the store, at this time of its own.
    Store(u64),
}

/// What was decided.
#[derive(Clone, Debug, Default)]
pub struct SharedDecision {
    /// All limits that can refuse admit.
    pub admitted: bool,
    /// One for each line.
    pub readings: SmallVec<[Reading; 4]>,
    /// The same.
    pub counted: SmallVec<[CountedIn; 4]>,
    /// What is to be asked besides, without anybody's waiting for it.
    pub besides: SmallVec<[PendingCall; 1]>,
    /// Decided without the store that should have been asked.
    pub alone: bool,
}

/// What is asked of the store.
#[derive(Clone, Debug)]
pub struct PendingCall {
    /// The question.
    pub call: Call,
    /// When it was asked.
    pub sent: Nanos,
    /// How often the store had gone away by then.
    pub(super) round: u32,
    /// See [`GiveBacks::life`](super::give_backs::GiveBacks::life).
    pub(super) life: u32,
    pub(super) lines: SharedItems,
    /// What each line waits for.
    pub(super) roles: SmallVec<[Role; 4]>,
    pub(super) purpose: Purpose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A request waits.
    Decide,
    /// The same while the store learns: the share has room for it.
    Confirm,
    /// Units are asked for before they run out.
    Refill,
    /// Nobody minds the answer.
    Tell,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// This gateway counts alone.
    Local,
    /// Units in hand were used; whether few are left.
    InHand(SpentUnits, bool),
    /// The part of the call at this place.
    InStore(usize),
}

/// How a decision begins.
// Most are made at once: a box for each would cost more than moving it.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum FirstStep {
    /// It is made.
    Decided(SharedDecision),
    /// The store must be asked.
    AskStore(Box<PendingCall>),
}

impl PendingCall {
    /// Whether it asks for units in advance, and no request waits for them.
    pub(super) fn refills(&self) -> bool {
        self.purpose == Purpose::Refill
    }

    /// Tells the store something that nobody waits for.
    pub fn tell(call: Call, sent: Nanos) -> PendingCall {
        PendingCall {
            call,
            sent,
            round: 0,
            life: 0,
            lines: SmallVec::new(),
            roles: SmallVec::new(),
            purpose: Purpose::Tell,
        }
    }
}
