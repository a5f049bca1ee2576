//! Windows around changes of clocks and ends of months, one by one.

use jiff::Timestamp;
use tollgate::base::clock::Nanos;
use tollgate::limit::calendar::{Calendar, CalendarUnit, Period, Schedule};

/// Checks the beginnings of consecutive windows, from the one that contains the first instant.
#[track_caller]
fn check(period: Period, zone: &str, expected_starts: &[&str]) {
    let schedule = Schedule::new(period, zone).unwrap();
    let second = |text: &str| -> u32 {
        let timestamp: Timestamp = text.parse().unwrap();
        timestamp.as_second().try_into().unwrap()
    };
    let mut at = second(expected_starts[0]);
    for text in expected_starts {
        let window = schedule.window_at(at);
        let got = Timestamp::from_second(window.start.into()).unwrap();
        assert_eq!(got.to_string(), *text, "{zone}");
        assert_eq!(window.start, second(text));
        at = window.end;
    }
}

const fn month(first_day: u8) -> Period {
    Period::Month { first_day }
}

#[test]
fn a_day_of_23_hours() {
    let starts = ["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"];
    check(Period::Day, "Europe/Berlin", &starts);
}

#[test]
fn a_day_of_25_hours() {
    let starts = ["2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"];
    check(Period::Day, "Europe/Berlin", &starts);
}

#[test]
fn a_day_of_23_and_a_half_hours() {
    let starts = ["2026-10-03T13:30:00Z", "2026-10-04T13:00:00Z"];
    check(Period::Day, "Australia/Lord_Howe", &starts);
}

#[test]
fn a_day_of_24_and_a_half_hours() {
    let starts = ["2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"];
    check(Period::Day, "Australia/Lord_Howe", &starts);
}

#[test]
fn a_midnight_that_does_not_exist_in_sao_paulo() {
    let starts = [
        "2018-11-03T03:00:00Z",
        "2018-11-04T03:00:00Z",
        "2018-11-05T02:00:00Z",
    ];
    check(Period::Day, "America/Sao_Paulo", &starts);
}

#[test]
fn a_clock_that_is_put_back_at_midnight_in_sao_paulo() {
    let starts = [
        "2018-02-17T02:00:00Z",
        "2018-02-18T03:00:00Z",
        "2018-02-19T03:00:00Z",
    ];
    check(Period::Day, "America/Sao_Paulo", &starts);
}

#[test]
fn a_midnight_that_comes_twice_in_havana() {
    let starts = [
        "2023-11-04T04:00:00Z",
        "2023-11-05T04:00:00Z",
        "2023-11-06T05:00:00Z",
    ];
    check(Period::Day, "America/Havana", &starts);
}

#[test]
fn a_midnight_that_does_not_exist_in_havana() {
    let starts = ["2023-03-12T05:00:00Z", "2023-03-13T04:00:00Z"];
    check(Period::Day, "America/Havana", &starts);
}

#[test]
fn a_midnight_that_does_not_exist_in_beirut() {
    let starts = ["2026-03-28T22:00:00Z", "2026-03-29T21:00:00Z"];
    check(Period::Day, "Asia/Beirut", &starts);
}

#[test]
fn a_clock_that_is_put_back_at_midnight_in_cairo() {
    let starts = [
        "2024-10-30T21:00:00Z",
        "2024-10-31T22:00:00Z",
        "2024-11-01T22:00:00Z",
    ];
    check(Period::Day, "Africa/Cairo", &starts);
}

#[test]
fn a_quarter_of_an_hour_that_does_not_exist() {
    let starts = [
        "1985-12-30T18:30:00Z",
        "1985-12-31T18:30:00Z",
        "1986-01-01T18:15:00Z",
    ];
    check(Period::Day, "Asia/Kathmandu", &starts);
}

#[test]
fn a_day_that_does_not_exist() {
    // Samoa went from the 29th to the 31st of December 2011.
    let starts = [
        "2011-12-29T10:00:00Z",
        "2011-12-30T10:00:00Z",
        "2011-12-31T10:00:00Z",
    ];
    check(Period::Day, "Pacific/Apia", &starts);
    check(
        month(30),
        "Pacific/Apia",
        &["2011-12-30T10:00:00Z", "2012-01-29T10:00:00Z"],
    );
}

#[test]
fn months_from_the_31st() {
    let starts = [
        "2026-01-31T00:00:00Z",
        "2026-02-28T00:00:00Z",
        "2026-03-31T00:00:00Z",
        "2026-04-30T00:00:00Z",
        "2026-05-31T00:00:00Z",
    ];
    check(month(31), "UTC", &starts);
}

#[test]
fn months_from_the_30th_in_a_leap_year() {
    let starts = [
        "2024-01-30T00:00:00Z",
        "2024-02-29T00:00:00Z",
        "2024-03-30T00:00:00Z",
    ];
    check(month(30), "UTC", &starts);
}

#[test]
fn a_month_over_a_change_of_the_clock() {
    let starts = [
        "2026-10-14T22:00:00Z",
        "2026-11-14T23:00:00Z",
        "2026-12-14T23:00:00Z",
    ];
    check(month(15), "Europe/Berlin", &starts);
}

#[test]
fn the_february_of_2100_has_28_days() {
    check(
        month(1),
        "UTC",
        &["2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z"],
    );
}

#[test]
fn years_from_the_leap_day() {
    let leap_day = Period::Year {
        first_month: 2,
        first_day: 29,
    };
    let starts = [
        "2023-02-28T00:00:00Z",
        "2024-02-29T00:00:00Z",
        "2025-02-28T00:00:00Z",
    ];
    check(leap_day, "UTC", &starts);
}

#[test]
fn the_financial_year_of_india() {
    let april = Period::Year {
        first_month: 4,
        first_day: 1,
    };
    let starts = ["2025-03-31T18:30:00Z", "2026-03-31T18:30:00Z"];
    check(april, "Asia/Kolkata", &starts);
}

#[test]
fn quarters_from_the_end_of_november() {
    let quarter = Period::Quarter {
        first_month: 2,
        first_day: 30,
    };
    let starts = [
        "2026-11-30T00:00:00Z",
        "2027-02-28T00:00:00Z",
        "2027-05-30T00:00:00Z",
        "2027-08-30T00:00:00Z",
        "2027-11-30T00:00:00Z",
        "2028-02-29T00:00:00Z",
    ];
    check(quarter, "UTC", &starts);
}

#[test]
fn weeks_from_sunday_over_a_change_of_the_clock() {
    let starts = [
        "2026-03-01T05:00:00Z",
        "2026-03-08T05:00:00Z",
        "2026-03-15T04:00:00Z",
    ];
    check(Period::Week { first_day: 7 }, "America/New_York", &starts);
}

/// What is used of credits counts whenever that is asked.
#[test]
fn credits_have_one_window() {
    let ever = Calendar::new(Period::Ever, "Europe/Berlin").unwrap();
    assert_eq!(ever, Calendar::EVER);
    let schedule = Schedule::new(Period::Ever, "Pacific/Apia").unwrap();
    for second in [0, 1, 1_796_040_000, u32::MAX - 1] {
        let wall = Nanos::from_secs(second.into());
        let windows = [schedule.window_at(second), ever.window_at(wall)];
        for window in windows {
            assert_eq!((window.start, window.end), (0, u32::MAX), "{second}");
        }
    }
    assert_eq!(ever.window_at(Nanos(u64::MAX)).start, 0);
    assert!(
        !CalendarUnit::ALL.contains(&CalendarUnit::Ever),
        "no policy can write it"
    );
}

#[test]
fn the_first_and_the_last_window() {
    let schedule = Schedule::new(month(15), "Asia/Tokyo").unwrap();
    let first = schedule.window_at(0);
    assert_eq!((first.start, first.end), (0, 14 * 86_400 - 9 * 3_600));
    let last = schedule.window_at(u32::MAX - 1);
    assert_eq!(last.end, u32::MAX);
}
