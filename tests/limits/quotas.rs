//! Quotas by the calendar, as clients see them.

use tollgate::base::clock::Nanos;
use tollgate::limit::calendar::{Calendar, Period};

use crate::Site;
use crate::common::{Message, Upstream};

const GATEWAY: &str = "headers: both\n\
    identity: { user: { header: x-user, from: [127.0.0.0/8] }, plan: { header: x-plan, from: [127.0.0.0/8], default: free } }\n\
    plans: { free: { multiply: 1 }, gold: { multiply: 1 } }\n";

fn field<'m>(message: &'m Message, name: &str) -> &'m str {
    message.field(name).unwrap_or_else(|| panic!("no {name}"))
}

/// The whole seconds to an instant of wall time, rounded up; a manual clock shows wall time.
fn seconds_to(site: &Site, second: u32) -> u64 {
    Nanos::from_secs(second.into())
        .since(site.clock.now())
        .ceil_secs()
}

#[test]
fn a_client_is_told_its_window() {
    let limit = "monthly: { key: user, quota: 3/month, zone: Europe/Berlin, starts: 15 }";
    let site = Site::start(GATEWAY, &[limit], Upstream::plain());
    let calendar = Calendar::new(Period::Month { first_day: 15 }, "Europe/Berlin").unwrap();
    let mut lengths = Vec::new();
    for _ in 0..3 {
        let window = calendar.window_at(site.clock.now());
        let length = window.length().ceil_secs();
        lengths.push(length);
        for left in [2, 1, 0] {
            let answer = site.get("x-user: u\r\n");
            assert_eq!(answer.status(), 200);
            let policy = format!("\"monthly\";q=3;w={length}");
            assert_eq!(field(&answer, "ratelimit-policy"), policy);
            let reset = seconds_to(&site, window.end);
            let expected = format!("\"monthly\";r={left};t={reset}");
            assert_eq!(field(&answer, "ratelimit"), expected);
            site.clock.advance(Nanos::from_millis(1_300));
        }
        for _ in 0..3 {
            let refused = site.get("x-user: u\r\n");
            assert_eq!(refused.status(), 429);
            let wait = seconds_to(&site, window.end);
            assert_eq!(field(&refused, "retry-after"), wait.to_string());
            let policy = format!("\"monthly\";q=3;w={length}");
            assert_eq!(field(&refused, "ratelimit-policy"), policy);
        }
        let wait = seconds_to(&site, window.end);
        site.clock.advance(Nanos::from_secs(wait - 1));
        let early = site.get("x-user: u\r\n");
        assert_eq!((early.status(), field(&early, "retry-after")), (429, "1"));
        // A client that waits exactly as long as it was told to.
        site.clock.advance(Nanos::from_secs(1));
    }
    lengths.sort_unstable();
    lengths.dedup();
    assert!(lengths.len() > 1, "months of one length: {lengths:?}");
}

#[test]
fn plans_have_quotas_of_their_own() {
    let limit = "q: { key: user, quota: { gold: [4/day, 6/month], free: 2/day, else: unlimited } }";
    let site = Site::start(GATEWAY, &[limit], Upstream::plain());
    let passing = |plan: &str, user: &str| {
        let fields = format!("x-user: {user}\r\nx-plan: {plan}\r\n");
        (0..20)
            .take_while(|_| site.get(&fields).status() == 200)
            .count()
    };
    assert_eq!((passing("free", "a"), passing("gold", "b")), (2, 4));
    site.clock.advance(Nanos::from_secs(86_400));
    assert_eq!((passing("free", "a"), passing("gold", "b")), (2, 2));
}

#[test]
fn costs_and_soft_quotas() {
    let limits = [
        "tokens: { key: user, quota: 10/week, count: cost header x-cost, reserve: 4 }",
        "soft: { key: user, quota: 4/year, throttle: soft 50% }",
    ];
    let upstream = Upstream::scripted(|mut served, _| {
        while served.request().is_ok() {
            served.send("HTTP/1.1 200 OK\r\nx-cost: 3\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let site = Site::start(GATEWAY, &limits, upstream);
    let statuses: Vec<u16> = (0..4).map(|_| site.get("x-user: u\r\n").status()).collect();
    assert_eq!(statuses, [200, 200, 200, 429], "a fourth would hold 4 of 1");
    site.clock.advance(Nanos::from_secs(7 * 86_400));
    let statuses: Vec<u16> = (0..4).map(|_| site.get("x-user: u\r\n").status()).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    site.clock.advance(Nanos::from_secs(7 * 86_400));
    assert_eq!(site.get("x-user: u\r\n").status(), 429, "six a year");
}
