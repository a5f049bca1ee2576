//! Fixed windows: they do not slide. Those of a rate begin where the rate is aligned to: at a phase of the key's own, at
//! the clock, or with the calendar.
//!
//! Words of each window: `[number of the window, units]`. Numbers are those of windows of one length since the clock's
//! origin. They wrap after 2^32 windows: with windows of a second, 136 years after it. The number of a calendar's window
//! is the second of wall time with which it begins.
//!
//! Windows by wall time follow a clock that is set. If it is put back by less than a window, or by a minute, units of the
//! later window stay in it. If it is put back further, they move to the window of the new time. So what was used in the
//! later window goes on to count. What was used before the clock went ahead is forgotten with the later window's first
//! unit, because a state has one count for each rate.

use super::{Alignment, CalendarWindow, Fingerprint, Rate};
use crate::base::clock::{Nanos, WallOffset};

/// The number of words of each window.
pub(super) const WORDS_PER_WINDOW: usize = 2;

/// 1970-01-05 is a Monday. Windows of the clock begin this much before multiples of their length, so that weeks begin with
/// that day.
pub(super) const CLOCK_PHASE: Nanos = Nanos::from_secs(3 * 86_400);

/// Units of a window that begins so little later always count in it: threads read the clock at different times.
const MAX_AHEAD: Nanos = Nanos::from_secs(60);

/// How long a state of a calendar is kept behind its window, for a clock that is put back.
const CALENDAR_GRACE: Nanos = Nanos::from_secs(3_600);

/// The windows of one rate for one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct FixedWindows {
    alignment: Alignment,
    /// The length of each window; of a calendar's windows a bound.
    pub(super) length: Nanos,
    key: Fingerprint,
    /// What gives wall time.
    wall: WallOffset,
}

/// The window in which a state counts at some time.
struct CurrentWindow {
    number: u32,
    /// The units that count in it.
    units: u32,
}

/// The time by which a key's windows begin before multiples of the window's length.
pub(super) fn phase(key: Fingerprint, window: Nanos) -> Nanos {
    Nanos((key.0 >> 64) as u64 % window.0)
}

impl FixedWindows {
    /// The windows of a rate.
    pub(super) fn new(rate: &Rate, key: Fingerprint, wall: WallOffset) -> FixedWindows {
        FixedWindows {
            alignment: rate.alignment(),
            length: rate.window(),
            key,
            wall,
        }
    }

    /// The units that count in the window of `now`.
    pub(super) fn used(self, words: &[u32], now: Nanos) -> u32 {
        self.current(words, now).units
    }

    /// The time until the next window begins.
    pub(super) fn wait(self, words: &[u32], now: Nanos) -> Nanos {
        if self.alignment == Alignment::Key {
            let next = self.number_by_phase(words, now) + 1;
            let phase = phase(self.key, self.length);
            return Nanos(next.saturating_mul(self.length.0))
                .since(phase)
                .since(now);
        }
        let end = self.wall_end_of(self.current(words, now).number);
        self.wall.reading_at(end).since(now)
    }

    /// Counts `cost` units at `now`.
    pub(super) fn add_units(self, words: &mut [u32], now: Nanos, cost: u32) {
        let current = self.current(words, now);
        words[0] = current.number;
        words[1] = current.units.saturating_add(cost);
    }

    /// Moves the units of a window that a clock was put back from to the window of `now`; see the [module](self). Until
    /// then they count in each window. Returns whether the state has changed.
    pub(super) fn follow_clock(self, words: &mut [u32], now: Nanos) -> bool {
        if words[1] == 0 || self.alignment == Alignment::Key {
            return false;
        }
        let number = self.current(words, now).number;
        let is_moved = number < words[0];
        if is_moved {
            words[0] = number;
        }
        is_moved
    }

    /// The time when the window of the state ends, and with it all of its units; zero if no units count.
    pub(super) fn fresh_at(self, words: &[u32]) -> Nanos {
        if words[1] == 0 {
            return Nanos::ZERO;
        }
        match self.alignment {
            Alignment::Key => {
                let next_start = (u64::from(words[0]) + 1).saturating_mul(self.length.0);
                Nanos(next_start).since(phase(self.key, self.length))
            }
            Alignment::Clock => self.wall.reading_at(self.wall_end_of(words[0])),
            // Credits that were used count for ever.
            Alignment::Calendar(calendar) if calendar.is_ever() => Nanos(u64::MAX),
            Alignment::Calendar(_) => {
                let end = self.wall_end_of(words[0]).after(CALENDAR_GRACE);
                self.wall.reading_at(end)
            }
        }
    }

    /// The window of the calendar in which the state counts; `None` without a calendar.
    pub(super) fn calendar_window(self, words: &[u32], now: Nanos) -> Option<CalendarWindow> {
        let Alignment::Calendar(calendar) = self.alignment else {
            return None;
        };
        Some(calendar.window_at_second(self.current(words, now).number))
    }

    /// The window of `now`, or the later one in which the state counts.
    fn current(self, words: &[u32], now: Nanos) -> CurrentWindow {
        let (state_number, state_units) = (words[0], words[1]);
        let number = match self.alignment {
            Alignment::Key => self.number_by_phase(words, now) as u32,
            Alignment::Clock | Alignment::Calendar(_) => {
                let wall = self.wall.wall_at(now);
                let number = self.number_by_wall(wall);
                if state_units > 0 && state_number > number {
                    let latest_start = self.wall_end_of(number).max(wall.after(MAX_AHEAD));
                    let is_later = self.wall_start_of(state_number) <= latest_start;
                    return CurrentWindow {
                        number: if is_later { state_number } else { number },
                        units: state_units,
                    };
                }
                number
            }
        };
        let units = if state_number == number {
            state_units
        } else {
            0
        };
        CurrentWindow { number, units }
    }

    /// The number of the window that contains `now`, by the key's phase. It is never before the window of the state:
    /// another thread may have read the clock a moment earlier, and that must not forgive what was used since.
    fn number_by_phase(self, words: &[u32], now: Nanos) -> u64 {
        let number = now.after(phase(self.key, self.length)).0 / self.length.0;
        let windows_ahead = words[0].wrapping_sub(number as u32);
        // Numbers wrap, so a distance beyond half of their range means that the state is behind.
        let is_state_ahead = words[1] > 0 && windows_ahead <= i32::MAX as u32;
        if is_state_ahead {
            number + u64::from(windows_ahead)
        } else {
            number
        }
    }

    /// The number of the window that contains a wall time.
    fn number_by_wall(self, wall: Nanos) -> u32 {
        match self.alignment {
            Alignment::Calendar(calendar) => calendar.window_at(wall).start,
            Alignment::Key | Alignment::Clock => {
                let number = wall.after(CLOCK_PHASE).0 / self.length.0;
                u32::try_from(number).unwrap_or(u32::MAX)
            }
        }
    }

    /// The wall time at which the window with this number begins.
    fn wall_start_of(self, number: u32) -> Nanos {
        match self.alignment {
            Alignment::Calendar(_) => Nanos::from_secs(u64::from(number)),
            Alignment::Key | Alignment::Clock => {
                Nanos(u64::from(number).saturating_mul(self.length.0)).since(CLOCK_PHASE)
            }
        }
    }

    /// The wall time at which the window with this number ends.
    fn wall_end_of(self, number: u32) -> Nanos {
        match self.alignment {
            Alignment::Calendar(calendar) => {
                Nanos::from_secs(u64::from(calendar.window_at_second(number).end))
            }
            Alignment::Key | Alignment::Clock => {
                let next = u64::from(number) + 1;
                Nanos(next.saturating_mul(self.length.0)).since(CLOCK_PHASE)
            }
        }
    }
}
