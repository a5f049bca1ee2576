//! One limit's part of one request, where the limit may be shared. It owns its data, because the request may wait.

use std::sync::Arc;

use smallvec::SmallVec;

use super::plan::SharingPlan;
use crate::limit::{Fingerprint, Limit, Scale};
use crate::store::{Item, Parent, Slot};

/// One limit's part of one request: an [`Item`] that owns its data.
#[derive(Clone, Debug)]
pub struct SharedItem {
    /// How the limit is shared; `None` when each gateway counts by itself.
    pub plan: Option<Arc<SharingPlan>>,
    /// The limit by which this gateway counts.
    pub limit: Arc<Limit>,
    /// The limit's slot in this gateway's memory.
    pub slot: Slot,
    /// The key that is counted.
    pub key: Fingerprint,
    /// Units that the request asks for.
    pub cost: u32,
    /// The multiplier of the key's plan.
    pub scale: Scale,
    /// A shadow decides by itself and refuses nothing.
    pub shadow: bool,
    /// Networks around the key that must have room too, nearest first.
    pub parents: SmallVec<[Parent; 3]>,
}

/// All limits of one request.
pub type SharedItems = SmallVec<[SharedItem; 4]>;

impl SharedItem {
    /// The item as this gateway's own memory counts it.
    pub(super) fn as_item(&self) -> Item<'_> {
        Item {
            limit: &self.limit,
            slot: self.slot,
            key: self.key,
            cost: self.cost,
            scale: self.scale,
            shadow: self.shadow,
            parents: &self.parents,
        }
    }
}

/// The quota of one of a limit's windows; 0 when there is no such window.
pub(super) fn window_quota(limit: &Limit, window: u8, multiply: u32) -> u32 {
    let rate = limit.windows.get(usize::from(window));
    rate.map_or(0, |rate| rate.times(multiply))
}
