//! Reads `quota`, `zone` and `starts`: windows of the calendar in place of a rate. Each quota is read with the usual
//! windows of its unit in UTC; [`align_quota`] moves it to the zone and the start of its limit.

use super::super::super::section::FieldReader;
use super::super::super::table::{TextFormat, ValueShape};
use super::super::ValueError;
use super::super::field::{ListField, scalar_fields};
use super::rates::{RateReader, UNLIMITED};
use crate::base::suggest::nearest_word;
use crate::limit::calendar::{Schedule, WEEKDAYS, days_in_month, zone_names};
use crate::limit::{Alignment, Calendar, CalendarUnit, Period, Rate};

/// A year in which every date of the calendar exists.
const LEAP_YEAR: i64 = 2000;

/// The zone of a quota without `zone`.
const DEFAULT_ZONE: &str = "UTC";

/// Where windows of the calendar begin, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartsConfig {
    /// A day of a month, 1 to 31, or of a week, 1 to 7.
    Day(u8),
    /// A day of the week by its name, 1 to 7.
    Weekday(u8),
    /// A date in each year.
    Date {
        /// 1 to 12.
        month: u8,
        /// 1 to the length of the month in a leap year.
        day: u8,
    },
}

static QUOTA_FORMAT: TextFormat = TextFormat {
    name: "quota",
    pattern: r"^\s*[0-9]+\s*/\s*(day|week|month|quarter|year)\s*$",
    doc: "How many in each window of the calendar: N/unit with day, week, month, quarter or year, for instance 10000/month.",
};

static STARTS_FORMAT: TextFormat = TextFormat {
    name: "starts",
    pattern: r"^\s*([Mm]onday|[Tt]uesday|[Ww]ednesday|[Tt]hursday|[Ff]riday|[Ss]aturday|[Ss]unday|[0-9]{2}-[0-9]{2})\s*$",
    doc: "Where windows of the calendar begin: a day of the week, or a date as MM-DD.",
};

scalar_fields! {
    /// A field with a quota such as `10000/month`.
    pub struct QuotaField: Rate =
        ValueShape::Format(&QUOTA_FORMAT), "a quota such as 10000/month", parse_utc_quota;
    /// A field with the name of a time zone.
    pub struct ZoneField: String = ValueShape::Text, "a time zone such as Europe/Berlin", parse_zone;
    /// A field that says where windows of the calendar begin.
    pub struct StartsField: StartsConfig = ValueShape::AnyOf(&[
        ValueShape::WholeNumber(1, 31),
        ValueShape::Format(&STARTS_FORMAT),
    ]), "a day such as 15, monday or 04-01", parse_starts;
}

impl RateReader for QuotaField {
    const EXAMPLE: &str = "{ gold: 100000/month, else: 1000/month }";
    const PLAN_SHAPE: &'static ValueShape = &ValueShape::AnyOf(&[
        ValueShape::Words(&[UNLIMITED]),
        <ListField<QuotaField> as FieldReader>::SHAPE,
    ]);
}

fn parse_utc_quota(text: &str) -> Result<Rate, ValueError> {
    let error = |cause: &dyn std::fmt::Display, help| ValueError {
        message: format!("`{text}` is not a quota: {cause}"),
        help,
        offset: None,
    };
    let (quota, unit) = Rate::parse_quota(text).map_err(|cause| {
        let is_rate = text.parse::<Rate>().is_ok();
        let help = is_rate.then(|| {
            format!("a window that moves with time is a rate: a limit with `rate: {text}`")
        });
        error(&cause, help)
    })?;
    let calendar = Calendar::new(unit.usual_period(), DEFAULT_ZONE);
    let calendar = calendar.map_err(|cause| error(&cause, None))?;
    Rate::of_calendar(quota, calendar).map_err(|cause| error(&cause, None))
}

fn parse_zone(text: &str) -> Result<String, ValueError> {
    let days = Schedule::new(Period::Day, text);
    days.map(|days| days.zone_name().to_owned()).ok_or_else(|| {
        let names = zone_names();
        let nearest = nearest_word(text, names.iter().map(String::as_str));
        let help = match nearest {
            Some(name) => format!("did you mean `{name}`?"),
            None => {
                "write a name of the IANA time zone database, for instance `Europe/Berlin`".into()
            }
        };
        ValueError::new(format!("there is no time zone `{text}`"), help)
    })
}

fn parse_starts(text: &str) -> Result<StartsConfig, ValueError> {
    let trimmed = text.trim();
    let weekday = WEEKDAYS
        .iter()
        .position(|name| name.eq_ignore_ascii_case(trimmed));
    if let Some(index) = weekday {
        return Ok(StartsConfig::Weekday(index as u8 + 1));
    }
    let number = |digits: &str| {
        let is_short = (1..=2).contains(&digits.len());
        let has_only_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
        (is_short && has_only_digits)
            .then(|| digits.parse::<u8>().ok())
            .flatten()
    };
    let starts = match trimmed.split_once('-') {
        None => number(trimmed)
            .filter(|day| (1..=31).contains(day))
            .map(StartsConfig::Day),
        Some((month, day)) => {
            let is_date = |(month, day): &(u8, u8)| {
                let month_days = days_in_month(LEAP_YEAR, (*month).into());
                (1..=12).contains(month) && (1..=month_days).contains(&i64::from(*day))
            };
            let date = number(month).zip(number(day)).filter(is_date);
            date.map(|(month, day)| StartsConfig::Date { month, day })
        }
    };
    starts.ok_or_else(|| {
        let help = "write a day of the month such as 15, a day of the week such as monday, or a date as MM-DD such as 04-01";
        ValueError::new(format!("no window begins at `{text}`"), help)
    })
}

/// The windows of a unit that begin where `starts` says.
///
/// # Errors
///
/// The unit has no such beginning: what is wrong, and what to do.
fn period_of(
    unit: CalendarUnit,
    starts: StartsConfig,
) -> Result<Period, (&'static str, &'static str)> {
    match (unit, starts) {
        (CalendarUnit::Day, _) => Err(("a day begins at midnight", "remove `starts`")),
        (CalendarUnit::Ever, _) => Err(("credits have no windows", "remove `starts`")),
        (CalendarUnit::Week, StartsConfig::Weekday(first_day))
        | (CalendarUnit::Week, StartsConfig::Day(first_day @ 1..=7)) => {
            Ok(Period::Week { first_day })
        }
        (CalendarUnit::Week, _) => Err((
            "a week begins on a day of the week",
            "write `monday` to `sunday`, or 1 to 7",
        )),
        (CalendarUnit::Month, StartsConfig::Day(first_day)) => Ok(Period::Month { first_day }),
        (CalendarUnit::Month, _) => Err((
            "a month begins on a day of the month",
            "write 1 to 31; where a month is shorter, its last day counts",
        )),
        (CalendarUnit::Quarter, StartsConfig::Day(first_day)) => Ok(Period::Quarter {
            first_month: 1,
            first_day,
        }),
        (CalendarUnit::Quarter, StartsConfig::Date { month, day }) => Ok(Period::Quarter {
            first_month: (month - 1) % 3 + 1,
            first_day: day,
        }),
        (CalendarUnit::Quarter, _) => Err((
            "a quarter begins on a day of its first month, or on a date",
            "write 1 to 31, or MM-DD such as 02-01",
        )),
        (CalendarUnit::Year, StartsConfig::Date { month, day }) => Ok(Period::Year {
            first_month: month,
            first_day: day,
        }),
        (CalendarUnit::Year, _) => Err((
            "a year begins on a date",
            "write MM-DD, for instance `starts: 04-01`",
        )),
    }
}

/// A quota in the zone of this name, with windows that begin where `starts` says. Other rates stay as they are.
///
/// # Errors
///
/// Windows of the quota's unit cannot begin there, or the process has used too many calendars.
pub(super) fn align_quota(
    quota: Rate,
    zone: Option<&str>,
    starts: Option<StartsConfig>,
) -> Result<Rate, ValueError> {
    let Some(usual) = quota.calendar() else {
        return Ok(quota);
    };
    let unit = usual.period().unit();
    let period = match starts {
        None => unit.usual_period(),
        Some(starts) => {
            period_of(unit, starts).map_err(|(message, help)| ValueError::new(message, help))?
        }
    };
    let calendar = Calendar::new(period, zone.unwrap_or(DEFAULT_ZONE));
    let calendar = calendar.map_err(|error| ValueError {
        message: error.to_string(),
        help: None,
        offset: None,
    })?;
    Ok(quota.aligned(Alignment::Calendar(calendar)))
}
