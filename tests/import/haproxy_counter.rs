//! What a comparison of a rate of HAProxy becomes, beside HAProxy's own counter of two periods, which is written out here.

use tollgate::import::{self, Fate, InputFile, SourceFormat};
use tollgate::limit::RateLimit;

use crate::equality::{Numbers, decide, only_limit};

/// A rate over a period, as `update_freq_ctr_period` and `read_freq_ctr_period` compute it, in milliseconds.
struct PeriodCounter {
    period: i64,
    start: Option<i64>,
    current: i64,
    previous: i64,
}

impl PeriodCounter {
    fn new(period: i64) -> PeriodCounter {
        PeriodCounter {
            period,
            start: None,
            current: 0,
            previous: 0,
        }
    }

    fn count(&mut self, now: i64) {
        let start = *self.start.get_or_insert(now);
        if now - start >= self.period {
            let is_next = now - start < 2 * self.period;
            self.previous = if is_next { self.current } else { 0 };
            self.start = Some(if is_next { start + self.period } else { now });
            self.current = 0;
        }
        self.current += 1;
    }

    fn value(&self, now: i64) -> i64 {
        let remaining = self.start.unwrap_or(now) + self.period - now;
        self.current + self.previous * remaining / self.period
    }
}

/// The limit that `gt MOST` of a rate over so many seconds becomes, and what the report says of the line.
fn imported(most: i64, seconds: i64) -> (RateLimit, Fate, String) {
    let text = format!(
        "defaults\n mode http\nfrontend f\n bind :80\n stick-table type ip size 1m expire 1h store http_req_rate({seconds}s)\n \
         http-request track-sc0 src\n http-request deny if {{ sc_http_req_rate(0) gt {most} }}\n default_backend b\n\
         backend b\n server s 127.0.0.1:3000\n"
    );
    let source = InputFile {
        path: "haproxy.cfg".into(),
        text,
    };
    let imported = import::import(SourceFormat::Haproxy, &[source]).expect("an import");
    let line = imported
        .report
        .iter()
        .find(|line| line.line == 7)
        .expect("the rule");
    (only_limit(&imported), line.fate, line.note.clone())
}

#[test]
fn no_window_has_more_than_haproxy_admits_in_a_fresh_one() {
    for (most, seconds) in [
        (1, 1),
        (3, 10),
        (20, 10),
        (100, 60),
        (600, 3_600),
        (2_000, 60),
    ] {
        let (limit, fate, note) = imported(most, seconds);
        assert_eq!(fate, Fate::Changed, "gt {most}");
        assert!(note.contains("counts refused requests too"), "{note}");
        for seed in 0..8 {
            compare(&limit, most, seconds * 1_000, seed);
        }
    }
}

fn compare(limit: &RateLimit, most: i64, period: i64, seed: u64) {
    let mut numbers = Numbers(seed);
    let mut counter = PeriodCounter::new(period);
    let mut words = vec![0; limit.max_words()];
    let mut admitted: Vec<i64> = Vec::new();
    let begin = 1_000_000;
    let mut now = begin;
    let pace = u64::try_from(period / most).expect("a pace");
    for step in 0..most * 6 + 200 {
        let pause = match numbers.below(10) {
            0 => numbers.below(pace * 8 + 2),
            1..=4 => 0,
            _ => numbers.below(pace + 2),
        };
        now += i64::try_from(pause).expect("a pause");
        counter.count(now);
        let theirs = counter.value(now) <= most;
        let ours = decide(limit, &mut words, now).is_some();
        if now < begin + period {
            assert_eq!(
                theirs, ours,
                "seed {seed}, step {step}: {most} in {period} ms"
            );
        }
        if !ours {
            continue;
        }
        // The request that is `most` requests back is no longer in the window.
        if let Some(earlier) = admitted
            .len()
            .checked_sub(usize::try_from(most).expect("a number"))
        {
            assert!(
                now - admitted[earlier] >= period,
                "seed {seed}, step {step}: more than {most} in {period} ms"
            );
        }
        admitted.push(now);
    }
    assert!(admitted.len() >= usize::try_from(most).expect("a number"));
}

/// What the note says: HAProxy counts refused requests too.
#[test]
fn a_client_that_does_not_slow_down_gets_more_than_in_haproxy() {
    let (limit, _, _) = imported(20, 10);
    let mut counter = PeriodCounter::new(10_000);
    let mut words = vec![0; limit.max_words()];
    let (mut theirs, mut ours) = (0, 0);
    for step in 0..1_000 {
        let now = 1_000_000 + step * 100;
        counter.count(now);
        theirs += i64::from(counter.value(now) <= 20);
        ours += i64::from(decide(&limit, &mut words, now).is_some());
    }
    assert_eq!((theirs, ours), (20, 200));
}
