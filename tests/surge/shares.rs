//! What elastic limits lend: half of the rate and more where the upstream is idle, nothing where it is full.

use crate::alone;
use crate::record::{Record, Span};
use crate::server::Capacity;
use crate::site::{Site, Traffic};
use crate::traffic::{Kind, Source};

const SEED: u64 = 10;
const CAPACITY: Capacity = Capacity {
    workers: 8,
    millis: 20.0,
};
const GATEWAY: &str = "
identity:
  user: { header: x-user, from: [127.0.0.0/8] }
  plan: { header: x-plan, from: [127.0.0.0/8], default: one }
plans: { one: { multiply: 1 }, ten: { multiply: 10 } }
";

fn site(limit: &str) -> Site {
    let elastic = format!(
        "match: /elastic/**\nupstream: up\n\
         limits: {{ share: {{ key: user, plans: true, throttle: elastic, {limit} }} }}\n"
    );
    let low = String::from("match: /low/**\nupstream: up\npriority: low\n");
    Site::start(
        CAPACITY,
        SEED,
        GATEWAY,
        &[("elastic", elastic), ("low", low)],
    )
}

/// Requests of a user that were served in the span.
fn served(record: &Record, user: usize, span: Span) -> f64 {
    record.part(span).of_user(user).with(200)
}

fn factors(record: &Record, span: Span) -> Vec<f64> {
    let factors = record.moments(span).filter_map(|moment| moment.factor);
    factors.collect()
}

/// Until the factor is above 1.8, for 20 s at most.
async fn rise(traffic: &Traffic<'_>, sources: &[Source]) {
    let above = |factor: Option<f64>| factor.is_some_and(|factor| factor > 1.8);
    traffic
        .flow_until(sources, 20.0, |now| above(now.factor))
        .await;
}

#[test]
fn idle_and_saturated() {
    let _alone = alone();
    const RATE: f64 = 40.0;
    const WINDOW: f64 = 2.0;
    let site = site("rate: 80/2s, while: upstream.load < 0.95, at_most: 240/2s");
    let user = Source::greedy(0, "one", 6.0 * RATE);
    // Nine tenths more than is left beside the user.
    let others = Source::many(Kind::Low, 1.9 * (CAPACITY.rate() - RATE));
    let (mut idle, mut full) = (None, None);
    let record = site.run(async |traffic| {
        rise(traffic, &[user]).await;
        idle = Some(traffic.flow(&[user], 2.0 * WINDOW).await);
        traffic.flow(&[user, others], 5.0 * WINDOW).await;
        full = Some(traffic.flow(&[user, others], 4.0 * WINDOW).await);
    });
    let (idle, full) = (idle.unwrap(), full.unwrap());
    let over = |span: Span| served(&record, 0, span) / (RATE * span.seconds());
    let (most, exact) = (over(idle), over(full));
    println!("{most:.3} of the rate while the upstream is idle, {exact:.3} while it is full");
    println!("factors while it is full: {:?}", factors(&record, full));
    let others = record.part(full).of(Kind::Low);
    println!(
        "others: {:.1}/s, {:.1} % served",
        others.rate(),
        others.served()
    );
    assert!(most >= 1.5);
    assert!((0.98..=1.02).contains(&exact));
    assert!(factors(&record, full).iter().all(|factor| *factor == 1.0));
}

/// Two users whose plans are 1 : 10 ask for more than there is.
#[test]
fn plans_share_what_is_spare() {
    let _alone = alone();
    const RATE: f64 = 12.0;
    const WINDOW: f64 = 3.0;
    // A window of the larger plan at once would be more than the upstream bears.
    let site = site(
        "rate: 36/3s, algorithm: gcra, burst: 3, while: upstream.load < 0.95, at_most: 360/3s",
    );
    let users = [
        Source::greedy(0, "one", 90.0),
        Source::greedy(1, "ten", 600.0),
    ];
    let mut shared = None;
    let record = site.run(async |traffic| {
        rise(traffic, &users).await;
        traffic.flow(&users, 2.0 * WINDOW).await;
        shared = Some(traffic.flow(&users, 7.0 * WINDOW).await);
    });
    let shared = shared.unwrap();
    let spare =
        |user, multiply: f64| served(&record, user, shared) - multiply * RATE * shared.seconds();
    let (one, ten) = (spare(0, 1.0), spare(1, 10.0));
    println!("factors: {:?}", factors(&record, shared));
    println!("spare: {one:.0} and {ten:.0}, 1 : {:.2}", ten / one);
    assert!((9.5..=10.5).contains(&(ten / one)));
}
