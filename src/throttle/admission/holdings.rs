//! [`Holdings`]: the permits, the passed bytes and the charged costs of a request. The ticket shares them with the log
//! line, with the bodies and with an exchange whose client has left. Only the ticket settles anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::passed_bytes::PassedBytes;
use crate::store::permits::PermitGuard;

/// What a request holds of its limits.
#[derive(Clone, Debug)]
pub struct Holdings {
    /// The permits of the request; `None` without any. They come back when the ticket and all of its holdings are
    /// dropped.
    pub permits: Option<Arc<PermitGuard>>,
    /// Whether the response settles reservations. Limits on bytes are left out: the bytes that have passed settle them.
    pub settles_reservations: bool,
    /// The bytes of the bodies that have passed; `None` where no limit counts them.
    pub bytes: Option<Arc<PassedBytes>>,
    /// What limits on cost have charged the request so far; `None` without a limit that settles costs.
    pub costs: Option<Arc<ChargedCosts>>,
}

/// The bit of [`ChargedCosts`] that is set once something was charged.
const CHARGED_BIT: u64 = 1 << 32;
/// The bit of [`ChargedCosts`] that is set if a cost never became known, so that the charged units are an estimate.
const ESTIMATE_BIT: u64 = 1 << 33;

/// What limits on cost have charged a request. Units are in the lower 32 bits, flags above. The number stands for
/// itself, so its accesses need no ordering.
#[derive(Debug, Default)]
pub struct ChargedCosts(AtomicU64);

/// What [`ChargedCosts`] holds after a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargedUnits {
    /// The most units that a limit has charged.
    pub units: u32,
    /// Whether a limit charged what was reserved, because the response stated no cost.
    pub is_estimate: bool,
}

impl ChargedCosts {
    /// Records a charge; the largest one is kept. `is_estimate` says that the response stated no cost, and stays recorded.
    pub(crate) fn record(&self, units: u32, is_estimate: bool) {
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| {
                let units = u64::from(units.max(value as u32));
                let flags =
                    value & ESTIMATE_BIT | CHARGED_BIT | if is_estimate { ESTIMATE_BIT } else { 0 };
                Some(units | flags)
            });
    }

    /// What was charged so far; `None` while nothing is charged.
    pub fn charged(&self) -> Option<ChargedUnits> {
        let value = self.0.load(Ordering::Relaxed);
        (value & CHARGED_BIT != 0).then_some(ChargedUnits {
            units: value as u32,
            is_estimate: value & ESTIMATE_BIT != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_charge_is_kept_and_so_is_an_estimate() {
        let costs = ChargedCosts::default();
        assert_eq!(costs.charged(), None);
        costs.record(0, false);
        let charged = |units, is_estimate| Some(ChargedUnits { units, is_estimate });
        assert_eq!(costs.charged(), charged(0, false));
        costs.record(u32::MAX, true);
        costs.record(7, false);
        assert_eq!(costs.charged(), charged(u32::MAX, true));
    }
}
