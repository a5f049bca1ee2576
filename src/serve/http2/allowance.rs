//! Bounds the frames without use that a client may send: pings, resets, empty frames and the like.
//!
//! Such a frame costs its sender nothing and the gateway a little, so a flood of them would be an attack (CVE-2019-9512,
//! -9514, -9515, CVE-2023-44487). A client earns more of them by frames that carry something.

use crate::base::clock::Nanos;

/// Most frames without use that a client may send at once.
const MAX_BURST: u32 = 1000;

/// Frames without use that a client may send in each second, on average, besides those that it earns.
const FRAMES_PER_SECOND: u32 = 100;

/// Frames that a head without a request counts as, because it must be decoded.
const HEAD_COST: u32 = 3;

/// How many more frames without use one client may send.
#[derive(Debug)]
pub struct Allowance {
    remaining: u32,
    /// The second for which it was renewed last.
    renewed: u64,
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance {
            remaining: MAX_BURST,
            renewed: 0,
        }
    }
}

impl Allowance {
    /// Counts a received frame that is without use, or against the rules.
    pub fn spend(&mut self) {
        self.remaining = self.remaining.saturating_sub(1);
    }

    /// Counts a decoded head that makes no request: it is malformed or too large, or its stream is refused or closed. It
    /// costs more than the frame that responds to it earns.
    pub fn spend_head(&mut self) {
        self.remaining = self.remaining.saturating_sub(HEAD_COST);
    }

    /// Counts a sent or received frame that carries something. It earns one frame, unless the allowance is spent.
    pub fn earn(&mut self) {
        self.remaining = (self.remaining + u32::from(self.remaining > 0)).min(MAX_BURST);
    }

    /// Whether the client has sent too many frames without use. Once true it stays so.
    pub fn is_spent(&mut self, now: Nanos) -> bool {
        let second = now.0 / Nanos::from_secs(1).0;
        let before = std::mem::replace(&mut self.renewed, second);
        if second > before && self.remaining > 0 {
            let seconds = u32::try_from(second - before).unwrap_or(u32::MAX);
            let more = seconds.saturating_mul(FRAMES_PER_SECOND);
            self.remaining = self.remaining.saturating_add(more).min(MAX_BURST);
        }
        self.remaining == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_a_rate_are_allowed() {
        let mut allowance = Allowance::default();
        for second in 0..100 {
            (0..FRAMES_PER_SECOND).for_each(|_| allowance.spend());
            assert!(!allowance.is_spent(Nanos::from_secs(second)));
        }
        (0..2 * MAX_BURST).for_each(|_| {
            allowance.spend();
            allowance.earn();
        });
        assert!(!allowance.is_spent(Nanos::from_secs(100)));
        (0..MAX_BURST).for_each(|_| allowance.spend());
        assert!(allowance.is_spent(Nanos::from_secs(100)));
        allowance.earn();
        assert!(allowance.is_spent(Nanos::from_secs(200)), "it is over");
    }
}
