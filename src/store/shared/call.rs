//! Calls to a shared store, its replies, and what identifies it: plain values that are the same for every kind of store.
//! They do no I/O.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use smallvec::SmallVec;

use crate::base::clock::Nanos;
use crate::limit::{Fingerprint, LimitSpec, LimitStanding};
use crate::store::Taking;

/// The name of a counter in the store: a limit and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterName {
    /// The limit, as its [`SharingPlan::hash`](super::sharing_plan::SharingPlan::hash).
    pub limit: u64,
    /// The key that the limit counts by.
    pub key: Fingerprint,
}

/// One counter's part of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallPart {
    /// The counter that the part is about.
    pub name: CounterName,
    /// The limit's arithmetic, as numbers.
    pub spec: LimitSpec,
    /// A shadow decides for itself and changes nothing for the other parts.
    pub is_shadow: bool,
    /// For a network around a key: the index of the key's part. The network is charged what the key's part is granted.
    pub key_part_index: Option<u8>,
    /// Units that the request needs; with fewer it is refused.
    pub cost: u32,
    /// Units that are granted if they are free; at least `cost`.
    pub wanted_units: u32,
    /// Beyond `cost`, the free units are divided by this number, at least 1, before they are granted. So other gateways get
    /// some.
    pub free_units_divisor: u32,
    /// This gateway's running total: all units that it was ever granted; in a call with [`UNGRANTED_UNITS_BIT`], all its
    /// ungranted units. Units that the store does not know yet count from now on.
    pub gateway_total: u64,
    /// How many units of `gateway_total` the store has acknowledged. A store that has dropped this gateway from its list,
    /// because there were many, assumes that it has counted them.
    pub acknowledged_total: u64,
    /// Units of `gateway_total` that are still in some window. The store counts at most this many units that it did
    /// not know yet.
    pub units_in_window: u32,
    /// If set, the part gives back `cost` units of this grant, instead of asking for units.
    pub give_back: Option<GiveBack>,
}

/// Names the grant whose unused units are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveBack {
    /// When the units were granted: [`CounterReply::granted_at_micros`].
    pub granted_at_micros: u64,
    /// The give-back's number; 0 before it is sent for the first time: see [`Call::numbered`]. It grows with each give-back
    /// of a gateway to the counter, wraps around and skips 0. Redis ignores a number that came before, and one that is more
    /// than 52 behind the latest.
    pub number: u32,
}

/// The number of counters of give-backs in this process. Those of other keys seldom share one, so the numbers of a key
/// have few gaps, however many give-backs there are.
const NUMBER_SLOTS: usize = 4_096;

/// The next [`GiveBack::number`] of this counter. Nothing else depends on the numbers, so relaxed ordering suffices.
fn next_give_back_number(name: &CounterName) -> u32 {
    static NEXT: [AtomicU32; NUMBER_SLOTS] = [const { AtomicU32::new(1) }; NUMBER_SLOTS];
    // Both are hashes already.
    let slot = (name.limit ^ name.key.0 as u64) as usize % NUMBER_SLOTS;
    match NEXT[slot].fetch_add(1, Relaxed) {
        0 => next_give_back_number(name),
        number => number,
    }
}

impl CallPart {
    /// A part that asks for `cost` units of a counter, and none in advance.
    pub fn new(name: CounterName, spec: LimitSpec, cost: u32) -> CallPart {
        CallPart {
            name,
            spec,
            is_shadow: false,
            key_part_index: None,
            cost,
            wanted_units: cost,
            free_units_divisor: 1,
            gateway_total: 0,
            acknowledged_total: 0,
            units_in_window: 0,
            give_back: None,
        }
    }

    /// Whether the part reports units, and neither asks for units nor gives some back.
    pub(in crate::store) fn is_report(&self) -> bool {
        self.cost == 0
            && self.wanted_units == 0
            && self.gateway_total > 0
            && self.units_in_window > 0
            && self.give_back.is_none()
    }

    /// The call that gives back `units` of what this part was granted at `granted_at_micros`. It has no number yet.
    pub fn give_back_call(&self, gateway: u32, units: u32, granted_at_micros: u64) -> Call {
        let part = CallPart {
            cost: units,
            wanted_units: units,
            free_units_divisor: 1,
            gateway_total: 0,
            acknowledged_total: 0,
            units_in_window: 0,
            key_part_index: None,
            is_shadow: false,
            give_back: Some(GiveBack {
                granted_at_micros,
                number: 0,
            }),
            ..self.clone()
        };
        Call {
            gateway,
            taking: Taking::All,
            parts: smallvec::smallvec![part],
        }
    }
}

/// The bit of [`Call::gateway`] that is set where the call reports units which the gateway counted without a grant of the
/// store. The store keeps their running total apart from that of the granted units.
pub const UNGRANTED_UNITS_BIT: u32 = 1 << 31;

/// One call to the store: usually all shared limits of one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The gateway's number, below [`UNGRANTED_UNITS_BIT`], or with that bit set.
    pub gateway: u32,
    /// Which parts take units.
    pub taking: Taking,
    /// One part for each counter. Networks around a key have parts of their own, behind the key's part.
    pub parts: SmallVec<[CallPart; 2]>,
}

impl Call {
    /// The call with the next number for each give-back that has none. For the sender: the store expects give-backs roughly
    /// in the order of their numbers, and one that is sent again must have its first number.
    pub fn numbered(mut self) -> Call {
        for CallPart {
            name, give_back, ..
        } in &mut self.parts
        {
            if let Some(give_back) = give_back.as_mut().filter(|give_back| give_back.number == 0) {
                give_back.number = next_give_back_number(name);
            }
        }
        self
    }

    /// Whether the call gives units back instead of asking for some.
    pub(super) fn gives_back(&self) -> bool {
        self.parts
            .first()
            .is_some_and(|part| part.give_back.is_some())
    }
}

/// The reply of one counter. `remaining`, `reset_after` and `used_units` include this request. `standing`, `window_index`
/// and `retry_after` are those before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterReply {
    /// Whether the counter admits the request.
    pub standing: LimitStanding,
    /// The index in the limit of the window that decides.
    pub window_index: u8,
    /// Units left in the deciding window.
    pub remaining: u32,
    /// How long until a refused request would be admitted; zero if it is admitted.
    pub retry_after: Nanos,
    /// How long until one more unit is free than now; zero if none is used.
    pub reset_after: Nanos,
    /// How long a leaky bucket holds back the admitted request; zero for other limits.
    pub delay: Nanos,
    /// Units that were taken from the counter for this gateway.
    pub granted_units: u32,
    /// The gateway's running total as the store knows it now: see [`CallPart::gateway_total`].
    pub gateway_total: u64,
    /// When the units were taken, by the store's clock, in microseconds since the Unix epoch.
    pub granted_at_micros: u64,
    /// Units that all gateways use in each window.
    pub used_units: SmallVec<[u32; 2]>,
}

/// The store's reply to a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreReply {
    /// Whether all parts that can refuse admit; `false` for a call of [`Taking::Shadows`].
    pub is_admitted: bool,
    /// The store's time in microseconds.
    pub now_micros: u64,
    /// One reply for each part, in their order.
    pub counters: SmallVec<[CounterReply; 2]>,
}

/// Why a call to the store has no usable reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No reply came within the caller's time limit.
    #[error("no reply within the budget")]
    Late,
    /// There is no connection.
    #[error("not connected")]
    NotConnected,
    /// The store is empty, and no gateway has initialised it. A gateway that knows its former secret may still do so.
    #[error("the store is empty")]
    Empty,
    /// The store has another mark than this gateway knows: it was emptied or restarted, another server took over, or the
    /// gateway has not identified it yet.
    #[error("the store has another mark: it was emptied, or another server took over")]
    MarkMismatch,
    /// The store's clock and this gateway's are in windows of a quota that are no neighbours. Nothing was counted.
    #[error("the clocks of Redis and of this gateway differ by more than a window of a quota")]
    OffCalendar,
    /// The lease of the gateway's permits has ended in the store, or was lost there.
    #[error("the lease of the gateway's permits has ended")]
    LeaseEnded,
    /// The store reports an error, or its reply is malformed.
    #[error("{0}")]
    Other(Cow<'static, str>),
}

/// What identifies a store; read when a gateway connects for the first time or again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreIdentity {
    /// The name of the store's data. A store that has lost its data has another mark.
    pub mark: StoreMark,
    /// The secret with which all gateways hash keys.
    pub secret: [u8; 16],
    /// Whether another server than before is the master.
    pub has_new_master: bool,
    /// The store's time in microseconds.
    pub now_micros: u64,
}

/// The name of a store's data, random or made of random names: see [`StoreIdentity::mark`].
pub type StoreMark = [u8; 16];

/// The gateways that use a store: those with a heartbeat in the last ten seconds, at most 1,000 on each server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveGateways {
    /// The store's time in microseconds.
    pub now_micros: u64,
    /// The last heartbeat of each gateway.
    pub heartbeats: Vec<GatewayHeartbeat>,
}

/// The gateway that sends a heartbeat, and what it states of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatSender {
    /// The gateway's number, as in [`Call::gateway`].
    pub gateway: u32,
    /// Whether the store knows all units of the gateway. One that has not reported them counts in the shares of others, and
    /// they do not trust the store yet.
    pub has_reported: bool,
}

/// The last heartbeat of one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayHeartbeat {
    /// The gateway, and what it stated.
    pub sender: HeartbeatSender,
    /// The time of the heartbeat by the store's clock, in microseconds.
    pub sent_at_micros: u64,
}

/// The data that a store may have lost while it was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreLoss {
    /// The store has lost nothing, and was only out of reach.
    Nothing,
    /// The store may have lost some units: a replica that lagged behind may have taken over, under the same mark.
    Part,
    /// The store may have lost some units, and another server than before is known to be the master.
    NewMaster,
    /// The store has lost everything: its mark is another one.
    All,
}
