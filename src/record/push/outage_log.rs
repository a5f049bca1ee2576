//! Log lines about an outage: one when it begins, one every ten minutes, and one when it is over.

use crate::base::clock::Nanos;

/// Time between two lines about the same outage.
const EVERY: Nanos = Nanos::from_secs(600);

/// See the module.
#[derive(Debug, Default)]
pub struct OutageLog {
    /// Why it fails now; empty while it works.
    why: String,
    /// Whether the present outage was logged.
    logged: bool,
    /// The reason that was logged last, and when.
    last: Option<(String, Nanos)>,
}

impl OutageLog {
    /// Notes a failure; returns whether to log it.
    pub fn fails(&mut self, why: &str, now: Nanos) -> bool {
        let began = self.why.is_empty();
        why.clone_into(&mut self.why);
        let news = match &self.last {
            // Neither turns of failure and success nor another reason for the same outage are news.
            Some((said, at)) => now.since(*at) >= EVERY || began && said != why,
            None => true,
        };
        if news {
            self.logged = true;
            self.last = Some((why.to_owned(), now));
        }
        news
    }

    /// Notes a success; returns whether to log it.
    pub fn works(&mut self) -> bool {
        self.why.clear();
        std::mem::take(&mut self.logged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_when_it_changes_and_every_ten_minutes() {
        let mut log = OutageLog::default();
        let mut lines = Vec::new();
        // An hour, in which it is asked every 30 seconds and says why in two ways.
        for step in 0..120_u64 {
            let why = ["refused", "no answer"][(step % 2) as usize];
            if log.fails(why, Nanos::from_secs(30 * step)) {
                lines.push(30 * step);
            }
        }
        assert_eq!(lines, [0, 600, 1_200, 1_800, 2_400, 3_000]);
        assert!(log.works());
        assert!(!log.works());
        assert!(log.fails("it answers 401", Nanos::from_secs(3_010)));
    }

    #[test]
    fn turns_of_failure_and_success_do_not_flood_the_log() {
        let mut log = OutageLog::default();
        let lines = (0..1_200).filter(|second| {
            let fails = log.fails("busy", Nanos::from_secs(*second));
            log.works();
            fails
        });
        assert_eq!(lines.collect::<Vec<_>>(), [0, 600]);
    }
}
