//! What the log says of something that may fail for long: that it does, a line every ten minutes, and that it works again.

use crate::base::clock::Nanos;

/// Between two lines of the same thing.
const EVERY: Nanos = Nanos::from_secs(600);

/// See the module.
#[derive(Debug, Default)]
pub struct Told {
    /// Why it fails now; nothing when it works.
    why: String,
    /// Whether the log says that.
    told: bool,
    /// What it said last, and when.
    last: Option<(String, Nanos)>,
}

impl Told {
    /// It fails; whether that is to be said.
    pub fn fails(&mut self, why: &str, now: Nanos) -> bool {
        let began = self.why.is_empty();
        why.clone_into(&mut self.why);
        let news = match &self.last {
            // What fails and works in turn is no news, nor is another reason for the same outage.
            Some((said, at)) => now.since(*at) >= EVERY || began && said != why,
            None => true,
        };
        if news {
            self.told = true;
            self.last = Some((why.to_owned(), now));
        }
        news
    }

    /// It works; whether that is to be said.
    pub fn works(&mut self) -> bool {
        self.why.clear();
        std::mem::take(&mut self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_when_it_changes_and_every_ten_minutes() {
        let mut told = Told::default();
        let mut lines = Vec::new();
        // An hour, in which it is asked every 30 seconds and says why in two ways.
        for step in 0..120_u64 {
            let why = ["refused", "no answer"][(step % 2) as usize];
            if told.fails(why, Nanos::from_secs(30 * step)) {
                lines.push(30 * step);
            }
        }
        assert_eq!(lines, [0, 600, 1_200, 1_800, 2_400, 3_000]);
        assert!(told.works());
        assert!(!told.works());
        assert!(told.fails("it answers 401", Nanos::from_secs(3_010)));
    }

    #[test]
    fn what_fails_and_works_in_turn_floods_no_log() {
        let mut told = Told::default();
        let lines = (0..1_200).filter(|second| {
            let fails = told.fails("busy", Nanos::from_secs(*second));
            told.works();
            fails
        });
        assert_eq!(lines.collect::<Vec<_>>(), [0, 600]);
    }
}
