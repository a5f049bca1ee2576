//! What a gateway asks a shared store, and what the store replies. Plain values: no store is named here.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use smallvec::SmallVec;

use crate::base::clock::Nanos;
use crate::limit::{Fingerprint, LimitSpec, LimitStanding};
use crate::store::Taking;

/// The name of a counter in the store: a limit and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterName {
    /// Hash of the limit's scope and shape: see [`SharingPlan::hash`](super::plan::SharingPlan::hash).
    pub limit: u64,
    /// The key that the limit counts by.
    pub key: Fingerprint,
}

/// One counter's part of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallPart {
    /// The counter.
    pub name: CounterName,
    /// The limit's arithmetic, as numbers.
    pub spec: LimitSpec,
    /// A shadow decides for itself and changes nothing for the other parts.
    pub shadow: bool,
    /// For a network around a key: the index of that key's part. The network is charged what that part is granted.
    pub around: Option<u8>,
    /// Units that the request needs; with fewer it is refused.
    pub cost: u32,
    /// Units that are taken if they are free; at least `cost`.
    pub want: u32,
    /// Beyond `cost` at most this fraction (1/`spread`) of the free units is taken, so that other gateways get some.
    pub spread: u32,
    /// All units that this gateway was ever granted; in a call marked [`ALONE`], all that it admitted without the
    /// store. Units that the store does not know of count from now on.
    pub total: u64,
    /// How many of these units the store has acknowledged. A store that has forgotten this gateway, because there
    /// were many, takes them for counted.
    pub acknowledged: u64,
    /// Upper bound of the units that may count this way: those that are still in the longest window.
    pub within: u32,
    /// Set: the part gives `cost` units back instead of asking for some.
    pub give_back: Option<GiveBack>,
}

/// Names the grant whose unused units are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveBack {
    /// When the units were granted: [`CounterReply::stamped`].
    pub stamped: u64,
    /// Grows by one with each give-back of a gateway, wraps around and skips 0. The store ignores a number that it
    /// has seen already.
    pub number: u32,
}

/// The next number of a give-back.
pub(super) fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    match NEXT.fetch_add(1, Relaxed) {
        0 => next_number(),
        number => number,
    }
}

impl CallPart {
    /// Asks for `cost` units of a counter, and none in advance.
    pub fn new(name: CounterName, spec: LimitSpec, cost: u32) -> CallPart {
        CallPart {
            name,
            spec,
            shadow: false,
            around: None,
            cost,
            want: cost,
            spread: 1,
            total: 0,
            acknowledged: 0,
            within: 0,
            give_back: None,
        }
    }

    /// The call that gives back `units` of what this part was granted at `stamped`.
    pub fn return_call(&self, gateway: u32, units: u32, stamped: u64) -> Call {
        let number = next_number();
        let part = CallPart {
            cost: units,
            want: units,
            spread: 1,
            total: 0,
            acknowledged: 0,
            within: 0,
            around: None,
            shadow: false,
            give_back: Some(GiveBack { stamped, number }),
            ..self.clone()
        };
        Call {
            gateway,
            taking: Taking::All,
            parts: smallvec::smallvec![part],
        }
    }
}

/// Set in [`Call::gateway`] where the call reports units that the gateway admitted without the store.
pub const ALONE: u32 = 1 << 31;

/// Everything that one request asks of the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The gateway's number, below [`ALONE`], or with that bit set.
    pub gateway: u32,
    /// Which parts take units.
    pub taking: Taking,
    /// One part for each counter.
    pub parts: SmallVec<[CallPart; 2]>,
}

impl Call {
    /// Whether the call gives units back instead of asking for some.
    pub(super) fn gives_back(&self) -> bool {
        self.parts
            .first()
            .is_some_and(|part| part.give_back.is_some())
    }
}

/// What one counter says. `remaining`, `reset` and `used` include this request, the rest does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterReply {
    /// Whether the counter admits the request.
    pub standing: LimitStanding,
    /// The index of the window that decides.
    pub window: u8,
    /// Units left in that window.
    pub remaining: u32,
    /// How long until the request would be admitted.
    pub wait: Nanos,
    /// How long until one more unit is free.
    pub reset: Nanos,
    /// How long the request must be delayed.
    pub delay: Nanos,
    /// Units that were taken.
    pub took: u32,
    /// All units that the store has granted to this gateway, as far as it knows.
    pub total: u64,
    /// When the units were taken, by the store's clock, in microseconds.
    pub stamped: u64,
    /// Units that all gateways use in each window.
    pub used: SmallVec<[u32; 2]>,
}

/// The store's reply to a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreReply {
    /// Whether all parts that can refuse admit.
    pub admitted: bool,
    /// The store's time in microseconds.
    pub now: u64,
    /// One for each part.
    pub counters: SmallVec<[CounterReply; 2]>,
}

/// Why a store gave no reply that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No reply came in time.
    #[error("no reply within the budget")]
    Late,
    /// There is no connection.
    #[error("not connected")]
    NotConnected,
    /// The store is empty, and no gateway has initialised it. One that knows its earlier secret may still come.
    #[error("the store is empty")]
    Empty,
    /// The store's mark is not the one that this gateway knows: the store was emptied or restarted, another server took
    /// over, or the gateway has not met it yet.
    #[error("the store has another mark: it was emptied, or another server took over")]
    Renewed,
    /// The store reports an error, or its reply is malformed.
    #[error("{0}")]
    Other(Cow<'static, str>),
}

/// What a gateway learns when it connects to a store for the first time or again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreIdentity {
    /// Names the store's data; a store that has lost its data gets another mark.
    pub mark: StoreMark,
    /// The secret with which all gateways hash keys.
    pub secret: [u8; 16],
    /// Whether another server than before is the master.
    pub moved: bool,
    /// The store's time in microseconds.
    pub now: u64,
}

/// See [`StoreIdentity::mark`].
pub type StoreMark = [u8; 16];

/// The gateways that use a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveGateways {
    /// The store's time in microseconds.
    pub now: u64,
    /// Number of each gateway that has lately said that it is alive and that the store knows all its units; and when
    /// it last did, by the store's clock in microseconds.
    pub gateways: Vec<(u32, u64)>,
}

/// What a store that replies again may have lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreLoss {
    /// Nothing: it only was out of reach.
    Nothing,
    /// Some units: a replica that lagged behind may have taken over, under the same mark.
    Some,
    /// Some units, and another server than before is known to be the master.
    Moved,
    /// Everything: the mark is another one.
    All,
}
