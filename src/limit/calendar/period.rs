//! Periods of the calendar as whole days: which window has a day, and on which day a window begins. Days are counted from
//! 1970-01-01 in the calendar of some zone; zones are in `zone.rs`.

use std::fmt;

/// The unit of a quota's windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// A day from midnight to midnight.
    Day,
    /// Seven days.
    Week,
    /// A month.
    Month,
    /// Three months.
    Quarter,
    /// Twelve months.
    Year,
    /// All of the time. No policy can write it: it is the window of credits, which no time refills.
    Ever,
}

/// Windows of the calendar, without a zone. Days of a month that it does not have stand for its last day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Period {
    /// Each day.
    Day,
    /// Weeks that begin on this day of the week: 1 is Monday, 7 is Sunday.
    Week {
        /// 1 to 7.
        first_day: u8,
    },
    /// Months that begin on this day.
    Month {
        /// 1 to 31.
        first_day: u8,
    },
    /// Quarters that begin on this day of this month, and every three months after it.
    Quarter {
        /// 1 to 3: the earliest of the four months.
        first_month: u8,
        /// 1 to 31.
        first_day: u8,
    },
    /// Years that begin on this day of this month.
    Year {
        /// 1 to 12.
        first_month: u8,
        /// 1 to 31.
        first_day: u8,
    },
    /// One window that never ends. See [`Calendar::EVER`](super::Calendar::EVER).
    Ever,
}

/// The number of 1970-01-05, the first Monday.
const FIRST_MONDAY: i64 = 4;

impl CalendarUnit {
    /// All units that policies can write, the shortest first.
    pub const ALL: [CalendarUnit; 5] = [
        CalendarUnit::Day,
        CalendarUnit::Week,
        CalendarUnit::Month,
        CalendarUnit::Quarter,
        CalendarUnit::Year,
    ];

    /// The word in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            CalendarUnit::Day => "day",
            CalendarUnit::Week => "week",
            CalendarUnit::Month => "month",
            CalendarUnit::Quarter => "quarter",
            CalendarUnit::Year => "year",
            CalendarUnit::Ever => "ever",
        }
    }

    /// The most days of a window.
    pub const fn max_days(self) -> u64 {
        match self {
            CalendarUnit::Day => 1,
            CalendarUnit::Week => 7,
            CalendarUnit::Month => 31,
            CalendarUnit::Quarter => 92,
            CalendarUnit::Year => 366,
            // All days that seconds of 32 bits have.
            CalendarUnit::Ever => u32::MAX as u64 / 86_400 + 1,
        }
    }

    /// The windows of this unit that begin with the unit itself: on Monday, on the first of a month.
    pub fn usual_period(self) -> Period {
        match self {
            CalendarUnit::Day => Period::Day,
            CalendarUnit::Week => Period::Week { first_day: 1 },
            CalendarUnit::Month => Period::Month { first_day: 1 },
            CalendarUnit::Quarter => Period::Quarter {
                first_month: 1,
                first_day: 1,
            },
            CalendarUnit::Year => Period::Year {
                first_month: 1,
                first_day: 1,
            },
            CalendarUnit::Ever => Period::Ever,
        }
    }
}

impl Period {
    /// The unit of the windows.
    pub fn unit(self) -> CalendarUnit {
        match self {
            Period::Day => CalendarUnit::Day,
            Period::Week { .. } => CalendarUnit::Week,
            Period::Month { .. } => CalendarUnit::Month,
            Period::Quarter { .. } => CalendarUnit::Quarter,
            Period::Year { .. } => CalendarUnit::Year,
            Period::Ever => CalendarUnit::Ever,
        }
    }

    /// The number of the window that has this day. Numbers of consecutive windows are consecutive.
    pub(super) fn number_of(self, day: i64) -> i64 {
        let number = match self {
            Period::Day => day,
            Period::Week { .. } => (day - self.first_day(0)).div_euclid(7),
            Period::Month { .. } | Period::Quarter { .. } | Period::Year { .. } => {
                let (step, first_month, _) = self.months();
                let (year, month, _) = civil_from_day(day);
                (year * 12 + month - 1 - first_month).div_euclid(step)
            }
            Period::Ever => 0,
        };
        // The window of the month may begin later in it.
        if self.first_day(number) > day {
            number - 1
        } else {
            number
        }
    }

    /// Where the windows begin: the month, from 1, and the day of the month, or of the week for weeks. Units that are no
    /// longer than a month have month 1.
    pub fn start(self) -> (u8, u8) {
        match self {
            Period::Day | Period::Ever => (1, 1),
            Period::Week { first_day } | Period::Month { first_day } => (1, first_day),
            Period::Quarter {
                first_month,
                first_day,
            }
            | Period::Year {
                first_month,
                first_day,
            } => (first_month, first_day),
        }
    }

    /// The first day of the window with this number.
    pub(super) fn first_day(self, number: i64) -> i64 {
        match self {
            Period::Day => number,
            Period::Week { first_day } => FIRST_MONDAY + i64::from(first_day) - 1 + 7 * number,
            Period::Month { .. } | Period::Quarter { .. } | Period::Year { .. } => {
                let (step, first_month, first_day) = self.months();
                let month = number * step + first_month;
                let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
                day_from_civil(year, month, first_day.min(days_in_month(year, month)))
            }
            Period::Ever => {
                let days = CalendarUnit::Ever.max_days();
                number.saturating_mul(i64::try_from(days).unwrap_or(i64::MAX))
            }
        }
    }

    /// The number of months of a window, the first month from 0, and the first day. For days and weeks the months have no
    /// meaning.
    fn months(self) -> (i64, i64, i64) {
        let step = match self.unit() {
            CalendarUnit::Day | CalendarUnit::Week | CalendarUnit::Month | CalendarUnit::Ever => 1,
            CalendarUnit::Quarter => 3,
            CalendarUnit::Year => 12,
        };
        let (first_month, first_day) = self.start();
        (step, i64::from(first_month) - 1, i64::from(first_day))
    }
}

/// Writes the unit, and where the windows begin if that is not where the unit does: `month from the 15th`.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.unit().as_str())?;
        if *self == self.unit().usual_period() {
            return Ok(());
        }
        match *self {
            Period::Day | Period::Ever => Ok(()),
            Period::Week { first_day } => {
                let name = WEEKDAYS.get(usize::from(first_day).wrapping_sub(1));
                write!(f, " from {}", name.unwrap_or(&"Monday"))
            }
            Period::Month { first_day } => {
                let suffix = match first_day {
                    1 | 21 | 31 => "st",
                    2 | 22 => "nd",
                    3 | 23 => "rd",
                    _ => "th",
                };
                write!(f, " from the {first_day}{suffix}")
            }
            Period::Quarter {
                first_month,
                first_day,
            }
            | Period::Year {
                first_month,
                first_day,
            } => write!(f, " from {first_month:02}-{first_day:02}"),
        }
    }
}

/// The days of the week, Monday first.
pub const WEEKDAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

/// The number of days of a month, 1 to 12.
pub fn days_in_month(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The day of a date of the proleptic Gregorian calendar, counted from 1970-01-01. (Hinnant: chrono-compatible low-level
/// date algorithms.)
pub fn day_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // A year that begins in March ends with the leap day.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a day that is counted from 1970-01-01.
pub(super) fn civil_from_day(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let day_of_era = day.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}
