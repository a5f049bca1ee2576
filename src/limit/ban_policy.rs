//! When a limit bans a client whom it keeps refusing, as in `ban: { after: 3 refusals in 10m, for: 1h, up_to: 7d }`.

use std::fmt;

use crate::base::clock::Nanos;

/// When a limit bans the clients of a key, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanPolicy {
    /// The refusals that lead to a ban, from 1 to [`BanPolicy::MAX_REFUSALS`].
    pub refusals: u32,
    /// The time within which they must come.
    pub within: Nanos,
    /// How long the first ban lasts. Each further one lasts twice as long as the last. A client that was not banned for as
    /// long as its last ban was begins anew.
    pub first: Nanos,
    /// The longest that a ban lasts.
    pub up_to: Nanos,
}

impl BanPolicy {
    /// Most refusals before a ban, because the time of each is kept.
    pub const MAX_REFUSALS: u32 = 100;

    /// How long a ban lasts after so many earlier ones.
    pub fn duration(&self, earlier_bans: u8) -> Nanos {
        let factor = 1_u64.checked_shl(earlier_bans.into()).unwrap_or(u64::MAX);
        Nanos(self.first.0.saturating_mul(factor)).min(self.up_to)
    }
}

/// Describes the policy as a sentence without its subject: `bans for 3600 s after 3 refusals in 600 s`.
impl fmt::Display for BanPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.refusals == 1 { "" } else { "s" };
        let (first, within) = (self.first.ceil_secs(), self.within.ceil_secs());
        write!(
            f,
            "bans for {first} s after {} refusal{plural} in {within} s",
            self.refusals
        )?;
        match self.up_to > self.first {
            true => write!(f, ", up to {} s", self.up_to.ceil_secs()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bans_grow_by_doubling_up_to_the_longest() {
        let policy = BanPolicy {
            refusals: 3,
            within: Nanos::from_secs(600),
            first: Nanos::from_secs(3_600),
            up_to: Nanos::from_secs(4 * 3_600 + 1),
        };
        let hours = [1, 2, 4].map(|hours| Nanos::from_secs(hours * 3_600));
        assert_eq!([0, 1, 2].map(|earlier| policy.duration(earlier)), hours);
        for earlier in [3, 63, 64, 255] {
            assert_eq!(policy.duration(earlier), policy.up_to, "{earlier}");
        }
    }
}
