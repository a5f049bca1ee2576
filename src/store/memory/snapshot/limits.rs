//! Encodes the limits of a snapshot and decodes them, because a state can be read only with its limit. A file may be
//! forged, so every number that could make the arithmetic of limits fail is checked.

use std::io::Read;

use super::blocks::{BlockReader, SnapshotDamage};
use crate::base::clock::Nanos;
use crate::limit::{Algorithm, MAX_WINDOWS, Rate, RateLimit, ThrottleMode};

/// Appends a limit.
pub(super) fn encode_limit(limit: &RateLimit, out: &mut Vec<u8>) {
    out.push(limit.windows.len() as u8);
    for rate in &limit.windows {
        out.extend(rate.quota().to_le_bytes());
        out.extend(rate.window().0.to_le_bytes());
    }
    match limit.algorithm {
        Algorithm::SlidingLog => out.push(0),
        Algorithm::SlidingWindow => out.push(1),
        Algorithm::MultiLevel => out.push(2),
        Algorithm::FixedWindow => out.push(3),
        Algorithm::Gcra { burst: None } => out.push(4),
        Algorithm::Gcra { burst: Some(burst) } => {
            out.push(5);
            out.extend(burst.to_le_bytes());
        }
        Algorithm::LeakyBucket { max_delay } => {
            out.push(6);
            out.extend(max_delay.0.to_le_bytes());
        }
    }
    match limit.throttle {
        ThrottleMode::Hard => out.push(0),
        ThrottleMode::Soft { percent } => {
            out.push(1);
            out.extend(percent.to_le_bytes());
        }
        ThrottleMode::Elastic { at_most, base } => {
            out.push(2);
            out.extend(at_most.to_le_bytes());
            out.extend(base.to_le_bytes());
        }
    }
    out.push(u8::from(limit.reserves));
    out.extend(limit.max_plan_factor.to_le_bytes());
}

/// Reads a limit as [`encode_limit`] has written it.
///
/// # Errors
///
/// When the file is damaged or cannot be read. Also when it has invalid windows, or an unknown algorithm, throttle mode or
/// flag.
pub(super) fn decode_limit<R: Read>(
    from: &mut BlockReader<R>,
) -> Result<RateLimit, SnapshotDamage> {
    let window_count = usize::from(from.read_u8()?);
    if !(1..=MAX_WINDOWS).contains(&window_count) {
        return Err(from.invalid_content("a limit's windows"));
    }
    let mut windows: Vec<Rate> = Vec::with_capacity(window_count);
    for _ in 0..window_count {
        let (quota, window) = (from.read_u32()?, Nanos(from.read_u64()?));
        let rate = Rate::new(quota, window).map_err(|_| from.invalid_content("a rate"))?;
        if windows.last().is_some_and(|last| last.window() >= window) {
            return Err(from.invalid_content("the order of windows"));
        }
        windows.push(rate);
    }
    let algorithm = match from.read_u8()? {
        0 => Algorithm::SlidingLog,
        1 => Algorithm::SlidingWindow,
        2 => Algorithm::MultiLevel,
        3 => Algorithm::FixedWindow,
        4 => Algorithm::Gcra { burst: None },
        5 => Algorithm::Gcra {
            burst: Some(from.read_u32()?),
        },
        6 => Algorithm::LeakyBucket {
            max_delay: Nanos(from.read_u64()?),
        },
        _ => return Err(from.invalid_content("an algorithm")),
    };
    let throttle = match from.read_u8()? {
        0 => ThrottleMode::Hard,
        1 => ThrottleMode::Soft {
            percent: from.read_u16()?,
        },
        2 => ThrottleMode::Elastic {
            at_most: from.read_u32()?,
            base: from.read_u32()?,
        },
        _ => return Err(from.invalid_content("a throttle")),
    };
    let reserves = match from.read_u8()? {
        0 => false,
        1 => true,
        _ => return Err(from.invalid_content("a flag")),
    };
    Ok(RateLimit {
        windows,
        algorithm,
        throttle,
        reserves,
        max_plan_factor: from.read_u32()?,
    })
}
