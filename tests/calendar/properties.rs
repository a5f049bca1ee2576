//! Properties of all windows: in 200 zones, with all starts, from 1970 to 2100. The zones' own clocks are read by `jiff`,
//! so that they judge the arithmetic.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use tollgate::limit::calendar::{CalendarWindow, Period, Schedule, zone_names};

/// The first second of the year 2100.
const YEAR_2100: u32 = 4_102_444_800;
/// How many zones are tested. The links of the database are spread among them.
const ZONES: usize = 200;
/// The number of instants of each schedule.
const INSTANTS: usize = 6;

/// Numbers that look random (Steele, Lea, Flood: SplitMix). They are the same in each run, so a failure comes again.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (((mixed >> 32) * u64::from(end)) >> 32) as u32
    }
}

/// Every period that a policy can write.
fn all_periods() -> Vec<Period> {
    let mut periods = vec![Period::Day];
    periods.extend((1..=7).map(|first_day| Period::Week { first_day }));
    periods.extend((1..=31).map(|first_day| Period::Month { first_day }));
    for first_month in 1..=12 {
        for first_day in 1..=31 {
            periods.push(Period::Year {
                first_month,
                first_day,
            });
            if first_month <= 3 {
                periods.push(Period::Quarter {
                    first_month,
                    first_day,
                });
            }
        }
    }
    periods
}

/// The clocks of a zone at an instant.
fn clocks(zone: &TimeZone, second: u32) -> DateTime {
    zone.to_datetime(Timestamp::from_second(second.into()).unwrap())
}

/// Whether a window of the period begins on this date.
fn begins_on(period: Period, date: Date) -> bool {
    let is_day = |first_day: u8| date.day() == (first_day as i8).min(date.days_in_month());
    match period {
        Period::Day => true,
        Period::Ever => false,
        Period::Week { first_day } => date.weekday().to_monday_one_offset() == first_day as i8,
        Period::Month { first_day } => is_day(first_day),
        Period::Quarter {
            first_month,
            first_day,
        } => (date.month() - first_month as i8) % 3 == 0 && is_day(first_day),
        Period::Year {
            first_month,
            first_day,
        } => date.month() == first_month as i8 && is_day(first_day),
    }
}

/// The first date from `date` on, on which a window of the period begins.
fn next_beginning(period: Period, date: Date) -> Date {
    let mut date = date;
    while !begins_on(period, date) {
        date = date.tomorrow().unwrap();
    }
    date
}

/// Checks one window by what the clocks of its zone show around its edges.
fn check_window(period: Period, zone: &TimeZone, window: CalendarWindow, about: &str) {
    let CalendarWindow { start, end } = window;
    assert!(start < end, "{about}: {window:?}");
    for edge in [start, end].into_iter().filter(|edge| *edge > 0) {
        let (before, at) = (clocks(zone, edge - 1), clocks(zone, edge));
        let beginning = next_beginning(period, before.date().tomorrow().unwrap());
        // The clocks pass the midnight with which the day begins, and show no day that is later.
        assert!(
            before < beginning.to_datetime(Default::default()),
            "{about}: {before} {at}"
        );
        assert!(at.date() >= beginning, "{about}: {before} {at}");
    }
    // No window begins inside: the days up to the last second are before the next beginning.
    let first_date = clocks(zone, start).date();
    let last_date = clocks(zone, end - 1).date();
    let next = next_beginning(period, first_date.tomorrow().unwrap());
    assert!(
        start == 0 || last_date < next,
        "{about}: {last_date} {next}"
    );
}

#[test]
fn each_instant_is_in_one_window() {
    let database = TimeZoneDatabase::bundled();
    let names = zone_names();
    assert!(names.len() > ZONES, "{}", names.len());
    let step = names.len() as f64 / ZONES as f64;
    let names = (0..ZONES).map(|index| &names[(index as f64 * step) as usize]);
    let mut draw = Draw(1);
    let periods = all_periods();
    for name in names {
        let zone = database.get(name).unwrap();
        for period in &periods {
            let schedule = Schedule::new(*period, name).unwrap();
            let first = draw.below(YEAR_2100);
            let mut window = schedule.window_at(first);
            let about = format!("{name} {period} {first}");
            assert!(window.start <= first && first < window.end, "{about}");
            for _ in 0..INSTANTS {
                if window.end > YEAR_2100 {
                    break;
                }
                check_window(*period, &zone, window, &about);
                let span = window.end - window.start;
                for inside in [
                    window.start,
                    window.start + draw.below(span),
                    window.end - 1,
                ] {
                    assert_eq!(schedule.window_at(inside), window, "{about} {inside}");
                }
                let next = schedule.window_at(window.end);
                assert_eq!(next.start, window.end, "{about}");
                window = next;
            }
        }
    }
}
