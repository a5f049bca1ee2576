//! Windows of the calendar in memcached: two gateways share each exactly.

use tollgate::base::clock::{Clock, Nanos};
use tollgate::limit::calendar::{Calendar, Period};
use tollgate::limit::{Algorithm, Rate, RateLimit, ThrottleMode};

use crate::server::Server;
use crate::site::{Gateway, block_on, clock, part_at};

const DAY: Nanos = Nanos::from_secs(86_400);

fn quota(quota: u32, period: Period, zone: &str) -> RateLimit {
    RateLimit {
        windows: vec![Rate::of_calendar(quota, Calendar::new(period, zone).unwrap()).unwrap()],
        algorithm: Algorithm::FixedWindow,
        throttle: ThrottleMode::Hard,
        reserves: false,
        max_plan_factor: 1,
    }
}

async fn admits(gateway: &Gateway, limit: &RateLimit, key: u128) -> bool {
    let part = part_at(limit, key, gateway.clock.now());
    let said = gateway.decide(std::slice::from_ref(&part)).await.unwrap();
    said.is_admitted
}

#[test]
fn two_gateways_share_each_window_exactly() {
    let server = Server::start();
    block_on(async {
        let first_clock = clock();
        let first = Gateway::start(&[server.address], &first_clock, 1).await;
        // The other gateway's clock is hours behind, so it is in the window before for a while.
        let behind = Nanos(first_clock.now().0 - 5 * 3_600 * 1_000_000_000);
        let second = Gateway::start(&[server.address], &Clock::manual(behind), 2).await;
        for (key, period) in (1..).zip([
            Period::Day,
            Period::Week { first_day: 1 },
            Period::Month { first_day: 31 },
            Period::Year {
                first_month: 4,
                first_day: 1,
            },
        ]) {
            let limit = quota(7, period, "Europe/Berlin");
            let calendar = limit.windows[0].calendar().unwrap();
            let mut admitted = std::collections::BTreeMap::new();
            for step in 0..60 {
                for gateway in [&first, &second] {
                    let window = calendar.window_at(gateway.clock.now());
                    if admits(gateway, &limit, key).await {
                        *admitted.entry(window.start).or_insert(0) += 1;
                    }
                }
                // Dates in memcached are those of its own clock, so the time of the test stays near.
                if step % 20 == 19 && period == Period::Day {
                    for gateway in [&first, &second] {
                        gateway.clock.advance(Nanos(DAY.0 / 2));
                    }
                }
            }
            let least_windows = if period == Period::Day { 2 } else { 1 };
            assert!(
                admitted.len() >= least_windows && admitted.values().all(|units| *units == 7),
                "{period}: {admitted:?}"
            );
        }
    });
}
