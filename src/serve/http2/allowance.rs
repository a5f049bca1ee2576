//! Bounds the frames without use that a client may send: pings, resets, settings, empty frames and the like.
//!
//! Such a frame costs its sender nothing and the gateway a little, so a flood of them would be an attack
//! (CVE-2019-9512, CVE-2019-9514, CVE-2019-9515, CVE-2023-44487). A client earns more of these frames by frames that
//! carry content. Once its allowance is spent, `connection.rs` ends the connection.

use crate::base::clock::Nanos;

/// Maximum number of frames without use that a client may send at once, or more if it may have many streams.
const MAX_BURST_FRAMES: u32 = 1000;

/// Number of frames without use that a client may send in each second, besides those that it earns.
const FRAMES_PER_SECOND: u32 = 100;

/// Number of frames that a head without a request counts as, because the head must be decoded.
const HEAD_COST_FRAMES: u32 = 3;

/// How many more frames without use one client may send.
#[derive(Debug)]
pub struct Allowance {
    /// Frames without use that the client may still send; 0 once the allowance is spent.
    remaining_frames: u32,
    /// The most that `remaining_frames` may be.
    max_frames: u32,
    /// The second of the gateway's clock for which the allowance was renewed last.
    renewed_second: u64,
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance {
            remaining_frames: MAX_BURST_FRAMES,
            max_frames: MAX_BURST_FRAMES,
            renewed_second: 0,
        }
    }
}

impl Allowance {
    /// The allowance of a connection with so many streams. It suffices to reset all of them at once, and more.
    pub fn of_connection(max_streams: usize) -> Allowance {
        let for_resets = u32::try_from(2 * max_streams).unwrap_or(u32::MAX);
        let max_frames = MAX_BURST_FRAMES.max(for_resets);
        Allowance {
            remaining_frames: max_frames,
            max_frames,
            renewed_second: 0,
        }
    }

    /// Counts a received frame that is without use, or against the rules.
    pub fn spend_frame(&mut self) {
        self.remaining_frames = self.remaining_frames.saturating_sub(1);
    }

    /// Counts a decoded head that makes no request, because it is malformed or too large, or its stream is refused or
    /// closed. Such a head costs more than the frame that responds to it earns.
    pub fn spend_head(&mut self) {
        self.remaining_frames = self.remaining_frames.saturating_sub(HEAD_COST_FRAMES);
    }

    /// Counts a sent or received frame that carries something. The client earns one frame, unless the allowance is spent.
    pub fn earn_frame(&mut self) {
        self.remaining_frames =
            (self.remaining_frames + u32::from(self.remaining_frames > 0)).min(self.max_frames);
    }

    /// Renews the allowance for the seconds since the last call, then says whether the client has sent too many frames
    /// without use. A spent allowance is never renewed.
    pub fn renew_and_check_spent(&mut self, now: Nanos) -> bool {
        let second = now.0 / Nanos::from_secs(1).0;
        let previous_second = std::mem::replace(&mut self.renewed_second, second);
        if second > previous_second && self.remaining_frames > 0 {
            let elapsed_seconds = u32::try_from(second - previous_second).unwrap_or(u32::MAX);
            let renewed_frames = elapsed_seconds.saturating_mul(FRAMES_PER_SECOND);
            let remaining_frames = self.remaining_frames.saturating_add(renewed_frames);
            self.remaining_frames = remaining_frames.min(self.max_frames);
        }
        self.remaining_frames == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_a_rate_are_allowed() {
        let mut allowance = Allowance::default();
        for second in 0..100 {
            (0..FRAMES_PER_SECOND).for_each(|_| allowance.spend_frame());
            assert!(!allowance.renew_and_check_spent(Nanos::from_secs(second)));
        }
        (0..2 * MAX_BURST_FRAMES).for_each(|_| {
            allowance.spend_frame();
            allowance.earn_frame();
        });
        assert!(!allowance.renew_and_check_spent(Nanos::from_secs(100)));
        (0..MAX_BURST_FRAMES).for_each(|_| allowance.spend_frame());
        assert!(allowance.renew_and_check_spent(Nanos::from_secs(100)));
        allowance.earn_frame();
        assert!(
            allowance.renew_and_check_spent(Nanos::from_secs(200)),
            "it stays spent"
        );
    }
}
