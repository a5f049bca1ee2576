//! [`Calendar`]: the windows of quotas such as `5000/month`, by the calendar of a zone. Windows are half-open and follow
//! each other without a gap: each instant is in one.
//!
//! A window begins with the first instant of its first day. So a day has 23 or 25 hours where the clock changes, and none
//! where a zone skips it. Instants are wall time. Times before 1970 count as 1970, and those from 2106 on as one instant.

mod period;
mod schedule;
#[cfg(not(feature = "gateway"))]
mod utc_zone;
#[cfg(feature = "gateway")]
mod zone;

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

pub use period::{CalendarUnit, Period, WEEKDAYS, day_from_civil, days_in_month};
pub use schedule::{CalendarWindow, Schedule};
pub use zone::zone_names;

use crate::base::clock::Nanos;
#[cfg(not(feature = "gateway"))]
use utc_zone as zone;

/// Maximum number of different calendars in the life of a process.
const MAX_CALENDARS: usize = 1_024;

/// The number of windows of a calendar that are remembered: the current one, its neighbours, and one more.
const REMEMBERED_WINDOWS: usize = 4;

/// All calendars since the process started. A calendar keeps its slot, so that rates stay small and need no lock.
static DEFINITIONS: [OnceLock<Definition>; MAX_CALENDARS] =
    [const { OnceLock::new() }; MAX_CALENDARS];

/// The windows of a period in a zone. Equal calendars are the same one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Calendar(u16);

/// A calendar, and some of its windows.
#[derive(Debug)]
struct Definition {
    schedule: Schedule,
    /// Windows that were computed before, as `start << 32 | end`; zero where there is none. They only save time: each is
    /// what [`Schedule::window_at`] returns.
    windows: [AtomicU64; REMEMBERED_WINDOWS],
    /// The number of windows that were remembered so far.
    remembered_count: AtomicUsize,
}

/// Why there is no such calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    /// The zone is unknown.
    #[error("there is no such time zone")]
    Zone,
    /// [`MAX_CALENDARS`] others have been in use since the process started.
    #[error("since its start the process has used {MAX_CALENDARS} other calendars; restart it")]
    TooMany,
}

impl Calendar {
    /// The calendar whose only window never ends: from the second 0 to `u32::MAX`.
    pub const EVER: Calendar = Calendar(u16::MAX);

    /// The calendar of a period in the zone of this IANA name.
    ///
    /// # Errors
    ///
    /// The zone is unknown, or the process has used too many different calendars.
    pub fn new(period: Period, zone_name: &str) -> Result<Calendar, CalendarError> {
        if period == Period::Ever {
            return Ok(Calendar::EVER);
        }
        let schedule = Schedule::new(period, zone_name).ok_or(CalendarError::Zone)?;
        // The first slot without a calendar gets this one, unless an earlier slot has it.
        let has_calendar = |slot: &OnceLock<Definition>| {
            slot.get_or_init(|| Definition::new(schedule.clone()))
                .schedule
                == schedule
        };
        let slot = DEFINITIONS.iter().position(has_calendar);
        let slot = slot.and_then(|slot| u16::try_from(slot).ok());
        slot.map(Calendar).ok_or(CalendarError::TooMany)
    }

    /// The definition. Each slot of a calendar has one; without a slot there is only [`Calendar::EVER`].
    fn definition(self) -> &'static Definition {
        static EVER: OnceLock<Definition> = OnceLock::new();
        let definition = DEFINITIONS.get(usize::from(self.0));
        let definition = definition.and_then(OnceLock::get);
        definition.unwrap_or_else(|| EVER.get_or_init(|| Definition::new(Schedule::ever())))
    }

    /// Whether this is [`Calendar::EVER`].
    #[inline]
    pub fn is_ever(self) -> bool {
        self == Calendar::EVER
    }

    /// The period of the windows.
    pub fn period(self) -> Period {
        self.definition().schedule.period()
    }

    /// The IANA name of the zone.
    pub fn zone_name(self) -> &'static str {
        self.definition().schedule.zone_name()
    }

    /// The window that contains an instant of wall time.
    #[inline]
    pub fn window_at(self, wall: Nanos) -> CalendarWindow {
        // The last window ends with the last second that 32 bits hold.
        let second = u32::try_from(wall.0 / 1_000_000_000).unwrap_or(u32::MAX);
        self.window_at_second(second.min(u32::MAX - 1))
    }

    /// The window that contains this second of wall time.
    #[inline]
    pub fn window_at_second(self, second: u32) -> CalendarWindow {
        if self.is_ever() {
            return CalendarWindow::EVER;
        }
        let definition = self.definition();
        for remembered in &definition.windows {
            let window = unpack(remembered.load(Relaxed));
            if window.start <= second && second < window.end {
                return window;
            }
        }
        definition.remember_window(second)
    }

    /// An instant, in seconds since the Unix epoch, as the clocks of the zone show it: `2026-12-15 00:00 +01:00`.
    pub fn format_instant(self, second: u32) -> String {
        self.definition().schedule.format_instant(second)
    }
}

impl Definition {
    fn new(schedule: Schedule) -> Definition {
        Definition {
            schedule,
            windows: Default::default(),
            remembered_count: AtomicUsize::new(0),
        }
    }

    /// Computes the window that contains a second, and remembers it.
    // Not inlined: `Calendar::window_at_second` has the short path for nearly all calls.
    #[inline(never)]
    fn remember_window(&self, second: u32) -> CalendarWindow {
        let window = self.schedule.window_at(second);
        let count = self.remembered_count.fetch_add(1, Relaxed);
        if let Some(slot) = self.windows.get(count % REMEMBERED_WINDOWS) {
            slot.store(pack(window), Relaxed);
        }
        window
    }
}

fn pack(window: CalendarWindow) -> u64 {
    u64::from(window.start) << 32 | u64::from(window.end)
}

fn unpack(packed: u64) -> CalendarWindow {
    CalendarWindow {
        start: (packed >> 32) as u32,
        end: packed as u32,
    }
}

/// Writes the period and the zone: `month from the 15th, Europe/Berlin`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.period(), self.zone_name())
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calendar({self})")
    }
}
