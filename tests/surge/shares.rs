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
/// Spans that are measured until one is as it should be.
const ATTEMPTS: usize = 6;
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
    // Evenly, so that any span has the same share of it.
    let site = site(
        "rate: 80/2s, algorithm: gcra, burst: 4, while: upstream.load < 0.95, at_most: 240/2s",
    );
    let user = Source::greedy(0, "one", 6.0 * RATE);
    // Nine tenths more than is left beside the user.
    let others = Source::many(Kind::Low, 1.9 * (CAPACITY.rate() - RATE));
    let (mut idle, mut full) = (None, None);
    // A machine that stands still for a moment takes from one span and gives to none.
    let record = site.run(async |traffic| {
        rise(traffic, &[user]).await;
        let rate = |span: Span| traffic.served(0, span) / (RATE * span.seconds());
        for _ in 0..ATTEMPTS {
            let span = traffic.flow(&[user], 2.0 * WINDOW).await;
            println!("{:.3} of the rate while the upstream is idle", rate(span));
            idle = Some(rate(span)).filter(|rate| *rate >= 1.5);
            if idle.is_some() {
                break;
            }
        }
        traffic.flow(&[user, others], 5.0 * WINDOW).await;
        for _ in 0..ATTEMPTS {
            let span = traffic.flow(&[user, others], 4.0 * WINDOW).await;
            println!("{:.3} of the rate while it is full", rate(span));
            assert!(rate(span) <= 1.05);
            full = Some(span).filter(|span| (0.98..=1.02).contains(&rate(*span)));
            if full.is_some() {
                break;
            }
        }
    });
    assert!(idle.is_some(), "nothing is lent");
    let full = full.unwrap();
    println!("factors while it is full: {:?}", factors(&record, full));
    let others = record.part(full).of(Kind::Low);
    println!(
        "others: {:.1}/s, {:.1} % served",
        others.rate(),
        others.served()
    );
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
    let record = site.run(async |traffic| {
        rise(traffic, &users).await;
        traffic.flow(&users, 2.0 * WINDOW).await;
        for attempt in 1_usize.. {
            let span = traffic.flow(&users, 7.0 * WINDOW).await;
            let spare = |user, plan_factor: f64| {
                traffic.served(user, span) - plan_factor * RATE * span.seconds()
            };
            let (one, ten) = (spare(0, 1.0), spare(1, 10.0));
            println!("spare: {one:.0} and {ten:.0}, 1 : {:.2}", ten / one);
            if one > 20.0 && (9.5..=10.5).contains(&(ten / one)) {
                break;
            }
            assert!(attempt < ATTEMPTS, "it is not shared by the plans");
        }
    });
    let all = Span {
        from: 0.0,
        to: f64::MAX,
    };
    println!("factors: {:?}", factors(&record, all));
}
