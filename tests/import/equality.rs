//! Where an import says `taken`, the limit decides as nginx does. nginx's own arithmetic, in thousandths of a request and
//! milliseconds, is written out here, and both get the same arrivals at random times.

use std::path::Path;

use tollgate::base::clock::{Nanos, WallOffset};
use tollgate::import::{self, Fate, Imported, InputFile, SourceFormat};
use tollgate::limit::{Fingerprint, KeyState, RateLimit, RuleLimit, Scale};
use tollgate::policy;
use tollgate::policy::source::MemoryFiles;

/// `limit_req` of nginx, as `ngx_http_limit_req_lookup` and `ngx_http_limit_req_account` compute it.
struct NginxBucket {
    /// Thousandths of a request in a second.
    rate: i64,
    /// Thousandths of a request.
    burst: i64,
    /// The excess and the time of the last request that was admitted.
    last: Option<(i64, i64)>,
}

impl NginxBucket {
    /// The excess of an admitted request at a time in milliseconds; `None` if it is refused.
    fn admit(&mut self, now: i64) -> Option<i64> {
        let excess = match self.last {
            None => 0,
            Some((excess, last)) => (excess - self.rate * (now - last) / 1_000 + 1_000).max(0),
        };
        if excess > self.burst {
            return None;
        }
        self.last = Some((excess, now));
        Some(excess)
    }

    /// How long nginx holds an admitted request back, in milliseconds.
    fn delay(&self, excess: i64) -> i64 {
        excess * 1_000 / self.rate
    }
}

/// The only limit of what a configuration becomes.
pub fn only_limit(imported: &Imported) -> RateLimit {
    let written = imported
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.text.as_str()));
    let files = MemoryFiles::new(written);
    let loaded = policy::load_from(&files, Path::new("tollgate.yaml")).expect("a configuration");
    let [rule] = loaded.ruleset.rules.as_slice() else {
        panic!("{} limits", loaded.ruleset.rules.len());
    };
    let RuleLimit::Rate(limit) = &rule.limit else {
        panic!("no rate");
    };
    limit.clone()
}

/// The only limit of the policy that a configuration becomes, and what the report says of its `limit_req`.
fn imported(rate: &str, arguments: &str) -> (RateLimit, Fate) {
    let text = format!(
        "http {{ limit_req_zone $binary_remote_addr zone=z:1m rate={rate};\n server {{ location / {{\n\
         limit_req zone=z {arguments};\n proxy_pass http://127.0.0.1:3000; }} }} }}"
    );
    let source = InputFile {
        path: "nginx.conf".into(),
        text,
    };
    let imported = import::import(SourceFormat::Nginx, &[source]).expect("an import");
    let fate = imported
        .report
        .iter()
        .find(|line| line.text.starts_with("limit_req zone"));
    (only_limit(&imported), fate.expect("a line").fate)
}

/// A request at a time in milliseconds; how long it waits if it is admitted.
pub fn decide(limit: &RateLimit, words: &mut [u32], now: i64) -> Option<Nanos> {
    let now = Nanos(u64::try_from(now).expect("a time") * 1_000_000);
    let mut state = KeyState {
        limit,
        key: Fingerprint(7),
        wall: WallOffset::default(),
        words,
    };
    let finding = state.assess(now, 1, Scale::plan(1));
    finding.standing.admits().then(|| {
        state.take_units(&finding, now, 1, Scale::plan(1));
        finding.delay
    })
}

/// A generator of numbers that are the same in each run.
pub struct Numbers(pub u64);

impl Numbers {
    /// A number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn taken_limits_decide_as_nginx_does() {
    // Rates whose interval is a whole number of nanoseconds; thousandths are exact for rates by the second.
    for rate in [1_u32, 2, 5, 8, 10, 20, 50, 100, 250] {
        for burst in [0, 1, 3, 20, 57] {
            for mode in ["", " nodelay"] {
                let arguments = if burst == 0 {
                    String::new()
                } else {
                    format!("burst={burst}{mode}")
                };
                let (limit, fate) = imported(&format!("{rate}r/s"), &arguments);
                assert_eq!(fate, Fate::Taken, "{rate} {arguments}");
                let is_delayed = burst > 0 && mode.is_empty();
                compare(&limit, rate, burst, is_delayed);
            }
        }
    }
}

fn compare(limit: &RateLimit, rate: u32, burst: i64, is_delayed: bool) {
    let seed = u64::from(rate) * 1_000 + u64::try_from(burst).expect("a burst");
    let mut numbers = Numbers(seed);
    let mut bucket = NginxBucket {
        rate: i64::from(rate) * 1_000,
        burst: burst * 1_000,
        last: None,
    };
    let mut words = vec![0; limit.max_words()];
    let (mut now, mut admitted, mut refused) = (1_000_000_i64, 0, 0);
    let interval = 1_000 / u64::from(rate);
    for step in 0..4_000 {
        // Bursts, a pace near the rate, and pauses in which all comes back.
        let pause = match numbers.below(40) {
            0 => numbers.below(interval * 80 + 2),
            1..=20 => 0,
            _ => numbers.below(interval * 2 + 2),
        };
        now += i64::try_from(pause).expect("a pause");
        let theirs = bucket.admit(now);
        let ours = decide(limit, &mut words, now);
        assert_eq!(
            theirs.is_some(),
            ours.is_some(),
            "seed {seed}, step {step}: {theirs:?}, {ours:?}"
        );
        match (theirs, ours) {
            (Some(excess), Some(delay)) => {
                admitted += 1;
                let expected = if is_delayed { bucket.delay(excess) } else { 0 };
                let difference = i64::try_from(delay.0 / 1_000_000).expect("a delay") - expected;
                assert!(
                    (0..=1).contains(&difference),
                    "seed {seed}, step {step}: {delay:?}, {expected} ms"
                );
            }
            _ => refused += 1,
        }
    }
    assert!(
        admitted > 100 && refused > 100,
        "{admitted} admitted, {refused} refused"
    );
}

/// nginx rounds rates by the minute down, so that the limit that is written admits more.
#[test]
fn rates_by_the_minute_that_nginx_rounds_are_changed() {
    for (rate, expected) in [
        ("30r/m", Fate::Taken),
        ("60r/m", Fate::Taken),
        ("1r/m", Fate::Changed),
        ("7r/m", Fate::Changed),
    ] {
        let source = InputFile {
            path: "nginx.conf".into(),
            text: format!(
                "limit_req_zone $binary_remote_addr zone=z:1m rate={rate};\n\
                 server {{ location / {{ limit_req zone=z; proxy_pass http://127.0.0.1:1; }} }}"
            ),
        };
        let imported = import::import(SourceFormat::Nginx, &[source]).expect("an import");
        let zone = imported
            .report
            .iter()
            .find(|line| line.line == 1)
            .expect("the zone");
        assert_eq!(zone.fate, expected, "{rate}: {}", zone.note);
    }
}
