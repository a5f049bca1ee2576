//! [`PendingCall`]: a call to the store whose reply is awaited; with it the first step of a decision, and the decision
//! itself. These values do nothing by themselves.

use smallvec::SmallVec;

use super::call::Call;
use super::ledger_entry::SpentUnits;
use super::shared_item::SharedItems;
use crate::base::clock::Nanos;
use crate::limit::LimitFinding;

/// Where the units that a limit took are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountedIn {
    /// In this gateway's memory, without a reply of the store to this request.
    #[default]
    Gateway,
    /// In the store, at this time of the store's clock, in microseconds.
    Store(u64),
}

/// A decision about all limits of one request.
#[derive(Clone, Debug, Default)]
pub struct SharedDecision {
    /// Whether all limits that can refuse admit.
    pub is_admitted: bool,
    /// One finding for each item.
    pub findings: SmallVec<[LimitFinding; 4]>,
    /// Where the units of each item are counted.
    pub counted_in: SmallVec<[CountedIn; 4]>,
    /// Calls to send after the decision; no request waits for them.
    pub followups: SmallVec<[PendingCall; 1]>,
    /// Whether the gateway decided alone although a limit is shared.
    pub is_alone: bool,
}

/// A call to the store, and the data by which its reply becomes a decision.
#[derive(Clone, Debug)]
pub struct PendingCall {
    /// The call, as the store gets it.
    pub call: Call,
    /// When the call was made.
    pub sent_at: Nanos,
    /// The [`Breaker::outage_count`](super::breaker::Breaker::outage_count) at `sent_at`.
    pub(super) outage_count: u32,
    /// The [`GiveBacks::store_epoch`](super::give_backs::GiveBacks::store_epoch) at `sent_at`.
    pub(super) store_epoch: u32,
    /// The items of the request that waits; empty where none waits.
    pub(super) items: SharedItems,
    /// What decides about each of `items`.
    pub(super) roles: SmallVec<[ItemRole; 4]>,
    /// Why the call is made.
    pub(super) purpose: CallPurpose,
}

/// Why a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallPurpose {
    /// A request waits for the reply.
    Decide,
    /// A request waits for the reply of a store that is learning; the gateway's share has room for it already.
    Confirm,
    /// The call asks for units in advance, before the units in hand run out.
    Refill,
    /// The call reports units or gives them back, and no request waits for the reply.
    Report,
}

/// What decides about one item of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ItemRole {
    /// The gateway's memory decides.
    Local,
    /// Units in hand were used.
    InHand {
        spent: SpentUnits,
        /// Whether few units are left in hand.
        runs_low: bool,
    },
    /// The call's part with this index decides.
    InStore(usize),
}

/// What the first step of a decision leads to.
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
    /// Whether the call asks for units in advance while no request waits for its reply.
    pub(super) fn is_refill(&self) -> bool {
        self.purpose == CallPurpose::Refill
    }

    /// The call as its sender must send it, see [`Call::numbered`]. It has to be kept so too: a give-back that is sent again
    /// is known by its number.
    pub fn numbered(self) -> PendingCall {
        PendingCall {
            call: self.call.numbered(),
            ..self
        }
    }

    /// A call that reports units or gives them back; no request waits for the reply.
    pub fn report(call: Call, sent_at: Nanos) -> PendingCall {
        PendingCall {
            call,
            sent_at,
            // Read only for calls to which units are granted; of a give-back the sender sets the epoch.
            outage_count: 0,
            store_epoch: 0,
            items: SmallVec::new(),
            roles: SmallVec::new(),
            purpose: CallPurpose::Report,
        }
    }
}
