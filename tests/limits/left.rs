//! What is said to be left: never more than the quota beside it, and never for longer than its window.

use tollgate::base::clock::Nanos;

use crate::Site;
use crate::common::{Message, Upstream};

const USERS: &str = "identity: { user: { header: x-user, from: [127.0.0.0/8] } }\n";

/// The number behind `;NAME=` of a field.
fn parameter(field: &str, name: &str) -> Option<u64> {
    let (_, rest) = field.split_once(&format!(";{name}="))?;
    rest.split(';').next()?.parse().ok()
}

#[track_caller]
fn bounded(answer: &Message, place: &str) {
    let field = |name: &str| {
        answer
            .field(name)
            .unwrap_or_else(|| panic!("{place}: no {name}"))
    };
    let (left, policy) = (field("ratelimit"), field("ratelimit-policy"));
    let (quota, window) = (parameter(policy, "q"), parameter(policy, "w"));
    assert!(parameter(left, "r") <= quota, "{place}: {left}, {policy}");
    assert!(parameter(left, "t") <= window, "{place}: {left}, {policy}");
    let number = |name: &str| field(name).parse::<u64>().unwrap();
    let (remaining, limit) = (number("x-ratelimit-remaining"), number("x-ratelimit-limit"));
    assert!(remaining <= limit, "{place}: {remaining} of {limit}");
    assert!(Some(number("x-ratelimit-reset")) <= window, "{place}");
}

#[test]
fn no_more_than_the_quota_and_no_longer_than_the_window() {
    for rest in [
        "rate: 5/s, algorithm: gcra, burst: 50",
        "rate: 5/m, algorithm: gcra, burst: 50",
        "rate: 10/m, algorithm: gcra, burst: 1",
        "rate: 20/20s, algorithm: sliding-window",
        "rate: 20/20s, algorithm: sliding-log, throttle: soft 10%",
        "rate: 20/20s, algorithm: multi-level",
        "rate: 7/3s, algorithm: fixed-window",
        "rate: [1/s, 4/5s]",
    ] {
        let limit = format!("l: {{ key: user, {rest} }}");
        let gateway = format!("headers: both\n{USERS}");
        let site = Site::start(&gateway, &[&limit], Upstream::plain());
        let mut step = 0x9e37_79b9_u64;
        for turn in 0..80 {
            let answer = site.get("x-user: u\r\n");
            bounded(&answer, &format!("{rest}, request {turn}"));
            // Pseudo-random steps of up to 4 s, most of them none.
            step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if turn % 3 == 0 {
                site.clock.advance(Nanos::from_millis(step >> 52));
            }
        }
    }
}

/// The first request of each user waits for nobody.
#[test]
fn a_delay_admits_more_than_the_quota_and_says_the_quota() {
    let limit = "l: { key: user, rate: 5/s, algorithm: leaky-bucket, delay: 10s }";
    let gateway = format!("headers: both\n{USERS}");
    let site = Site::start(&gateway, &[limit], Upstream::plain());
    for user in 0..20 {
        let answer = site.get(&format!("x-user: u{user}\r\n"));
        bounded(&answer, "leaky bucket");
        site.clock.advance(Nanos::from_millis(70));
    }
}
