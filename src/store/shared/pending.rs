//! The values that a decision passes through: its first step, the call that it waits for, and the decision itself. They do
//! nothing by themselves.

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
    /// Where the units of each item are counted.
    pub counted: SmallVec<[CountedIn; 4]>,
    /// Calls to send afterwards; no request waits for them.
    pub followups: SmallVec<[PendingCall; 1]>,
    /// Whether the gateway decided alone although a limit is shared.
    pub alone: bool,
}

/// A call, and the data by which its reply becomes a decision.
#[derive(Clone, Debug)]
pub struct PendingCall {
    /// The call itself.
    pub call: Call,
    /// When the call was made.
    pub sent: Nanos,
    /// The [`Breaker::outage_count`](super::breaker::Breaker::outage_count) at that time.
    pub(super) outage_count: u32,
    /// The [`GiveBacks::store_life`](super::give_backs::GiveBacks::store_life) at that time.
    pub(super) store_life: u32,
    pub(super) items: SharedItems,
    /// What decides about each item.
    pub(super) roles: SmallVec<[Role; 4]>,
    pub(super) purpose: Purpose,
}

/// Why a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A request waits for the reply.
    Decide,
    /// A request waits for the reply of a store that is learning; the gateway's share has room for it already.
    Confirm,
    /// The call asks for units in advance, before those in hand run out.
    Refill,
    /// The call reports units or gives them back, and no request waits for the reply.
    Report,
}

/// What decides about one item of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The gateway's memory decides.
    Local,
    /// Units in hand were used.
    InHand {
        spent: SpentUnits,
        /// Whether few units are left.
        runs_low: bool,
    },
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
    /// The decision waits for the reply to this call.
    AskStore(Box<PendingCall>),
}

impl PendingCall {
    /// Whether the call asks for units in advance, and no request waits for them.
    pub(super) fn is_refill(&self) -> bool {
        self.purpose == Purpose::Refill
    }

    /// A call that reports units or gives them back; no request waits for the reply.
    pub fn report(call: Call, sent: Nanos) -> PendingCall {
        PendingCall {
            call,
            sent,
            outage_count: 0,
            store_life: 0,
            items: SmallVec::new(),
            roles: SmallVec::new(),
            purpose: Purpose::Report,
        }
    }
}
