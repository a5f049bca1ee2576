//! [`LimitGrant`]: how much more of a limit a key has for a time, and the limit that follows from it. The windows and the
//! algorithm stay, so what was counted before counts on, and after the grant too.

use std::sync::Arc;

use super::{Algorithm, Concurrency, Rate, RateLimit, RuleLimit, ThrottleMode, sliding_log};

/// How much more of a limit a key has. The factor comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimitGrant {
    /// The factor of each number of the limit, at least 1. It multiplies what is admitted at once, too.
    pub times: u32,
    /// What is added to each number. Neither the factor nor plans multiply it.
    pub add: u32,
}

/// A grant that holds for the keys of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AppliedGrant {
    /// The limit as the grant names it: its scope, or `*/` and its name for all routes that count for themselves.
    pub limit: Arc<str>,
    /// How much more the keys have.
    pub amount: LimitGrant,
}

/// Why a limit cannot be raised so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The number is more than can be counted.
    #[error(
        "with this grant the limit would have more than {most} units in a window, with what plans and the throttle add; grant less",
        most = Rate::MAX_QUOTA
    )]
    TooMuch,
    /// The log of a key has no room for so many units.
    #[error(
        "with this grant the limit would have more than {most} units, which is the most that its algorithm `sliding-log` keeps; \
         grant less, or write `algorithm: sliding-window` in its policy",
        most = sliding_log::MAX_STAMPS
    )]
    LogTooLong,
    /// The state of a key has arrival times, which say how many units were used only by one rate. Gateways that know two
    /// rates of a key for a moment would forget units each time that they take turns.
    #[error(
        "its algorithm `{0}` cannot have grants, because it keeps arrival times in place of counts; write another one in its \
         policy, such as `algorithm: sliding-window`"
    )]
    ArrivalTimes(&'static str),
}

impl RuleLimit {
    /// The limit with this grant.
    ///
    /// # Errors
    ///
    /// A number would be more than can be counted, or the algorithm counts no units.
    pub fn granted(&self, grant: LimitGrant) -> Result<RuleLimit, GrantError> {
        match self {
            RuleLimit::Rate(limit) => limit.granted(grant).map(RuleLimit::Rate),
            RuleLimit::Open(limit) => limit.granted(grant).map(RuleLimit::Open),
        }
    }
}

impl RateLimit {
    fn granted(&self, grant: LimitGrant) -> Result<RateLimit, GrantError> {
        if self.algorithm.is_gcra() {
            return Err(GrantError::ArrivalTimes(self.algorithm.as_str()));
        }
        let windows = self.windows.iter();
        let windows = windows.map(|rate| rate.granted(grant.times, grant.add));
        let windows: Option<Vec<Rate>> = windows.collect();
        let granted = RateLimit {
            windows: windows.ok_or(GrantError::TooMuch)?,
            throttle: self.throttle.granted(grant),
            ..self.clone()
        };
        for rate in &granted.windows {
            let quota = rate.quota_times(self.max_plan_factor);
            check_units(quota, granted.throttle)?;
            let ceiling = granted.throttle.ceiling(quota);
            if self.algorithm == Algorithm::SlidingLog && ceiling > sliding_log::MAX_STAMPS {
                return Err(GrantError::LogTooLong);
            }
        }
        Ok(granted)
    }
}

impl Concurrency {
    fn granted(&self, grant: LimitGrant) -> Result<Concurrency, GrantError> {
        let max_open = self.max_open.checked_mul(grant.times);
        let added = self.added.checked_add(grant.add);
        let (max_open, added) = max_open.zip(added).ok_or(GrantError::TooMuch)?;
        let granted = Concurrency {
            max_open,
            added,
            throttle: self.throttle.granted(grant),
            ..*self
        };
        check_units(granted.quota(self.max_plan_factor), granted.throttle)?;
        Ok(granted)
    }
}

impl ThrottleMode {
    /// What is done above the larger number. An elastic limit lends in the same proportion as before.
    fn granted(self, grant: LimitGrant) -> ThrottleMode {
        let ThrottleMode::Elastic { at_most, base } = self else {
            return self;
        };
        let scaled = |units: u32| units.checked_mul(grant.times);
        match scaled(at_most).zip(scaled(base)) {
            Some((at_most, base)) => ThrottleMode::Elastic { at_most, base },
            None => self,
        }
    }
}

/// Fails if a window of this quota, with what the throttle adds, has more units than can be counted.
fn check_units(quota: u32, throttle: ThrottleMode) -> Result<(), GrantError> {
    let with_lent = u64::from(throttle.ceiling(quota)) + u64::from(throttle.max_lent(quota));
    match quota <= Rate::MAX_QUOTA && with_lent < u64::from(u32::MAX) {
        true => Ok(()),
        false => Err(GrantError::TooMuch),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::clock::Nanos;

    fn limit(rates: &[Rate], algorithm: Algorithm, throttle: ThrottleMode, plan: u32) -> RateLimit {
        RateLimit {
            windows: rates.to_vec(),
            algorithm,
            throttle,
            reserves: false,
            max_plan_factor: plan,
        }
    }

    fn quotas(limit: &RuleLimit, plan_factor: u32) -> Vec<u32> {
        match limit {
            RuleLimit::Rate(limit) => {
                let rates = limit.windows.iter();
                rates.map(|rate| rate.quota_times(plan_factor)).collect()
            }
            RuleLimit::Open(limit) => vec![limit.quota(plan_factor)],
        }
    }

    #[test]
    fn each_window_has_more_and_plans_multiply_the_factor_only() {
        let rates = ["2/s", "10/m"].map(|text| text.parse().unwrap());
        let limit = limit(&rates, Algorithm::SlidingLog, ThrottleMode::Hard, 5);
        let check = |times, add, expected: [u32; 2], of_plan: [u32; 2]| {
            let granted = RuleLimit::from(limit.clone()).granted(LimitGrant { times, add });
            let granted = granted.unwrap();
            assert_eq!(quotas(&granted, 1), expected);
            assert_eq!(quotas(&granted, 5), of_plan);
        };
        check(10, 0, [20, 100], [100, 500]);
        check(1, 5, [7, 15], [15, 55]);
        check(2, 5, [9, 25], [25, 105]);
        let open = RuleLimit::Open(Concurrency::hard(3)).granted(LimitGrant { times: 2, add: 1 });
        assert_eq!(open.map(|open| quotas(&open, 2)), Ok(vec![13]));
    }

    #[test]
    fn credits_are_granted_where_there_were_none() {
        for reserves in [false, true] {
            let limit = RuleLimit::from(RateLimit::of_credits(reserves));
            let filled = |add| limit.granted(LimitGrant { times: 1, add });
            assert_eq!(
                filled(5_000).map(|limit| quotas(&limit, 9)),
                Ok(vec![5_000])
            );
            assert!(filled(1).unwrap().is_credits());
            let (before, after) = (limit.rate().unwrap(), filled(7).unwrap());
            assert_eq!(after.rate().unwrap().shape(), before.shape());
            assert_eq!(filled(Rate::MAX_QUOTA + 1), Err(GrantError::TooMuch));
        }
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        let rate = "1000/m".parse().unwrap();
        let check = |algorithm, throttle, plan, grant, expected: Option<GrantError>| {
            let limit = RuleLimit::from(limit(&[rate], algorithm, throttle, plan));
            assert_eq!(limit.granted(grant).err(), expected, "{grant:?}");
        };
        let (hard, window) = (ThrottleMode::Hard, Algorithm::SlidingWindow);
        let times = |times| LimitGrant { times, add: 0 };
        let add = |add| LimitGrant { times: 1, add };
        let (too_much, too_long) = (Some(GrantError::TooMuch), Some(GrantError::LogTooLong));
        check(window, hard, 1, times(1_000_000), None);
        check(window, hard, 1, times(1_000_001), too_much);
        check(window, hard, 2, times(1_000_000), too_much);
        check(window, hard, 1, add(u32::MAX), too_much);
        check(window, hard, 1, times(u32::MAX), too_much);
        check(Algorithm::SlidingLog, hard, 1, times(65), None);
        check(Algorithm::SlidingLog, hard, 1, times(66), too_long);
        check(Algorithm::SlidingLog, hard, 1, add(64_536), too_long);
        let soft = ThrottleMode::Soft { percent: 1000 };
        check(window, soft, 1, times(1_000_000), too_much);
        for algorithm in [
            Algorithm::Gcra { burst: None },
            Algorithm::LeakyBucket {
                max_delay: Nanos::from_secs(1),
            },
        ] {
            let expected = Some(GrantError::ArrivalTimes(algorithm.as_str()));
            check(algorithm, hard, 1, times(2), expected);
            check(algorithm, hard, 1, add(1), expected);
        }
    }

    proptest! {
        /// No number overflows, shrinks, or leaves its bounds, and the states of keys stay readable.
        #[test]
        fn a_granted_limit_admits_at_least_as_much(
            quota in 1u32..=Rate::MAX_QUOTA,
            seconds in 1u64..=86_400,
            times in 1u32..,
            add in any::<u32>(),
            plan in 1u32..1_000,
            kind in 0usize..4,
            throttle in 0usize..3,
        ) {
            let rate = Rate::new(quota, Nanos::from_secs(seconds)).unwrap();
            let algorithm = [
                Algorithm::SlidingLog,
                Algorithm::SlidingWindow,
                Algorithm::MultiLevel,
                Algorithm::FixedWindow,
            ][kind];
            let throttle = [
                ThrottleMode::Hard,
                ThrottleMode::Soft { percent: 100 },
                ThrottleMode::Elastic { at_most: quota.saturating_mul(2), base: quota },
            ][throttle];
            let before = limit(&[rate], algorithm, throttle, plan);
            let Ok(after) = before.granted(LimitGrant { times, add }) else {
                return Ok(());
            };
            let expected = u64::from(quota) * u64::from(plan) * u64::from(times) + u64::from(add);
            let granted = after.windows[0];
            prop_assert_eq!(u64::from(granted.quota_times(plan)), expected);
            prop_assert!(granted.quota_times(plan) <= Rate::MAX_QUOTA);
            let (old_bounds, bounds) =
                (before.unit_bounds(&rate, plan), after.unit_bounds(&granted, plan));
            prop_assert!(bounds.0 >= old_bounds.0 && bounds.1 >= old_bounds.1);
            prop_assert!(granted.interval(plan).nanos() >= 1);
            prop_assert!(after.max_words() >= before.max_words());
            prop_assert_eq!(after.shape(), before.shape());
        }
    }
}
