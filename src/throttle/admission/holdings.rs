//! What a request holds until its end, for its log line and for requests whose client has left: the ticket itself travels
//! with the response.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::permits::PermitGuard;

/// What a request holds of its limits.
#[derive(Clone, Debug)]
pub struct Holdings {
    /// The permits of the request. They come back when the ticket and all of its holdings are dropped.
    pub permits: Option<Arc<PermitGuard>>,
    /// Whether limits wait for what the response says.
    pub settles: bool,
    /// What limits on cost charge the request.
    pub costs: Option<Arc<Costs>>,
}

/// Set once something was charged.
const CHARGED: u64 = 1 << 32;
/// Set if a limit never learned the cost.
const UNKNOWN: u64 = 1 << 33;

/// What limits on cost have charged a request. Units are in the lower 32 bits, flags above.
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

    /// The units, the most of all limits, and whether a limit charged what was reserved because the response stated no
    /// cost. None while nothing is charged.
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
