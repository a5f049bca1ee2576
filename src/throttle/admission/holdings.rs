//! The permits and the charged costs of a request. Its log line shares them, and so does an exchange whose client has
//! left. The ticket travels with the response, and only the ticket settles anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::permits::PermitGuard;

/// What a request holds of its limits.
#[derive(Clone, Debug)]
pub struct Holdings {
    /// The permits of the request. They come back when the ticket and all of its holdings are dropped.
    pub permits: Option<Arc<PermitGuard>>,
    /// Whether the response settles reservations.
    pub settles: bool,
    /// What limits on cost have charged the request so far.
    pub costs: Option<Arc<ChargedCosts>>,
}

/// The bit that is set once something was charged.
const IS_CHARGED: u64 = 1 << 32;
/// The bit that is set if a cost never became known, so that the charged units are an estimate.
const IS_UNKNOWN: u64 = 1 << 33;

/// What limits on cost have charged a request. Units are in the lower 32 bits, flags above.
#[derive(Debug, Default)]
pub struct ChargedCosts(AtomicU64);

impl ChargedCosts {
    /// Records a charge. `is_unknown` says that the response stated no cost.
    pub(crate) fn record(&self, units: u32, is_unknown: bool) {
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
                let units = u64::from(units.max(before as u32));
                let flags =
                    before & IS_UNKNOWN | IS_CHARGED | if is_unknown { IS_UNKNOWN } else { 0 };
                Some(units | flags)
            });
    }

    /// The most units that a limit has charged, and whether a limit charged what was reserved because the response
    /// stated no cost. None while nothing is charged.
    pub fn charged(&self) -> Option<(u32, bool)> {
        let value = self.0.load(Ordering::Relaxed);
        (value & IS_CHARGED != 0).then_some((value as u32, value & IS_UNKNOWN != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_kept_and_that_one_was_unknown() {
        let costs = ChargedCosts::default();
        assert_eq!(costs.charged(), None);
        costs.record(0, false);
        assert_eq!(costs.charged(), Some((0, false)));
        costs.record(u32::MAX, true);
        costs.record(7, false);
        assert_eq!(costs.charged(), Some((u32::MAX, true)));
    }
}
