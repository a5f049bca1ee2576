//! What one of several gateways may admit of a limit while the store is away, so that all together never admit more than
//! the limit. After the store's last reply a gateway may use what it has used itself, and an equal part of what was free.
//! When that reply has left the window, it may use an equal part of the limit.
//!
//! With `U` units used by all and `o` by this gateway in a window of `N`, and `G` gateways: never more than
//! `o + (N - U) / G` in the first window, never more than that or `N / G` in the second and a little longer, then `N / G`. All
//! gateways' `o` are in `U`, so the sum is at most `N`, as long as they know `U` as of one moment.

use smallvec::SmallVec;

use crate::base::clock::Nanos;
use crate::limit::{Algorithm, Limit, Rate, Scale, ThrottleMode};

/// Two gateways notice that a store is away within this time: two beats and their time limit. A later one may use its
/// own units again for that much longer, so the others wait for their part.
const APART: Nanos = Nanos::from_secs(5);

/// What a gateway knew of a key at the store's last reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalShare {
    /// The time of that reply.
    since: Nanos,
    /// Units that this gateway may use in each window.
    own: SmallVec<[u32; 2]>,
}

impl LocalShare {
    /// A share: `used` are the units of all gateways in each window, by the store's last reply; `own` are this gateway's,
    /// with those granted to it. Missing windows count as unused.
    pub fn new(
        limit: &Limit,
        multiply: u32,
        gateways: u32,
        since: Nanos,
        used: &[u32],
        own: &[u32],
    ) -> LocalShare {
        let each = limit.windows.iter().enumerate().map(|(place, rate)| {
            let (_, ceiling) = limit.unit_bounds(rate, multiply);
            let at = |list: &[u32]| list.get(place).copied().unwrap_or(0);
            let free = ceiling.saturating_sub(at(used)) / gateways.max(1);
            at(own).saturating_add(free).min(ceiling)
        });
        LocalShare {
            since,
            own: each.collect(),
        }
    }

    /// Bounds this share by an earlier one, for as long as the earlier one's start is in a window: what was used of that
    /// must not be available again.
    pub fn no_more_than(&mut self, before: &LocalShare, longest: Nanos) {
        if self.since.since(before.since) < longest {
            for (own, before) in self.own.iter_mut().zip(&before.own) {
                *own = (*own).min(*before);
            }
        }
    }

    /// The limit that the share allows at `now`, to be used with a multiplier of 1; `None` where a window admits nothing.
    pub fn limit(&self, limit: &Limit, scale: Scale, gateways: u32, now: Nanos) -> Option<Limit> {
        let gateways = gateways.max(1);
        let elapsed = now.since(self.since);
        let mut windows = Vec::with_capacity(limit.windows.len());
        for (place, rate) in limit.windows.iter().enumerate() {
            let (_, ceiling) = limit.unit_bounds(rate, scale.multiply);
            let part = ceiling / gateways;
            let own = self.own.get(place).copied().unwrap_or(part);
            // GCRA has no window that units leave as a whole.
            let exact = !limit.algorithm.is_gcra();
            let window = rate.window();
            let units = if exact && elapsed < window {
                own
            } else if elapsed < window.after(window).after(APART) {
                own.min(part)
            } else {
                part
            };
            windows.push(Rate::new(units, rate.window()).ok()?);
        }
        let throttle = match limit.throttle {
            ThrottleMode::Elastic { .. } => limit.throttle,
            ThrottleMode::Hard | ThrottleMode::Soft { .. } => ThrottleMode::Hard,
        };
        let algorithm = match limit.algorithm {
            Algorithm::Gcra { burst: Some(burst) } => Algorithm::Gcra {
                burst: Some((burst / gateways).max(1)),
            },
            other => other,
        };
        Some(Limit {
            windows,
            algorithm,
            throttle,
            reserves: limit.reserves,
            max_multiply: 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_all_are_the_limit() {
        let limit = Limit::hard("100/m".parse().unwrap());
        let minute = Nanos::from_secs(60);
        let start = Nanos::from_secs(1_000);
        // Of 100 three gateways have used 40, 20 and none.
        let shares = [40, 20, 0].map(|own| LocalShare::new(&limit, 1, 3, start, &[60], &[own]));
        let at = |share: &LocalShare, now| {
            let limit = share.limit(&limit, Scale::plan(1), 3, now);
            limit.map_or(0, |limit| limit.windows[0].quota())
        };
        let own = |now| shares.each_ref().map(|share| at(share, now));
        assert_eq!(own(start), [53, 33, 13]);
        assert_eq!(own(start.after(minute)), [33, 33, 13]);
        let later = start.after(Nanos(minute.0 * 2));
        assert_eq!(own(later), [33, 33, 13], "some noticed later");
        assert_eq!(own(later.after(APART)), [33, 33, 33]);
        let used_up = LocalShare::new(&limit, 1, 3, start, &[100], &[0]);
        assert_eq!(used_up.limit(&limit, Scale::plan(1), 3, start), None);
    }
}
