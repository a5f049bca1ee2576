//! What a gateway asks a shared store, and what that answers: plain values, whatever the store is.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use smallvec::SmallVec;

use crate::base::clock::Nanos;
use crate::limit::{Fingerprint, LimitStanding, Spec};
use crate::store::Taking;

/// The name of a counter in the store: its limit, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterName {
    /// Hash of what tells the limit's counters apart from those of others, its shape included.
    pub limit: u64,
    /// Whose.
    pub key: Fingerprint,
}

/// One counter's part of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallPart {
    /// Which counter.
    pub name: CounterName,
    /// Its arithmetic.
    pub spec: Spec,
    /// Decides for itself and changes nothing for the others.
    pub shadow: bool,
    /// The place of the part that this network is around; it is charged what that part is granted.
    pub around: Option<u8>,
    /// Units without which it does not admit.
    pub cost: u32,
    /// Units that are taken if they are there, at least `cost`.
    pub want: u32,
    /// Beyond `cost` no more than one of so many parts of what is free: for the other gateways.
    pub spread: u32,
    /// All units that this gateway was ever granted; or, under a number of its own, all that it admitted
    /// without the store. What the store does not know of them counts from now.
    pub total: u64,
    /// What the store has acknowledged of them. A store that has forgotten this gateway, for there were many, takes
    /// it for counted.
    pub told: u64,
    /// Most units that may count so: those that are still in the longest window.
    pub within: u32,
    /// Takes back `cost` units instead.
    pub back: Option<GiveBack>,
}

/// Units that were granted and not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveBack {
    /// When they were granted: [`CounterReply::stamped`].
    pub stamped: u64,
    /// Grows from one give-back of a gateway to the next, and begins anew after the last, without 0; one that was
    /// met already does nothing.
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
    /// Asks for `cost` units of a counter, and nothing else.
    pub fn new(name: CounterName, spec: Spec, cost: u32) -> CallPart {
        CallPart {
            name,
            spec,
            shadow: false,
            around: None,
            cost,
            want: cost,
            spread: 1,
            total: 0,
            told: 0,
            within: 0,
            back: None,
        }
    }

    /// Gives back `units` of what this part was granted.
    pub fn give_back(&self, gateway: u32, units: u32, stamped: u64) -> Call {
        let number = next_number();
        let part = CallPart {
            cost: units,
            want: units,
            spread: 1,
            total: 0,
            told: 0,
            within: 0,
            around: None,
            shadow: false,
            back: Some(GiveBack { stamped, number }),
            ..self.clone()
        };
        Call {
            gateway,
            taking: Taking::All,
            parts: smallvec::smallvec![part],
        }
    }
}

/// Beside a gateway's number: units that it admitted without the store.
pub const ALONE: u32 = 1 << 31;

/// Everything one request asks.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Who asks, below [`ALONE`] or with it.
    pub gateway: u32,
    /// Who takes.
    pub taking: Taking,
    /// The counters.
    pub parts: SmallVec<[CallPart; 2]>,
}

impl Call {
    /// Whether it gives units back instead of asking for some.
    pub(super) fn gives_back(&self) -> bool {
        self.parts.first().is_some_and(|part| part.back.is_some())
    }
}

/// What one counter said, before this request but for `remaining`, `reset` and `used`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterReply {
    /// Pass or not, and why not.
    pub standing: LimitStanding,
    /// The window that speaks.
    pub window: u8,
    /// Units left in it.
    pub remaining: u32,
    /// Until the request would pass.
    pub wait: Nanos,
    /// Until one more unit is free.
    pub reset: Nanos,
    /// How long the request must be held back.
    pub delay: Nanos,
    /// Units that were taken.
    pub took: u32,
    /// All units that the store knows to have been granted to this gateway.
    pub total: u64,
    /// The store's time of what was taken, in microseconds.
    pub stamped: u64,
    /// Units in each window, of all gateways.
    pub used: SmallVec<[u32; 2]>,
}

/// What the store said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreReply {
    /// All parts that can refuse admit.
    pub admitted: bool,
    /// The store's time in microseconds.
    pub now: u64,
    /// One for each part.
    pub answers: SmallVec<[CounterReply; 2]>,
}

/// Why a store gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No answer in time.
    #[error("no answer within the budget")]
    Late,
    /// There is no connection.
    #[error("not connected")]
    NotConnected,
    /// Nobody has begun in it; who knows whom it counted before may still come.
    #[error("the store is empty")]
    Empty,
    /// The store has not the data that this gateway knows of: it was started anew, or emptied.
    #[error("the store has begun anew")]
    Renewed,
    /// The store refuses, or what it says makes no sense.
    #[error("{0}")]
    Other(Cow<'static, str>),
}

/// What a gateway learns when it meets a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreIdentity {
    /// Names the store's life: another one when its data is gone.
    pub mark: StoreMark,
    /// Under which all gateways hash whom they count.
    pub secret: [u8; 16],
    /// Another server than before leads.
    pub moved: bool,
    /// The store's time in microseconds.
    pub now: u64,
}

/// See [`StoreIdentity::mark`].
pub type StoreMark = [u8; 16];

/// Who uses a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveGateways {
    /// The store's time in microseconds.
    pub now: u64,
    /// Gateways that have said lately that they are there and that the store knows all they have counted:
    /// number, and when they last did.
    pub gateways: Vec<(u32, u64)>,
}

/// What a store that answers again may have lost of what it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreLoss {
    /// It was silent.
    Nothing,
    /// A replica has taken over that was behind, under the same mark.
    Some,
    /// The same, and it is known that another server leads than before.
    Moved,
    /// It is another life of it.
    All,
}
