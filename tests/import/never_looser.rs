//! Where an import says that a limit is stricter than its source, it never admits more. The source's own arithmetic is
//! written out here, and both get the same arrivals at random times.

use tollgate::import::{self, InputFile, SourceFormat};
use tollgate::limit::RateLimit;

use crate::equality::{Numbers, decide, only_limit};

/// The token bucket of Traefik: that of `golang.org/x/time/rate`, of which its middleware reserves a token and waits.
struct TraefikBucket {
    average: i128,
    /// Nanoseconds.
    period: i128,
    burst: i128,
    /// Tokens times the period, and when they were counted.
    tokens: i128,
    last: i128,
}

impl TraefikBucket {
    fn new(average: u32, period_millis: u64, burst: u32) -> TraefikBucket {
        let period = i128::from(period_millis) * 1_000_000;
        TraefikBucket {
            average: average.into(),
            period,
            burst: burst.into(),
            tokens: i128::from(burst) * period,
            last: 0,
        }
    }

    /// The longest wait in nanoseconds: half the time of a token, of a rate without its fraction, and 0.5 s below 1/s.
    fn longest_wait(&self) -> i128 {
        let whole_rate = self.average * 1_000_000_000 / self.period;
        if whole_rate < 1 {
            500_000_000
        } else {
            1_000_000_000 / (whole_rate * 2)
        }
    }

    /// Whether a request at a time in nanoseconds is admitted.
    fn admit(&mut self, now: i128) -> bool {
        let came_in = (now - self.last) * self.average;
        let tokens = (self.tokens + came_in).min(self.burst * self.period) - self.period;
        let wait = if tokens < 0 {
            -tokens / self.average
        } else {
            0
        };
        if wait > self.longest_wait() {
            return false;
        }
        (self.tokens, self.last) = (tokens, now);
        true
    }
}

/// The only limit of the policies that a configuration becomes.
fn imported(format: SourceFormat, text: &str) -> RateLimit {
    let source = InputFile {
        path: "source.yaml".into(),
        text: text.into(),
    };
    only_limit(&import::import(format, &[source]).expect("an import"))
}

fn traefik_limit(average: u32, period_millis: u64, burst: u32) -> RateLimit {
    let text = format!(
        "http:\n  routers: {{ a: {{ rule: PathPrefix(`/`), middlewares: [l], service: s }} }}\n  middlewares: {{ l: {{ rateLimit: \
         {{ average: {average}, period: {period_millis}ms, burst: {burst} }} }} }}\n  services: {{ s: {{ loadBalancer: {{ servers: \
         [{{ url: \"http://127.0.0.1:1\" }}] }} }} }}\n"
    );
    imported(SourceFormat::Traefik, &text)
}

#[test]
fn limits_of_traefik_never_admit_more() {
    let rates = [
        (1, 1_000),
        (3, 1_000),
        (100, 1_000),
        (6, 60_000),
        (5, 500),
        (7, 1_500),
        (1, 10_000),
        (40, 3_600_000),
    ];
    for (average, period_millis) in rates {
        for burst in [1, 2, 10, 100] {
            let limit = traefik_limit(average, period_millis, burst);
            compare(&limit, average, period_millis, burst);
        }
    }
}

fn compare(limit: &RateLimit, average: u32, period_millis: u64, burst: u32) {
    let seed = u64::from(average) * 1_000_000 + period_millis * 10 + u64::from(burst);
    let mut numbers = Numbers(seed);
    let mut bucket = TraefikBucket::new(average, period_millis, burst);
    let mut words = vec![0; limit.max_words()];
    let interval = (period_millis / u64::from(average)).max(1);
    let (mut now, mut theirs, mut ours) = (1_000_000_i64, 0_u32, 0_u32);
    for step in 0..3_000 {
        let pause = match numbers.below(200) {
            0 => numbers.below(interval * u64::from(burst + 5) + 2),
            1..=120 => 0,
            _ => numbers.below(interval * 2 + 2),
        };
        now += i64::try_from(pause).expect("a pause");
        theirs += u32::from(bucket.admit(i128::from(now) * 1_000_000));
        ours += u32::from(decide(limit, &mut words, now).is_some());
        assert!(
            ours <= theirs,
            "seed {seed}, step {step}: {ours} and {theirs}"
        );
    }
    // It is not much stricter either: what differs is what Traefik lets wait.
    assert!(ours > 50 && ours < 3_000, "{ours} admitted");
    assert!(ours * 2 >= theirs, "{ours} and {theirs}");
}
