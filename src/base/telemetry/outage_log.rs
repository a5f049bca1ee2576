//! Limits log lines about an outage: at most one when the outage begins, one every ten minutes, and one when it is
//! over. Nothing is logged here: the caller writes the lines.

use crate::base::clock::Nanos;

/// The shortest time between two lines about failures of one outage, or of successive outages with one reason.
const LOG_INTERVAL: Nanos = Nanos::from_secs(600);

/// Decides which failures and recoveries of one operation are logged.
#[derive(Debug, Default)]
pub struct OutageLog {
    /// The reason of the last failure; empty after a success.
    current_reason: String,
    /// Whether the current outage was logged.
    is_logged: bool,
    /// The reason that was logged last, and when; `None` before the first line.
    last_logged: Option<(String, Nanos)>,
}

impl OutageLog {
    /// Records a failure at `now`, and returns whether to log it. `reason` must not be empty.
    pub fn record_failure(&mut self, reason: &str, now: Nanos) -> bool {
        let is_new_outage = self.current_reason.is_empty();
        reason.clone_into(&mut self.current_reason);
        let should_log = match &self.last_logged {
            // Neither alternating failures and successes nor a second reason during one outage are logged each time.
            Some((logged_reason, logged_at)) => {
                now.since(*logged_at) >= LOG_INTERVAL || is_new_outage && logged_reason != reason
            }
            None => true,
        };
        if should_log {
            self.is_logged = true;
            self.last_logged = Some((reason.to_owned(), now));
        }
        should_log
    }

    /// Records a success, and returns whether to log it: only if it ends an outage that was logged.
    pub fn record_success(&mut self) -> bool {
        self.current_reason.clear();
        std::mem::take(&mut self.is_logged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_when_it_changes_and_every_ten_minutes() {
        let mut log = OutageLog::default();
        let mut logged_seconds = Vec::new();
        // For an hour, every 30 seconds, a request fails for one of two reasons in turn.
        for step in 0..120_u64 {
            let reason = ["refused", "no answer"][(step % 2) as usize];
            if log.record_failure(reason, Nanos::from_secs(30 * step)) {
                logged_seconds.push(30 * step);
            }
        }
        assert_eq!(logged_seconds, [0, 600, 1_200, 1_800, 2_400, 3_000]);
        assert!(log.record_success());
        assert!(!log.record_success());
        assert!(log.record_failure("it answers 401", Nanos::from_secs(3_010)));
    }

    #[test]
    fn turns_of_failure_and_success_do_not_flood_the_log() {
        let mut log = OutageLog::default();
        let logged_seconds = (0..1_200).filter(|second| {
            let is_logged = log.record_failure("busy", Nanos::from_secs(*second));
            log.record_success();
            is_logged
        });
        assert_eq!(logged_seconds.collect::<Vec<_>>(), [0, 600]);
    }
}
