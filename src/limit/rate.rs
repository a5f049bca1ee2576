//! Rates, written as `5/15m`: a quota of units in a window.

use std::fmt;
use std::str::FromStr;

use super::calendar::{Calendar, CalendarUnit, CalendarWindow};
use super::interval::Interval;
use super::sliding_window::BUCKETS;
use crate::base::clock::Nanos;

/// A quota of units in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// The quota in units, which plans multiply. Zero for credits alone.
    quota: u32,
    /// Units of a grant that no plan multiplies.
    added: u32,
    /// The length of the window, whole seconds where it was parsed.
    window: Nanos,
    /// [`Rate::interval`] without a multiplier.
    interval: Interval,
    /// The length of a bucket of a sliding window.
    bucket_length: Interval,
    /// Where windows begin that do not slide.
    alignment: Alignment,
}

/// Where windows begin that do not slide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Alignment {
    /// Each key has its own phase, so that refused clients do not all come back in the same instant.
    #[default]
    Key,
    /// Windows begin at multiples of their length, in UTC; weeks begin on Monday.
    Clock,
    /// The window is that of a calendar. The length of the rate's window is then a bound that no window exceeds.
    Calendar(Calendar),
}

/// Why a text is not a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// The text has no slash, or nothing behind it.
    #[error("a rate is written N/unit, for instance 10/s or 5/15m")]
    Shape,
    /// The quota is not a whole number from 1 to 1,000,000,000.
    #[error("`{0}` is not a whole number from 1 to 1000000000")]
    Quota(String),
    /// The window does not end with a unit, or has something else than a whole number before it.
    #[error(
        "`{0}` is not a window; use s, m, h, d or w with a whole number before it, for instance 15m"
    )]
    Unit(String),
    /// The window is shorter than a second or longer than 53 weeks.
    #[error("a window is from 1s to 53w")]
    Window,
}

/// Why a text is not a quota by the calendar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// The text has no slash, or nothing behind it.
    #[error("a quota is written N/unit, for instance 10000/month")]
    Shape,
    /// The number is not a whole one from 1 to 1,000,000,000.
    #[error("`{0}` is not a whole number from 1 to 1000000000")]
    Number(String),
    /// The unit is none of the calendar's.
    #[error("`{0}` is not a unit of a quota; use day, week, month, quarter or year")]
    Unit(String),
}

impl Rate {
    /// The largest quota, in units.
    pub const MAX_QUOTA: u32 = 1_000_000_000;
    /// The longest window: 53 weeks.
    pub const MAX_WINDOW: Nanos = Nanos::from_secs(53 * 7 * 86_400);

    /// Makes a rate of `quota` units in `window`.
    ///
    /// # Errors
    ///
    /// The quota is not from 1 to [`Rate::MAX_QUOTA`], or the window is not from a second to [`Rate::MAX_WINDOW`].
    pub fn new(quota: u32, window: Nanos) -> Result<Rate, RateError> {
        if quota == 0 || quota > Rate::MAX_QUOTA {
            return Err(RateError::Quota(quota.to_string()));
        }
        if window < Nanos::from_secs(1) || window > Rate::MAX_WINDOW {
            return Err(RateError::Window);
        }
        Ok(Rate::in_window(quota, window))
    }

    fn in_window(quota: u32, window: Nanos) -> Rate {
        Rate {
            quota,
            added: 0,
            window,
            interval: interval_of(quota, window),
            bucket_length: Interval::new(window.0.div_ceil(u64::from(BUCKETS))),
            alignment: Alignment::Key,
        }
    }

    /// The rate of a limit with credits: no unit, in a window that never ends. Operators add units to single keys, by
    /// grants.
    pub fn of_credits() -> Rate {
        let window = Nanos::from_secs(u64::from(u32::MAX));
        Rate::in_window(0, window).aligned(Alignment::Calendar(Calendar::EVER))
    }

    /// Whether no time frees units, because they are credits.
    #[inline]
    pub fn is_credits(self) -> bool {
        self.alignment == Alignment::Calendar(Calendar::EVER)
    }

    /// Makes a rate of `quota` units in each window of a calendar.
    ///
    /// # Errors
    ///
    /// The quota is not from 1 to [`Rate::MAX_QUOTA`].
    pub fn of_calendar(quota: u32, calendar: Calendar) -> Result<Rate, RateError> {
        // One day more, for changes of the clock.
        let days = calendar.period().unit().max_days() + 1;
        let rate = Rate::new(quota, Nanos::from_secs(days * 86_400))?;
        Ok(rate.aligned(Alignment::Calendar(calendar)))
    }

    /// Parses a quota such as `10000/month`. Blanks around the number and the unit are ignored.
    ///
    /// # Errors
    ///
    /// The text has another shape, an unknown unit, or a number that is not from 1 to [`Rate::MAX_QUOTA`].
    pub fn parse_quota(text: &str) -> Result<(u32, CalendarUnit), QuotaError> {
        let (number, unit) = text.split_once('/').ok_or(QuotaError::Shape)?;
        let (number, unit) = (number.trim(), unit.trim());
        if unit.is_empty() {
            return Err(QuotaError::Shape);
        }
        let quota = parse_digits(number).filter(|quota| (1..=Rate::MAX_QUOTA).contains(quota));
        let quota = quota.ok_or_else(|| QuotaError::Number(number.to_owned()))?;
        let mut units = CalendarUnit::ALL.into_iter();
        let unit = units
            .find(|known| known.as_str() == unit)
            .ok_or_else(|| QuotaError::Unit(unit.to_owned()))?;
        Ok((quota, unit))
    }

    /// The rate with windows that begin elsewhere.
    pub fn aligned(self, alignment: Alignment) -> Rate {
        Rate { alignment, ..self }
    }

    /// Where the windows begin, if they do not slide.
    pub fn alignment(self) -> Alignment {
        self.alignment
    }

    /// The calendar of the windows; `None` for a rate in a window of fixed length.
    pub fn calendar(self) -> Option<Calendar> {
        match self.alignment {
            Alignment::Calendar(calendar) => Some(calendar),
            Alignment::Key | Alignment::Clock => None,
        }
    }

    /// The quota in units, without a plan's multiplier.
    pub fn quota(self) -> u32 {
        self.quota_times(1)
    }

    /// The length of the window; of a calendar's windows a bound.
    pub fn window(self) -> Nanos {
        self.window
    }

    /// The length of one window: that of `calendar_window`, or of every window where there is no calendar.
    #[inline]
    pub fn window_length(self, calendar_window: Option<CalendarWindow>) -> Nanos {
        calendar_window.map_or(self.window, CalendarWindow::length)
    }

    /// The quota with a plan's multiplier, at most `u32::MAX`.
    pub fn quota_times(self, plan_factor: u32) -> u32 {
        let quota = self.quota.saturating_mul(plan_factor);
        quota.saturating_add(self.added)
    }

    /// The rate with `times` the quota, and `add` units more, which no plan multiplies. `None` if that is more than
    /// [`Rate::MAX_QUOTA`].
    pub(crate) fn granted(self, times: u32, add: u32) -> Option<Rate> {
        let quota = self.quota.checked_mul(times)?;
        let added = self.added.checked_add(add)?;
        let units = quota.checked_add(added)?;
        (units <= Rate::MAX_QUOTA).then_some(Rate {
            quota,
            added,
            interval: interval_of(units, self.window),
            ..self
        })
    }

    /// The rate with the same units in windows that slide and are longer by `extension`.
    ///
    /// # Errors
    ///
    /// The window is longer than [`Rate::MAX_WINDOW`].
    pub fn extended(self, extension: Nanos) -> Result<Rate, RateError> {
        let longer = Rate::new(self.quota(), self.window.after(extension))?;
        Ok(Rate {
            quota: self.quota,
            added: self.added,
            ..longer
        })
    }

    /// The length of a bucket of a sliding window.
    #[inline]
    pub(crate) fn bucket_length(self) -> Interval {
        self.bucket_length
    }

    /// The time between two units of a steady flow, with a plan's multiplier. Rounded up, because rounding down would
    /// admit more.
    #[inline]
    pub(crate) fn interval(self, plan_factor: u32) -> Interval {
        match plan_factor {
            1 => self.interval,
            _ => {
                let quota = u64::from(self.quota_times(plan_factor).max(1));
                Interval::new(self.window.0.div_ceil(quota))
            }
        }
    }
}

/// Parses a rate such as `10/s` or `5/15m`. Blanks around the quota and the window are ignored.
impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Rate, RateError> {
        let (quota, window) = text.split_once('/').ok_or(RateError::Shape)?;
        let units: u32 =
            parse_digits(quota.trim()).ok_or_else(|| RateError::Quota(quota.trim().into()))?;
        let window = window.trim();
        let unit = window.chars().next_back().ok_or(RateError::Shape)?;
        let seconds: u64 = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            'w' => 7 * 86_400,
            _ => return Err(RateError::Unit(window.into())),
        };
        let digits = &window[..window.len() - 1];
        let count: u64 = if digits.is_empty() {
            1
        } else {
            parse_digits(digits)
                .map(u64::from)
                .ok_or_else(|| RateError::Unit(window.into()))?
        };
        Rate::new(units, Nanos::from_secs(count.saturating_mul(seconds)))
    }
}

/// The time between two units of a steady flow; the window itself without units.
fn interval_of(units: u32, window: Nanos) -> Interval {
    Interval::new(window.0.div_ceil(u64::from(units.max(1))))
}

/// Parses a whole number; unlike `u32`'s parser it takes no sign. `None` for other texts and for numbers above
/// `u32::MAX`.
fn parse_digits(digits: &str) -> Option<u32> {
    let has_only_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    has_only_digits.then(|| digits.parse().ok()).flatten()
}

/// Writes the rate as policies do, with the window in the largest unit that divides it. A quota by the calendar has its
/// unit alone, and credits have no window.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_credits() {
            return write!(f, "{} credits", self.quota());
        }
        if let Some(calendar) = self.calendar() {
            return write!(f, "{}/{}", self.quota(), calendar.period().unit().as_str());
        }
        let seconds = self.window.0 / 1_000_000_000;
        let (count, unit) = [(7 * 86_400, 'w'), (86_400, 'd'), (3_600, 'h'), (60, 'm')]
            .into_iter()
            .find(|(length, _)| seconds >= *length && seconds.is_multiple_of(*length))
            .map_or((seconds, 's'), |(length, unit)| (seconds / length, unit));
        if count == 1 {
            write!(f, "{}/{unit}", self.quota())
        } else {
            write!(f, "{}/{count}{unit}", self.quota())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(u32, u64), ()>) {
        let got = text
            .parse::<Rate>()
            .map(|r| (r.quota(), r.window().0 / 1_000_000_000));
        assert_eq!(got.map_err(|_| ()), expected, "{text}");
        if let Ok(rate) = text.parse::<Rate>() {
            assert_eq!(
                rate.to_string().parse::<Rate>(),
                Ok(rate),
                "{text} reads back"
            );
        }
    }

    #[test]
    fn credits_are_units_without_a_time() {
        let credits = Rate::of_credits();
        assert_eq!((credits.quota(), credits.quota_times(7)), (0, 0));
        assert!(credits.is_credits() && !"1/s".parse::<Rate>().unwrap().is_credits());
        let filled = credits.granted(1, 5_000).unwrap();
        assert_eq!((filled.quota(), filled.quota_times(7)), (5_000, 5_000));
        assert_eq!(filled.to_string(), "5000 credits");
        assert!(filled.is_credits());
        assert_eq!(filled.granted(1, Rate::MAX_QUOTA), None);
        assert_eq!(credits.granted(1, 0), Some(credits));
        assert_eq!(filled.window(), credits.window());
    }

    #[test]
    fn rates() {
        check("2/s", Ok((2, 1)));
        check("5/15m", Ok((5, 900)));
        check("100/d", Ok((100, 86_400)));
        check("600/h", Ok((600, 3_600)));
        check("1/2w", Ok((1, 14 * 86_400)));
        check("90/90s", Ok((90, 90)));
        check(" 10 / s ", Ok((10, 1)));
        for bad in [
            "", "/", "5", "5/", "/s", "0/s", "5/0s", "-1/s", "5/x", "5/1y", "+5/s", "5/54w",
        ] {
            check(bad, Err(()));
        }
        check("4294967296/s", Err(()));
        check("5/99999999999999999999s", Err(()));
        check("5/é", Err(()));
    }
}
