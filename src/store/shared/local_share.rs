//! [`LocalShare`]: the units that one of several gateways may admit while the store is away. All shares together are at
//! most the limit, as computed below. After the store's last reply, a gateway may use the units that it has used itself,
//! and an equal part of the free ones. Once that reply has left the window, it may use an equal part of the limit.
//!
//! In a window of `N` units let `U` be used by all gateways, `o` by this one, and let there be `G` gateways. In the first
//! window after the reply the share is `o + (N - U) / G`. In the second window, and a little longer, the share is the
//! smaller of `o + (N - U) / G` and `N / G`; then it is `N / G`. The sum of all `o` is at most `U`. So all shares together
//! are at most `N`, as long as the gateways know `U` as of one moment.

use smallvec::SmallVec;

use crate::base::clock::Nanos;
use crate::limit::{Algorithm, Rate, RateLimit, Scale, ThrottleMode};

/// All gateways notice within this time that a store is away: it is longer than two heartbeats and their time limits. The
/// last gateway to notice may use its own units until then. So the other gateways wait as long before they may use an equal
/// part that is larger than their own.
const MAX_NOTICE_DELAY: Nanos = Nanos::from_secs(5);

/// A gateway's share of one key, as of the store's last reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalShare {
    /// The time as of which the share holds: when the gateway began to decide alone, just after the store's last reply.
    replied_at: Nanos,
    /// For each window, the units that this gateway may use while the window holds the reply.
    usable_units: SmallVec<[u32; 2]>,
}

impl LocalShare {
    /// The share as of `replied_at`. For each window, `used_units` are the units of all gateways by the store's last reply.
    /// `own_units` are those that this gateway has used, and those left of its grants. Missing windows count as unused.
    pub fn new(
        limit: &RateLimit,
        plan_factor: u32,
        gateway_count: u32,
        replied_at: Nanos,
        used_units: &[u32],
        own_units: &[u32],
    ) -> LocalShare {
        let usable_units = limit.windows.iter().enumerate().map(|(index, rate)| {
            let (_, ceiling) = limit.unit_bounds(rate, plan_factor);
            let in_window = |units: &[u32]| units.get(index).copied().unwrap_or(0);
            let free_units = ceiling.saturating_sub(in_window(used_units)) / gateway_count.max(1);
            in_window(own_units).saturating_add(free_units).min(ceiling)
        });
        LocalShare {
            replied_at,
            usable_units: usable_units.collect(),
        }
    }

    /// Bounds this share by an earlier share that began less than `longest_window` ago. Units that were used of the earlier
    /// share must not be usable again.
    pub fn bound_by(&mut self, earlier: &LocalShare, longest_window: Nanos) {
        if self.replied_at.since(earlier.replied_at) < longest_window {
            let windows = self.usable_units.iter_mut().zip(&earlier.usable_units);
            for (units, earlier_units) in windows {
                *units = (*units).min(*earlier_units);
            }
        }
    }

    /// The limit that the share allows at `now`, to be used with a plan factor of 1; `None` if a window admits nothing.
    pub fn limit_at(
        &self,
        limit: &RateLimit,
        scale: Scale,
        gateway_count: u32,
        now: Nanos,
    ) -> Option<RateLimit> {
        let gateway_count = gateway_count.max(1);
        let elapsed = now.since(self.replied_at);
        let mut windows = Vec::with_capacity(limit.windows.len());
        for (index, rate) in limit.windows.iter().enumerate() {
            let (_, ceiling) = limit.unit_bounds(rate, scale.plan_factor);
            let equal_part = ceiling / gateway_count;
            let usable_units = self.usable_units.get(index).copied();
            let usable_units = usable_units.unwrap_or(equal_part);
            // GCRA has no first window: its units do not leave a window as a whole.
            let has_window = !limit.algorithm.is_gcra();
            let window = rate.window();
            let units = if has_window && elapsed < window {
                usable_units
            } else if elapsed < window.after(window).after(MAX_NOTICE_DELAY) {
                usable_units.min(equal_part)
            } else {
                equal_part
            };
            let share = Rate::new(units, rate.window()).ok()?;
            windows.push(share.aligned(rate.alignment()));
        }
        // The units already include what a soft limit adds.
        let throttle = match limit.throttle {
            ThrottleMode::Elastic { .. } => limit.throttle,
            ThrottleMode::Hard | ThrottleMode::Soft { .. } => ThrottleMode::Hard,
        };
        let algorithm = match limit.algorithm {
            Algorithm::Gcra { burst: Some(burst) } => Algorithm::Gcra {
                burst: Some((burst / gateway_count).max(1)),
            },
            algorithm => algorithm,
        };
        Some(RateLimit {
            windows,
            algorithm,
            throttle,
            reserves: limit.reserves,
            max_plan_factor: 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_all_are_the_limit() {
        let limit = RateLimit::hard("100/m".parse().unwrap());
        let minute = Nanos::from_secs(60);
        let start = Nanos::from_secs(1_000);
        // Of 100 three gateways have used 40, 20 and none.
        let shares = [40, 20, 0].map(|own| LocalShare::new(&limit, 1, 3, start, &[60], &[own]));
        let at = |share: &LocalShare, now| {
            let limit = share.limit_at(&limit, Scale::plan(1), 3, now);
            limit.map_or(0, |limit| limit.windows[0].quota())
        };
        let own = |now| shares.each_ref().map(|share| at(share, now));
        assert_eq!(own(start), [53, 33, 13]);
        assert_eq!(own(start.after(minute)), [33, 33, 13]);
        let later = start.after(Nanos(minute.0 * 2));
        assert_eq!(own(later), [33, 33, 13], "some noticed later");
        assert_eq!(own(later.after(MAX_NOTICE_DELAY)), [33, 33, 33]);
        let used_up = LocalShare::new(&limit, 1, 3, start, &[100], &[0]);
        assert_eq!(used_up.limit_at(&limit, Scale::plan(1), 3, start), None);
    }
}
