//! How much may come over a connection that asks for nothing. Each such frame costs its sender nothing and
//! the receiver a little, so their number is bounded (CVE-2019-9512, -9514, -9515, CVE-2023-44487).

use crate::base::clock::Nanos;

/// Frames that ask for nothing, as many as may come at once.
const MOST: u32 = 1000;

/// And in each second, on average; each one beyond must come with one that carries something.
const A_SECOND: u32 = 100;

/// See the module.
#[derive(Debug)]
pub struct Allowance {
    left: u32,
    /// The second up to which it was renewed.
    renewed: u64,
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance {
            left: MOST,
            renewed: 0,
        }
    }
}

impl Allowance {
    /// A frame came that asks for nothing, or one that is against the rules.
    pub fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// A head was decoded for which no request is served: it is malformed or too large, or its stream is refused or
    /// closed. What is said to that earns less.
    pub fn spend_head(&mut self) {
        self.left = self.left.saturating_sub(3);
    }

    /// A frame went out or came in that carries something.
    pub fn earn(&mut self) {
        self.left = (self.left + u32::from(self.left > 0)).min(MOST);
    }

    /// Whether more came than may. Once it is so it stays so.
    pub fn is_spent(&mut self, now: Nanos) -> bool {
        let second = now.0 / Nanos::from_secs(1).0;
        let before = std::mem::replace(&mut self.renewed, second);
        if second > before && self.left > 0 {
            let more = u32::try_from(second - before).unwrap_or(u32::MAX);
            let more = more.saturating_mul(A_SECOND);
            self.left = self.left.saturating_add(more).min(MOST);
        }
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_once_and_a_second() {
        let mut allowance = Allowance::default();
        for second in 0..100 {
            (0..A_SECOND).for_each(|_| allowance.spend());
            assert!(!allowance.is_spent(Nanos::from_secs(second)));
        }
        (0..2 * MOST).for_each(|_| {
            allowance.spend();
            allowance.earn();
        });
        assert!(!allowance.is_spent(Nanos::from_secs(100)));
        (0..MOST).for_each(|_| allowance.spend());
        assert!(allowance.is_spent(Nanos::from_secs(100)));
        allowance.earn();
        assert!(allowance.is_spent(Nanos::from_secs(200)), "it is over");
    }
}
