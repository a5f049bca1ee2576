//! [`Schedule`]: the windows of a period in a zone, computed from nothing but the zone's data.

use super::period::{Period, civil_from_day};
use super::zone::{SECONDS_PER_DAY, Zone};
use crate::base::clock::Nanos;

/// The windows of a period in a zone. [`Calendar`](super::Calendar) is the same with less work for each call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    period: Period,
    zone: Zone,
}

/// One window, in seconds of wall time since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarWindow {
    /// The first second.
    pub start: u32,
    /// The first second of the next window, greater than `start`.
    pub end: u32,
}

impl Schedule {
    /// The windows of a period in the zone of this IANA name; `None` if there is no such zone.
    pub fn new(period: Period, zone_name: &str) -> Option<Schedule> {
        let zone = Zone::new(zone_name)?;
        Some(Schedule { period, zone })
    }

    /// One window, in UTC.
    pub(super) fn ever() -> Schedule {
        Schedule {
            period: Period::Ever,
            zone: Zone::utc(),
        }
    }

    /// The period of the windows.
    pub fn period(&self) -> Period {
        self.period
    }

    /// The IANA name of the zone.
    pub fn zone_name(&self) -> &str {
        self.zone.name()
    }

    /// The window that contains a second of wall time. It begins with 0 if it would begin earlier, and ends with `u32::MAX`
    /// if it would end later.
    pub fn window_at(&self, second: u32) -> CalendarWindow {
        if self.period == Period::Ever {
            return CalendarWindow::EVER;
        }
        let instant = i64::from(second);
        let start_of = |number| self.zone.start_of_day(self.period.first_day(number));
        let mut number = self.period.number_of(self.zone.day_at(instant));
        // Where a clock is put back over midnight, some instants of a day come before its start or behind its end.
        while start_of(number) > instant {
            number -= 1;
        }
        while start_of(number + 1) <= instant {
            number += 1;
        }
        let clamped = |instant: i64| u32::try_from(instant.max(0)).unwrap_or(u32::MAX);
        CalendarWindow {
            start: clamped(start_of(number)),
            end: clamped(start_of(number + 1)),
        }
    }

    /// An instant, in seconds since the Unix epoch, as the clocks of the zone show it: `2026-12-15 00:00 +01:00`.
    pub fn format_instant(&self, second: u32) -> String {
        let second = i64::from(second);
        let offset = self.zone.offset_at(second);
        let local = second + offset;
        let (year, month, day) = civil_from_day(local.div_euclid(SECONDS_PER_DAY));
        let minute = local.rem_euclid(SECONDS_PER_DAY) / 60;
        let sign = if offset < 0 { '-' } else { '+' };
        let offset_minutes = offset.abs() / 60;
        format!(
            "{year}-{month:02}-{day:02} {:02}:{:02} {sign}{:02}:{:02}",
            minute / 60,
            minute % 60,
            offset_minutes / 60,
            offset_minutes % 60
        )
    }
}

impl CalendarWindow {
    /// The window that never ends: all seconds that 32 bits hold.
    pub(super) const EVER: CalendarWindow = CalendarWindow {
        start: 0,
        end: u32::MAX,
    };

    /// The length of the window.
    pub fn length(self) -> Nanos {
        Nanos::from_secs(u64::from(self.end.saturating_sub(self.start)))
    }
}
