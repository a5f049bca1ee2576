//! [`SharedItem`]: one limit's part of one request, where the limit may be shared. The item owns its data, because the
//! request may wait for the store.

use std::sync::Arc;

use smallvec::SmallVec;

use super::sharing_plan::SharingPlan;
use crate::limit::{Fingerprint, RateLimit, Scale};
use crate::store::{LimitItem, LimitSlot, ParentNetwork};

/// One limit's part of one request: a [`LimitItem`] that owns its data, and how its limit is shared.
#[derive(Clone, Debug)]
pub struct SharedItem {
    /// How the limit is shared; `None` when each gateway counts by itself.
    pub plan: Option<Arc<SharingPlan>>,
    /// The limit by which this gateway counts.
    pub limit: Arc<RateLimit>,
    /// The limit's slot in this gateway's memory.
    pub slot: LimitSlot,
    /// The key that is counted.
    pub key: Fingerprint,
    /// Units that the request asks for; with [`RateLimit::reserves`] the units that it reserves.
    pub cost: u32,
    /// The multiplier of the key's plan.
    pub scale: Scale,
    /// A shadow decides by itself and refuses nothing.
    pub is_shadow: bool,
    /// Networks around an IPv6 key that must have room too, nearest first.
    pub parents: SmallVec<[ParentNetwork; 3]>,
}

/// The items of one request, one for each of its limits.
pub type SharedItems = SmallVec<[SharedItem; 4]>;

impl SharedItem {
    /// The item as this gateway's own memory counts it.
    pub(super) fn as_limit_item(&self) -> LimitItem<'_> {
        LimitItem {
            limit: &self.limit,
            slot: self.slot,
            key: self.key,
            cost: self.cost,
            scale: self.scale,
            is_shadow: self.is_shadow,
            parents: &self.parents,
        }
    }
}

/// The quota of the limit's window with this index; 0 when there is no such window.
pub(super) fn window_quota(limit: &RateLimit, window_index: u8, plan_factor: u32) -> u32 {
    let rate = limit.windows.get(usize::from(window_index));
    rate.map_or(0, |rate| rate.quota_times(plan_factor))
}
