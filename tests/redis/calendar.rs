//! Windows of the calendar in the script: as in `limit::KeyState`, and by the store's clock where clocks differ.

use redis::Value;
use tollgate::base::clock::{Nanos, WallOffset};
use tollgate::limit::calendar::{Calendar, Period};
use tollgate::limit::{Algorithm, Fingerprint, KeyState, Rate, RateLimit, Scale, ThrottleMode};
use tollgate::store::shared::call::CallPart;

use crate::draw::Draw;
use crate::scripted::{Scripted, call, part_at};

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;
/// 2026-11-27 12:00:00 UTC, in microseconds.
const NOON: u64 = 1_795_780_800 * SECOND;

fn quotas(rates: &[(u32, Period)], zone: &str) -> RateLimit {
    let rates = rates.iter().map(|(quota, period)| {
        Rate::of_calendar(*quota, Calendar::new(*period, zone).unwrap()).unwrap()
    });
    RateLimit {
        windows: rates.collect(),
        algorithm: Algorithm::FixedWindow,
        throttle: ThrottleMode::Hard,
        reserves: false,
        max_plan_factor: 1,
    }
}

const MONTH: Period = Period::Month { first_day: 1 };

/// A part of a gateway whose clock shows so many microseconds.
fn ask(limit: &RateLimit, number: u64, cost: u32, wall_micros: u64) -> CallPart {
    part_at(
        limit,
        number,
        7,
        cost,
        Scale::plan(1),
        Nanos(wall_micros * 1_000),
    )
}

#[test]
fn the_script_says_what_a_cell_says() {
    Scripted::each().for_each(|mut store| {
        let seed = 20_261_127;
        let mut draw = Draw::new(seed);
        let mut refused = 0;
        for history in 0..150_u64 {
            let zone = ["UTC", "Europe/Berlin", "America/Havana"][draw.below(3) as usize];
            let first_day = draw.within(1, 31) as u8;
            let most = draw.within(1, 12) as u32;
            let limit = match draw.below(3) {
                0 => quotas(&[(most, Period::Day)], zone),
                1 => quotas(&[(most, Period::Month { first_day })], zone),
                _ => quotas(
                    &[(most, Period::Day), (2 * most, Period::Month { first_day })],
                    zone,
                ),
            };
            let key = Fingerprint(7);
            let mut words = vec![0; limit.max_words()];
            let mut now = NOON + draw.below(1_000 * DAY);
            for step in 0..60 {
                now = match draw.below(12) {
                    // The clock goes back: by hours, or by months.
                    0 => now - draw.below(DAY / 4),
                    1 => now - draw.below(100) * DAY,
                    2 => now + draw.below(40) * DAY,
                    _ => now + draw.below(DAY / 3),
                };
                let cost = draw.within(1, 3) as u32;
                let moment = Nanos(now * 1_000);
                let mut cell = KeyState {
                    limit: &limit,
                    key,
                    wall: WallOffset::default(),
                    words: &mut words,
                };
                cell.follow_clock(moment);
                let mut expected = cell.assess(moment, cost, Scale::plan(1));
                let takes = expected.standing.admits();
                let took = if takes { cost } else { 0 };
                if takes {
                    cell.take_units(&expected, moment, cost, Scale::plan(1));
                } else {
                    refused += 1;
                }
                cell.complete_finding(&mut expected, moment, took, 1);
                store.now = now;
                let said = store.ask(&call(1, [ask(&limit, history, cost, now)]));
                let answer = &said.counters[0];
                let place =
                    format!("history {history} step {step}: {limit:?} {expected:?} {answer:?}");
                assert_eq!(answer.standing, expected.standing, "{place}");
                assert_eq!(answer.remaining, expected.remaining, "{place}");
                assert_eq!(answer.granted_units, took, "{place}");
                assert_eq!(answer.retry_after, expected.wait, "{place}");
                assert_eq!(answer.reset_after, expected.reset, "{place}");
                for index in 0..limit.windows.len() {
                    assert_eq!(
                        answer.used_units[index],
                        cell.used(moment, index),
                        "{place}"
                    );
                }
            }
        }
        assert!(refused > 1_000, "{refused}");
    });
}

/// The clocks of two gateways and of the store are hours apart. The store's clock decides, so no window admits more than
/// its quota, whatever the gateways think.
#[test]
fn gateways_with_other_clocks_share_a_window_exactly() {
    Scripted::each().for_each(|mut store| {
        let limit = quotas(&[(10, Period::Day)], "Europe/Berlin");
        let calendar = limit.windows[0].calendar().unwrap();
        let mut draw = Draw::new(3);
        let (mut window, mut admitted) = (None, 0);
        store.now = NOON;
        for _ in 0..2_000 {
            store.now += draw.below(DAY / 100);
            let current = Some(calendar.window_at(Nanos(store.now * 1_000)));
            if current != window {
                assert!(window.is_none() || admitted == 10, "{admitted}");
                (window, admitted) = (current, 0);
            }
            let (gateway, skew) = match draw.below(2) {
                0 => (1, 20 * 3_600 * SECOND),
                _ => (2, 0),
            };
            let wall = store.now + skew - 9 * 3_600 * SECOND;
            let said = store.ask(&call(gateway, [ask(&limit, 1, 1, wall)]));
            admitted += said.counters[0].granted_units;
            assert!(admitted <= 10);
        }
    });
}

#[test]
fn a_clock_that_is_off_by_windows_is_an_error_and_changes_nothing() {
    Scripted::each().for_each(|mut store| {
        let limit = quotas(&[(2, Period::Day)], "UTC");
        store.now = NOON;
        store.ask(&call(1, [ask(&limit, 1, 1, NOON)]));
        for wall in [NOON - 3 * DAY, NOON + 3 * DAY] {
            let failure = store.fail(&call(2, [ask(&limit, 1, 1, wall)]));
            assert_eq!(failure, "OffCalendar");
        }
        let said = store.ask(&call(1, [ask(&limit, 1, 1, NOON)]));
        assert_eq!(said.counters[0].used_units[0], 2);
    });
}

/// A report must get through, or the gateway could not share its other limits either.
#[test]
fn a_report_counts_where_the_clock_is_off() {
    Scripted::each().for_each(|mut store| {
        let limit = quotas(&[(5, Period::Day)], "UTC");
        store.now = NOON;
        store.ask(&call(1, [ask(&limit, 1, 1, NOON)]));
        let mut report = ask(&limit, 1, 0, NOON + 3 * DAY);
        (report.gateway_total, report.units_in_window) = (3, 3);
        store.ask(&call(2, [report.clone()]));
        let said = store.ask(&call(1, [ask(&limit, 1, 1, NOON)]));
        assert_eq!(said.counters[0].used_units[0], 5);
        // A counter that the store does not have.
        report.name.limit = 2;
        store.ask(&call(2, [report]));
        let said = store.ask(&call(1, [ask(&limit, 2, 5, NOON)]));
        assert!(said.is_admitted);
    });
}

#[test]
fn another_zone_keeps_the_units_of_a_counter() {
    Scripted::each().for_each(|mut store| {
        let (berlin, utc) = (
            quotas(&[(5, MONTH)], "Europe/Berlin"),
            quotas(&[(5, MONTH)], "UTC"),
        );
        store.now = NOON;
        store.ask(&call(1, [ask(&berlin, 1, 4, NOON)]));
        let said = store.ask(&call(1, [ask(&utc, 1, 1, NOON)]));
        assert_eq!(said.counters[0].remaining, 0);
        assert!(!store.ask(&call(2, [ask(&berlin, 1, 1, NOON)])).is_admitted);
        assert!(!store.ask(&call(1, [ask(&utc, 1, 1, NOON)])).is_admitted);
        // 2026-12-01 00:00:00 UTC.
        store.now = NOON + 3 * DAY + DAY / 2;
        assert!(
            store
                .ask(&call(1, [ask(&utc, 1, 5, store.now)]))
                .is_admitted
        );
    });
}

#[test]
fn units_come_back_to_their_own_window_only() {
    Scripted::each().for_each(|mut store| {
        let limit = quotas(&[(10, Period::Day)], "UTC");
        store.now = NOON;
        let want = ask(&limit, 1, 6, NOON);
        let granted = store.ask(&call(1, [want.clone()])).counters[0].granted_at_micros;
        let back = want.give_back_call(1, 2, granted).numbered();
        assert_eq!(store.ask(&back).counters[0].used_units[0], 4);
        store.now += DAY;
        let next = ask(&limit, 1, 6, store.now);
        assert_eq!(store.ask(&call(1, [next])).counters[0].used_units[0], 6);
        // Weeks later, as after an outage.
        let late = want.give_back_call(1, 2, granted).numbered();
        store.ask(&late);
        let said = store.ask(&call(1, [ask(&limit, 1, 1, store.now)]));
        assert_eq!(said.counters[0].used_units[0], 7);
    });
}

#[test]
fn a_counter_lives_until_its_window_ends() {
    Scripted::each().for_each(|mut store| {
        let year = Period::Year {
            first_month: 1,
            first_day: 1,
        };
        let limit = quotas(&[(5, year)], "UTC");
        // 2026-01-01 00:00:00 UTC.
        store.now = 1_767_225_600 * SECOND;
        let part = ask(&limit, 1, 1, store.now);
        store.ask(&call(1, [part.clone()]));
        let mut command = redis::cmd("PTTL");
        command.arg(Scripted::key(&part.name));
        let Value::Int(millis) = store.run(&command) else {
            panic!("no life");
        };
        assert!(millis as u64 > 365 * DAY / 1_000, "{millis}");
        assert!((millis as u64) < 367 * DAY / 1_000, "{millis}");
    });
}
