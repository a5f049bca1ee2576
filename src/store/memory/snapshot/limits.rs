//! Encodes the limits of a snapshot and decodes them, because a state can be read only with its limit. A file may be
//! forged, so every number that could make the arithmetic of limits fail is checked.

use std::io::Read;

use super::blocks::{BlockReader, SnapshotDamage};
use crate::base::clock::Nanos;
use crate::limit::{
    Algorithm, Alignment, Calendar, CalendarUnit, MAX_WINDOWS, Period, Rate, RateLimit,
    ThrottleMode,
};

/// The numbers of the algorithms in a snapshot.
const SLIDING_LOG: u8 = 0;
const SLIDING_WINDOW: u8 = 1;
const MULTI_LEVEL: u8 = 2;
const FIXED_WINDOW: u8 = 3;
const GCRA: u8 = 4;
const GCRA_WITH_BURST: u8 = 5;
const LEAKY_BUCKET: u8 = 6;
/// A fixed window of the clock.
const CLOCK_WINDOW: u8 = 7;
/// A window of the calendar. The period and the zone of each window follow.
const CALENDAR_WINDOW: u8 = 8;
/// The longest name of a zone in a snapshot, in bytes.
const MAX_ZONE_BYTES: usize = 64;
/// The numbers of the throttle modes in a snapshot.
const HARD: u8 = 0;
const SOFT: u8 = 1;
const ELASTIC: u8 = 2;

/// Appends a limit to `out`.
pub(super) fn encode_limit(limit: &RateLimit, out: &mut Vec<u8>) {
    out.push(limit.windows.len() as u8);
    for rate in &limit.windows {
        out.extend(rate.quota().to_le_bytes());
        out.extend(rate.window().0.to_le_bytes());
    }
    match limit.algorithm {
        Algorithm::SlidingLog => out.push(SLIDING_LOG),
        Algorithm::SlidingWindow => out.push(SLIDING_WINDOW),
        Algorithm::MultiLevel => out.push(MULTI_LEVEL),
        Algorithm::FixedWindow => encode_fixed_windows(limit, out),
        Algorithm::Gcra { burst: None } => out.push(GCRA),
        Algorithm::Gcra { burst: Some(burst) } => {
            out.push(GCRA_WITH_BURST);
            out.extend(burst.to_le_bytes());
        }
        Algorithm::LeakyBucket { max_delay } => {
            out.push(LEAKY_BUCKET);
            out.extend(max_delay.0.to_le_bytes());
        }
    }
    match limit.throttle {
        ThrottleMode::Hard => out.push(HARD),
        ThrottleMode::Soft { percent } => {
            out.push(SOFT);
            out.extend(percent.to_le_bytes());
        }
        ThrottleMode::Elastic { at_most, base } => {
            out.push(ELASTIC);
            out.extend(at_most.to_le_bytes());
            out.extend(base.to_le_bytes());
        }
    }
    out.push(u8::from(limit.reserves));
    out.extend(limit.max_plan_factor.to_le_bytes());
}

/// Appends the algorithm of fixed windows, with where they begin. All windows of a limit are aligned alike.
fn encode_fixed_windows(limit: &RateLimit, out: &mut Vec<u8>) {
    match limit.windows.first().map(|rate| rate.alignment()) {
        None | Some(Alignment::Key) => out.push(FIXED_WINDOW),
        Some(Alignment::Clock) => out.push(CLOCK_WINDOW),
        Some(Alignment::Calendar(_)) => {
            out.push(CALENDAR_WINDOW);
            for calendar in limit.windows.iter().filter_map(|rate| rate.calendar()) {
                let unit = match calendar.period().unit() {
                    CalendarUnit::Day => 0,
                    CalendarUnit::Week => 1,
                    CalendarUnit::Month => 2,
                    CalendarUnit::Quarter => 3,
                    CalendarUnit::Year => 4,
                    CalendarUnit::Ever => 5,
                };
                let (first_month, first_day) = calendar.period().start();
                let zone = calendar.zone_name();
                out.extend([unit, first_month, first_day, zone.len() as u8]);
                out.extend(zone.as_bytes());
            }
        }
    }
}

/// Reads a calendar as [`encode_fixed_windows`] has written it.
fn decode_calendar<R: Read>(reader: &mut BlockReader<R>) -> Result<Calendar, SnapshotDamage> {
    let (unit, first_month, first_day) = (reader.read_u8()?, reader.read_u8()?, reader.read_u8()?);
    let period = match (unit, first_month, first_day) {
        (0, 1, 1) => Period::Day,
        (1, 1, 1..=7) => Period::Week { first_day },
        (2, 1, 1..=31) => Period::Month { first_day },
        (3, 1..=3, 1..=31) => Period::Quarter {
            first_month,
            first_day,
        },
        (4, 1..=12, 1..=31) => Period::Year {
            first_month,
            first_day,
        },
        (5, 1, 1) => Period::Ever,
        _ => return Err(reader.invalid_content("a period")),
    };
    let name_bytes = usize::from(reader.read_u8()?);
    if name_bytes > MAX_ZONE_BYTES {
        return Err(reader.invalid_content("a zone"));
    }
    let mut name = vec![0; name_bytes];
    reader.read_exact(&mut name)?;
    let calendar = std::str::from_utf8(&name)
        .ok()
        .and_then(|name| Calendar::new(period, name).ok());
    calendar.ok_or_else(|| reader.invalid_content("a zone"))
}

/// Reads a limit as [`encode_limit`] has written it.
///
/// # Errors
///
/// When the file is damaged or cannot be read. Also when it has invalid windows, or an unknown algorithm, throttle mode or
/// flag.
pub(super) fn decode_limit<R: Read>(
    reader: &mut BlockReader<R>,
) -> Result<RateLimit, SnapshotDamage> {
    let window_count = usize::from(reader.read_u8()?);
    if !(1..=MAX_WINDOWS).contains(&window_count) {
        return Err(reader.invalid_content("a limit's windows"));
    }
    let mut windows: Vec<Rate> = Vec::with_capacity(window_count);
    for _ in 0..window_count {
        let (quota, window) = (reader.read_u32()?, Nanos(reader.read_u64()?));
        let credits = Rate::of_credits();
        let rate = match window == credits.window() {
            true => credits.granted(1, quota),
            false => Rate::new(quota, window).ok(),
        };
        let rate = rate.ok_or_else(|| reader.invalid_content("a rate"))?;
        if windows.last().is_some_and(|last| last.window() >= window) {
            return Err(reader.invalid_content("the order of windows"));
        }
        windows.push(rate);
    }
    let has_credits = windows.iter().any(|rate| rate.is_credits());
    let algorithm_number = reader.read_u8()?;
    if has_credits && (window_count, algorithm_number) != (1, CALENDAR_WINDOW) {
        return Err(reader.invalid_content("credits"));
    }
    let algorithm = match algorithm_number {
        SLIDING_LOG => Algorithm::SlidingLog,
        SLIDING_WINDOW => Algorithm::SlidingWindow,
        MULTI_LEVEL => Algorithm::MultiLevel,
        FIXED_WINDOW => Algorithm::FixedWindow,
        CLOCK_WINDOW => {
            for rate in &mut windows {
                *rate = rate.aligned(Alignment::Clock);
            }
            Algorithm::FixedWindow
        }
        CALENDAR_WINDOW => {
            for rate in &mut windows {
                let calendar = decode_calendar(reader)?;
                if rate.is_credits() != calendar.is_ever() {
                    return Err(reader.invalid_content("credits"));
                }
                if !has_credits {
                    *rate = Rate::of_calendar(rate.quota(), calendar)
                        .map_err(|_| reader.invalid_content("a quota"))?;
                }
            }
            Algorithm::FixedWindow
        }
        GCRA => Algorithm::Gcra { burst: None },
        GCRA_WITH_BURST => Algorithm::Gcra {
            burst: Some(reader.read_u32()?),
        },
        LEAKY_BUCKET => Algorithm::LeakyBucket {
            max_delay: Nanos(reader.read_u64()?),
        },
        _ => return Err(reader.invalid_content("an algorithm")),
    };
    let throttle = match reader.read_u8()? {
        HARD => ThrottleMode::Hard,
        SOFT => ThrottleMode::Soft {
            percent: reader.read_u16()?,
        },
        ELASTIC => ThrottleMode::Elastic {
            at_most: reader.read_u32()?,
            base: reader.read_u32()?,
        },
        _ => return Err(reader.invalid_content("a throttle")),
    };
    if has_credits && throttle != ThrottleMode::Hard {
        return Err(reader.invalid_content("the throttle of credits"));
    }
    let reserves = match reader.read_u8()? {
        0 => false,
        1 => true,
        _ => return Err(reader.invalid_content("a flag")),
    };
    Ok(RateLimit {
        windows,
        algorithm,
        throttle,
        reserves,
        max_plan_factor: reader.read_u32()?,
    })
}
