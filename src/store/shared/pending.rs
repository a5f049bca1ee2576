//! Decisions that are made, and decisions that wait for the store.

use smallvec::SmallVec;

use super::call::Call;
use super::item::SharedItems;
use super::ledger_entry::SpentUnits;
use crate::base::clock::Nanos;
use crate::limit::LimitReading;

/// Where the units that a limit took are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountedIn {
    /// In this gateway's memory only.
    #[default]
    Gateway,
    /// In the store, at this time of the store's clock, in microseconds.
    Store(u64),
}

/// A decision about all limits of one request.
#[derive(Clone, Debug, Default)]
pub struct SharedDecision {
    /// Whether all limits that can refuse admit.
    pub admitted: bool,
    /// One reading for each item.
    pub readings: SmallVec<[LimitReading; 4]>,
    /// Where each item is counted.
    pub counted: SmallVec<[CountedIn; 4]>,
    /// Calls to send afterwards; no request waits for them.
    pub followups: SmallVec<[PendingCall; 1]>,
    /// Whether the gateway decided alone although the store should have been asked.
    pub alone: bool,
}

/// A call, with what is needed to make a decision of its reply.
#[derive(Clone, Debug)]
pub struct PendingCall {
    /// The call.
    pub call: Call,
    /// When the call was made.
    pub sent: Nanos,
    /// How often the store had gone away by then: see [`Breaker::round`](super::breaker::Breaker::round).
    pub(super) round: u32,
    /// See [`GiveBacks::life`](super::give_backs::GiveBacks::life).
    pub(super) life: u32,
    pub(super) items: SharedItems,
    /// How each item is decided.
    pub(super) roles: SmallVec<[Role; 4]>,
    pub(super) purpose: Purpose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A request waits for the reply.
    Decide,
    /// A request waits while the store learns; the gateway's share has room for it already.
    Confirm,
    /// Units are asked for in advance, before those in hand run out.
    Refill,
    /// The store is told something, and no request waits for the reply.
    Report,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The gateway's memory decides.
    Local,
    /// Units in hand were used; `true` where few are left.
    InHand(SpentUnits, bool),
    /// The call's part with this index decides.
    InStore(usize),
}

/// The first step of a decision.
// Most decisions are made at once: a box for each would cost more than moving it.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum FirstStep {
    /// The decision is made.
    Decided(SharedDecision),
    /// The store must be asked.
    AskStore(Box<PendingCall>),
}

impl PendingCall {
    /// Whether the call asks for units in advance, and no request waits for them.
    pub(super) fn refills(&self) -> bool {
        self.purpose == Purpose::Refill
    }

    /// A call that tells the store something; no request waits for the reply.
    pub fn report(call: Call, sent: Nanos) -> PendingCall {
        PendingCall {
            call,
            sent,
            round: 0,
            life: 0,
            items: SmallVec::new(),
            roles: SmallVec::new(),
            purpose: Purpose::Report,
        }
    }
}
