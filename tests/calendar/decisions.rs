//! The memory store counts in windows of the calendar: never more than the quota in one, and all of it in the next.

use smallvec::SmallVec;
use tollgate::base::clock::{Nanos, WallOffset};
use tollgate::limit::calendar::{Calendar, Period};
use tollgate::limit::{
    Algorithm, Alignment, Fingerprint, LimitFinding, LimitStanding, Rate, RateLimit, Scale,
    ThrottleMode,
};
use tollgate::store::{LimitItem, MemoryStore, RegisteredLimit, Settings};

use crate::properties::Draw;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

/// A limit in a store, used by one key.
struct Subject {
    memory: MemoryStore,
    limit: RateLimit,
    registered: RegisteredLimit,
}

fn limit_of(rates: Vec<Rate>) -> RateLimit {
    RateLimit {
        windows: rates,
        algorithm: Algorithm::FixedWindow,
        throttle: ThrottleMode::Hard,
        reserves: false,
        max_plan_factor: 1,
    }
}

fn quota(quota: u32, period: Period, zone: &str) -> Rate {
    Rate::of_calendar(quota, Calendar::new(period, zone).unwrap()).unwrap()
}

impl Subject {
    fn new(rates: Vec<Rate>) -> Subject {
        let budget_bytes = Settings::MIN_BUDGET_BYTES;
        let memory = MemoryStore::new(Settings { budget_bytes }).unwrap();
        let limit = limit_of(rates);
        let registered = memory.register("limit", &limit).unwrap();
        Subject {
            memory,
            limit,
            registered,
        }
    }

    /// The limit after a reload.
    fn edit(&mut self, rates: Vec<Rate>) {
        self.limit = limit_of(rates);
        self.registered = self.memory.register("limit", &self.limit).unwrap();
    }

    fn ask(&self, now: u64, cost: u32, takes: bool) -> LimitFinding {
        let item = LimitItem {
            limit: &self.limit,
            slot: self.registered.slot(),
            key: Fingerprint(7 << 64 | 7),
            cost,
            scale: Scale::plan(1),
            is_shadow: false,
            parents: &[],
        };
        let mut findings = SmallVec::new();
        match takes {
            true => self.memory.take(&[item], Nanos(now), &mut findings),
            false => self.memory.peek(&[item], Nanos(now), &mut findings),
        };
        findings[0]
    }

    fn admits(&self, now: u64) -> bool {
        self.ask(now, 1, true).standing.admits()
    }

    /// How many single units are admitted at once, at most 100.
    fn take_all(&self, now: u64) -> usize {
        (0..100).take_while(|_| self.admits(now)).count()
    }
}

/// Seconds of wall time.
fn at(text: &str) -> u64 {
    let timestamp: jiff::Timestamp = text.parse().unwrap();
    timestamp.as_second() as u64 * SECOND
}

#[test]
fn a_window_never_admits_more_than_its_quota() {
    let zones = [
        "UTC",
        "Europe/Berlin",
        "America/Havana",
        "Pacific/Apia",
        "Asia/Beirut",
    ];
    let mut draw = Draw::new(5);
    let mut refusals = 0;
    for history in 0..200_u32 {
        let period = match draw.below(5) {
            0 => Period::Day,
            1 => Period::Week {
                first_day: 1 + draw.below(7) as u8,
            },
            2 => Period::Quarter {
                first_month: 1 + draw.below(3) as u8,
                first_day: 31,
            },
            3 => Period::Year {
                first_month: 2,
                first_day: 29,
            },
            _ => Period::Month {
                first_day: 28 + draw.below(4) as u8,
            },
        };
        let zone = zones[draw.below(zones.len() as u32) as usize];
        let calendar = Calendar::new(period, zone).unwrap();
        let most = 1 + draw.below(20);
        let subject = Subject::new(vec![Rate::of_calendar(most, calendar).unwrap()]);
        // The store's clock began at some time of the wall clock.
        let offset =
            u64::from(draw.below(100 * 365)) * DAY + u64::from(draw.below(86_400)) * SECOND;
        subject.memory.set_wall(WallOffset(offset as i64));
        let length = period.unit().max_days() * DAY;
        let mut now = DAY;
        let (mut window, mut admitted) = (calendar.window_at(Nanos(offset + now)), 0);
        for step in 0..60 {
            let about = format!("history {history} step {step}: {calendar} {most} {now}");
            let current = calendar.window_at(Nanos(offset + now));
            if current != window {
                (window, admitted) = (current, 0);
            }
            let cost = 1 + draw.below(4);
            let finding = subject.ask(now, cost, true);
            assert_eq!(finding.calendar_window, Some(window), "{about}");
            let end = u64::from(window.end) * SECOND - offset;
            match finding.standing {
                LimitStanding::Within => {
                    admitted += cost;
                    assert!(admitted <= most, "{about}");
                    assert_eq!(finding.remaining, most - admitted, "{about}");
                    assert_eq!(finding.reset, Nanos(end - now), "{about}");
                }
                LimitStanding::Refused => {
                    refusals += 1;
                    assert!(admitted + cost > most, "{about}");
                    // The next window, to the nanosecond: a second is the unit of Retry-After, and rounded up.
                    assert_eq!(finding.wait, Nanos(end - now), "{about}");
                    let early = subject.ask(end - 1, cost, false);
                    assert_eq!(early.standing, LimitStanding::Refused, "{about}");
                    let in_time = now + finding.wait.ceil_secs() * SECOND;
                    assert!(
                        subject.ask(in_time, cost, false).standing.admits(),
                        "{about}"
                    );
                }
                _ => assert!(cost > most, "{about}"),
            }
            now += match draw.below(8) {
                0 => end - now,
                1 => (end - now).saturating_sub(1),
                2 => length + u64::from(draw.below(86_400)) * SECOND,
                _ => u64::from(draw.below(1_000)) * (length / 20_000),
            };
        }
    }
    assert!(refusals > 1_000, "{refusals}");
}

#[test]
fn a_clock_that_is_put_back_over_midnight_frees_nothing() {
    let subject = Subject::new(vec![quota(3, Period::Day, "Europe/Berlin")]);
    let midnight = at("2026-11-26T23:00:00Z");
    assert_eq!(subject.take_all(midnight - SECOND), 3);
    assert_eq!(subject.take_all(midnight + 10 * SECOND), 3, "the next day");
    // From now on the wall clock is 40 seconds behind, so midnight comes once more.
    subject.memory.set_wall(WallOffset(-(40 * SECOND as i64)));
    for later in [11, 29, 30, 50, 51, 3_600, 86_400 - 1] {
        assert_eq!(subject.take_all(midnight + later * SECOND), 0, "{later} s");
    }
    let refused = subject.ask(midnight + 11 * SECOND, 1, true);
    assert_eq!(refused.wait, Nanos((86_400 + 40 - 11) * SECOND));
    assert_eq!(subject.take_all(midnight + (86_400 + 40) * SECOND), 3);
}

#[test]
fn a_clock_that_was_a_year_ahead_locks_nobody_out() {
    let subject = Subject::new(vec![
        quota(3, Period::Day, "UTC"),
        quota(4, Period::Month { first_day: 1 }, "UTC"),
    ]);
    let now = at("2026-11-27T12:00:00Z");
    subject.memory.set_wall(WallOffset(365 * DAY as i64));
    assert_eq!(subject.take_all(now), 3);
    subject.memory.set_wall(WallOffset(0));
    assert_eq!(subject.take_all(now + SECOND), 0, "they count today");
    assert_eq!(subject.take_all(now + DAY), 1, "and this month");
    assert_eq!(subject.take_all(now + 5 * DAY), 3);
}

#[test]
fn another_zone_or_start_keeps_the_units() {
    let month = |first_day, zone| quota(5, Period::Month { first_day }, zone);
    let mut subject = Subject::new(vec![month(1, "Europe/Berlin")]);
    let now = at("2026-11-20T12:00:00Z");
    assert_eq!(subject.take_all(now), 5);
    for rate in [
        month(1, "UTC"),
        month(1, "Pacific/Auckland"),
        month(15, "UTC"),
        month(1, "UTC"),
    ] {
        subject.edit(vec![rate]);
        assert_eq!(subject.take_all(now), 0, "{rate:?}");
    }
    assert_eq!(subject.take_all(at("2026-11-30T23:59:59Z")), 0);
    assert_eq!(subject.take_all(at("2026-12-01T00:00:00Z")), 5);
}

#[test]
fn windows_of_the_clock_begin_with_their_unit() {
    let aligned = |text: &str| text.parse::<Rate>().unwrap().aligned(Alignment::Clock);
    for (text, start) in [
        ("3/s", "2026-11-27T11:58:03Z"),
        ("3/m", "2026-11-27T11:58:00Z"),
        ("3/15m", "2026-11-27T11:45:00Z"),
        ("3/h", "2026-11-27T11:00:00Z"),
        ("3/d", "2026-11-27T00:00:00Z"),
        ("3/w", "2026-11-23T00:00:00Z"),
    ] {
        let rate = aligned(text);
        let subject = Subject::new(vec![rate]);
        let (start, length) = (at(start), rate.window().0);
        assert_eq!(subject.take_all(start - 1), 3, "{text}");
        assert_eq!(subject.take_all(start), 3, "{text}");
        assert_eq!(subject.take_all(start + length - 1), 0, "{text}");
        let refused = subject.ask(start + length / 4, 1, false);
        assert_eq!(refused.wait, Nanos(length - length / 4), "{text}");
        assert_eq!(subject.take_all(start + length), 3, "{text}");
    }
}
