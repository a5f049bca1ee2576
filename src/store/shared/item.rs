//! One limit's part of one request, where the limit may be shared.

use std::sync::Arc;

use smallvec::SmallVec;

use super::plan::SharingPlan;
use crate::limit::{Fingerprint, Limit, Scale};
use crate::store::{Item, Parent, Slot};

/// One limit's part of one request.
#[derive(Clone, Debug)]
pub struct SharedItem {
    /// How it is shared; nothing when each gateway counts for itself.
    pub plan: Option<Arc<SharingPlan>>,
    /// What this gateway counts by.
    pub limit: Arc<Limit>,
    /// Where it does.
    pub slot: Slot,
    /// Who is counted.
    pub key: Fingerprint,
    /// Units asked for.
    pub cost: u32,
    /// How much of it the request gets.
    pub scale: Scale,
    /// Decides for itself.
    pub shadow: bool,
    /// Wider networks that must have room too.
    pub parents: SmallVec<[Parent; 3]>,
}

/// The limits of one request.
pub type SharedItems = SmallVec<[SharedItem; 4]>;

/// The line as this gateway counts it.
pub(super) fn item(line: &SharedItem) -> Item<'_> {
    Item {
        limit: &line.limit,
        slot: line.slot,
        key: line.key,
        cost: line.cost,
        scale: line.scale,
        shadow: line.shadow,
        parents: &line.parents,
    }
}

pub(super) fn quota(limit: &Limit, window: u8, multiply: u32) -> u32 {
    let rate = limit.windows.get(usize::from(window));
    rate.map_or(0, |rate| rate.times(multiply))
}
