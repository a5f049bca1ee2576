//! Calls to a shared store about the permits of one key, and what this gateway may do by its lease of permits. Plain
//! values; they do no I/O and read no clock.

use std::fmt::Debug;

use super::permit_request::PermitKey;

/// One call to the store about the permits of one key. It names how many permits this gateway holds in all, not how many
/// more or fewer. So the store may execute it twice, late or never: the next call sets the number right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitCall {
    /// The key that the permits are counted for.
    pub key: PermitKey,
    /// The gateway's lease, under which the store counts the permits.
    pub lease: u64,
    /// The call's number. It grows with each call of a process, so that the store ignores a call that comes after a later
    /// one. A call with 0 reads and changes nothing.
    pub number: u64,
    /// Permits that requests use, or may use without a further call. The store counts them even if there are more than the
    /// limit has.
    pub used: u32,
    /// Permits that the gateway needs: at least `used`. It gets fewer if fewer are free.
    pub needed: u32,
    /// Permits beyond `needed` that the gateway takes in advance. It gets half of the free ones at most.
    pub spare: u32,
    /// The number of permits of the key, of all gateways together.
    pub ceiling: u32,
    /// Whether no earlier call can be executed after this one. If some can, the store remembers the number although the
    /// gateway holds nothing.
    pub is_clean: bool,
}

impl PermitCall {
    /// A call that only reads how many permits other gateways hold.
    pub fn read(key: PermitKey, lease: u64) -> PermitCall {
        PermitCall {
            key,
            lease,
            number: 0,
            used: 0,
            needed: 0,
            spare: 0,
            ceiling: 0,
            is_clean: true,
        }
    }
}

/// The store's reply to a [`PermitCall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitReply {
    /// Permits that the store counts for this gateway from now on.
    pub held: u32,
    /// Permits that other gateways hold.
    pub others: u32,
}

/// How far this gateway's lease has come since the sending of its last renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeasePhase {
    /// Less than half of the lease's life: requests may use the permits that the gateway holds.
    Fresh,
    /// Half of the life or more: no further request may use them.
    Stale,
    /// The lease ends, so that its requests must have ended. Other gateways may still have theirs.
    Ended,
    /// The leases of all gateways that were cut off at the same time have ended. Also before the first lease.
    Forgotten,
}

/// What decides about permits that gateways share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitDecider {
    /// The store.
    Store,
    /// The store and this gateway's part, because other gateways may not have reported their open requests yet.
    Both,
    /// This gateway's part.
    Part,
}

/// What a gateway knows of the store when it decides about a request.
#[derive(Clone, Copy, Debug)]
pub struct StoreView {
    /// What decides.
    pub decider: PermitDecider,
    /// How far the gateway's lease has come.
    pub phase: LeasePhase,
    /// The number of gateways, at least 1.
    pub gateway_count: u32,
    /// The connection over which permits are asked for and returned.
    pub connection_index: u16,
}

/// Sends the calls that returned permits leave to be made. The shared store implements it.
pub trait PermitReturns: Debug + Send + Sync {
    /// A call about a key is due: see [`Permits::next_call`](super::Permits::next_call).
    fn call_is_due(&self, connection_index: u16, key: PermitKey);
}
