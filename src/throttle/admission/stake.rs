//! What hangs on the end of a request, for those who must know after the ticket has gone its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::permits::Taken;

/// See the module.
#[derive(Clone, Debug)]
pub struct Stake {
    /// The permits of the request, which come back when the ticket and all stakes are dropped.
    pub permits: Option<Arc<Taken>>,
    /// Limits wait for what the response says.
    pub settles: bool,
    /// What the request is charged by limits on cost.
    pub costs: Option<Arc<Costs>>,
}

/// The bit that says that something was charged, and the one that a cost never became known.
const CHARGED: u64 = 1 << 32;
const UNKNOWN: u64 = 1 << 33;

/// What limits on cost have charged for a request.
#[derive(Debug, Default)]
pub struct Costs(AtomicU64);

impl Costs {
    pub(crate) fn charge(&self, units: u32, unknown: bool) {
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
                let units = u64::from(units.max(before as u32));
                let flags = before & UNKNOWN | CHARGED | if unknown { UNKNOWN } else { 0 };
                Some(units | flags)
            });
    }

    /// The units, the most of all limits, and whether they are what was reserved because nothing said how many.
    /// None while it is open.
    pub fn charged(&self) -> Option<(u32, bool)> {
        let value = self.0.load(Ordering::Relaxed);
        (value & CHARGED != 0).then_some((value as u32, value & UNKNOWN != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_kept_and_that_one_was_unknown() {
        let costs = Costs::default();
        assert_eq!(costs.charged(), None);
        costs.charge(0, false);
        assert_eq!(costs.charged(), Some((0, false)));
        costs.charge(u32::MAX, true);
        costs.charge(7, false);
        assert_eq!(costs.charged(), Some((u32::MAX, true)));
    }
}
