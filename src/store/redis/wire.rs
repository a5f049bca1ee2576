//! Encodes calls for `decide.lua`, and decodes the replies of the scripts. Calls and replies of `decide.lua` are sequences
//! of doubles in little-endian order, because Lua's numbers are doubles. A reply of another shape is an error.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::base::clock::Nanos;
use crate::limit::LimitStanding;
use crate::limit::spec::StateKind;
use crate::store::Taking;
use crate::store::shared::call::{
    Call, CallPart, CounterReply, GatewayHeartbeat, HeartbeatSender, LiveGateways, StoreError,
    StoreReply,
};

/// The number of doubles in one counter's reply, before the used units of each window.
const COUNTER_DOUBLES: usize = 9;

/// The third number of a call that deletes counters. In other calls that number says which parts take units.
const FORGET: u32 = 3;

/// Bytes of a call before its parts.
const HEAD_BYTES: usize = 4 * size_of::<f64>();
/// Bytes of capacity for each part of a call. Parts of limits with several windows take more.
const PART_CAPACITY: usize = 256;

/// Encodes a call as the script's second argument. `gateway_count` is the number of gateways by the last heartbeat.
pub fn encode_call(call: &Call, gateway_count: u32) -> Vec<u8> {
    let taking = match call.taking {
        Taking::Nothing => 0,
        Taking::All => 1,
        Taking::Shadows => 2,
    };
    encode_with(call, gateway_count, taking)
}

/// Encodes a call that deletes the counters of its parts. In the reply, `granted_units` is above 0 where a counter existed.
pub fn encode_forget(call: &Call) -> Vec<u8> {
    encode_with(call, 1, FORGET)
}

fn encode_with(call: &Call, gateway_count: u32, taking: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + call.parts.len() * PART_CAPACITY);
    let head = [call.gateway, gateway_count, taking, call.parts.len() as u32];
    head.into_iter()
        .for_each(|number| put_double(&mut bytes, f64::from(number)));
    call.parts
        .iter()
        .for_each(|part| encode_part(&mut bytes, part));
    bytes
}

fn put_double(bytes: &mut Vec<u8>, number: f64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn encode_part(bytes: &mut Vec<u8>, part: &CallPart) {
    let spec = &part.spec;
    // The kinds as `cell.lua` numbers them. Only logs have a capacity and a tick.
    let (kind, capacity, tick_micros) = match spec.kind {
        StateKind::Log {
            tick_micros,
            capacity,
        } => (1, capacity, tick_micros),
        StateKind::Rings => (2, 0, 1),
        StateKind::Fixed => (3, 0, 1),
        StateKind::Gcra => (4, 0, 1),
        StateKind::Leaky => (5, 0, 1),
        StateKind::Calendar => (6, 0, 1),
    };
    let give_back = part.give_back;
    let (give_back_number, granted_at_micros) = give_back.map_or((0, 0), |give_back| {
        (give_back.number, give_back.granted_at_micros)
    });
    let small_numbers = [
        kind,
        capacity,
        tick_micros as u32,
        u32::from(part.is_shadow),
        part.key_part_index.map_or(0, |index| u32::from(index) + 1),
        part.cost,
        part.wanted_units,
        part.free_units_divisor.max(1),
    ];
    let small_numbers = small_numbers.into_iter();
    small_numbers.for_each(|number| put_double(bytes, f64::from(number)));
    let pace = spec.pace;
    let lends = f64::from(u8::from(spec.lends));
    let large_numbers = [
        part.gateway_total as f64,
        part.acknowledged_total as f64,
        f64::from(part.units_in_window),
        f64::from(give_back_number),
        granted_at_micros as f64,
        lends,
        pace.interval_micros,
        pace.max_level,
        pace.forget_after_micros,
        spec.lifetime_micros as f64,
    ];
    large_numbers
        .into_iter()
        .for_each(|number| put_double(bytes, number));
    put_double(bytes, spec.windows.len() as f64);
    for window in &spec.windows {
        let (base, ceiling) = (f64::from(window.base), f64::from(window.ceiling));
        let last_numbers = match spec.kind {
            StateKind::Calendar => window.bounds_micros,
            _ => [
                window.ring_phase_or_interval,
                window.early_slack_micros,
                window.plain_interval_micros,
                window.max_lead_micros,
            ],
        };
        let [first, second, third, fourth] = last_numbers.map(|number| number as f64);
        let window_micros = window.window_micros as f64;
        let numbers = [window_micros, base, ceiling, first, second, third, fourth];
        numbers
            .into_iter()
            .for_each(|number| put_double(bytes, number));
    }
    put_double(bytes, spec.rings.len() as f64);
    for ring in &spec.rings {
        [ring.bucket_micros, ring.bucket_count]
            .into_iter()
            .for_each(|number| put_double(bytes, number as f64));
    }
}

/// Decodes the reply of `heartbeat.lua`. A sender without a time is left out.
///
/// # Errors
///
/// [`StoreError::MarkMismatch`] where the store has another mark, [`StoreError::Other`] where the reply has another shape.
pub fn decode_live_gateways(reply: redis::Value) -> Result<LiveGateways, StoreError> {
    let malformed = || StoreError::Other(Cow::Borrowed("the list of gateways is malformed"));
    let numbers: Vec<i64> = redis::from_redis_value(reply).map_err(|_| malformed())?;
    let (now_micros, pairs) = numbers.split_first().ok_or_else(malformed)?;
    // The script returns -1 where the mark differs.
    let now_micros = u64::try_from(*now_micros).map_err(|_| StoreError::MarkMismatch)?;
    let pairs = pairs.as_chunks::<2>().0.iter();
    let heartbeats = pairs.map(|[gateway, sent_at]| GatewayHeartbeat {
        sender: HeartbeatSender {
            gateway: *gateway as u32,
            has_reported: *sent_at > 0,
        },
        sent_at_micros: sent_at.unsigned_abs(),
    });
    Ok(LiveGateways {
        now_micros,
        heartbeats: heartbeats.collect(),
    })
}

/// Decodes the script's reply to `call`.
///
/// # Errors
///
/// [`StoreError::MarkMismatch`] where the store has another mark, [`StoreError::OffCalendar`] where the clocks differ too
/// much for a quota, [`StoreError::Other`] where the reply has another shape.
pub fn decode_reply(bytes: &[u8], call: &Call) -> Result<StoreReply, StoreError> {
    let (encoded_numbers, remainder) = bytes.as_chunks::<8>();
    let mut numbers = encoded_numbers
        .iter()
        .map(|double| f64::from_le_bytes(*double));
    let malformed = || StoreError::Other(Cow::Borrowed("the script's reply is malformed"));
    match numbers.next() {
        Some(-1.0) => return Err(StoreError::MarkMismatch),
        Some(-2.0) => return Err(StoreError::OffCalendar),
        Some(_) if remainder.is_empty() => {}
        _ => return Err(malformed()),
    }
    // The first number is 1 or 0.
    let is_admitted = bytes[..8] != [0; 8];
    let now_micros = numbers.next().ok_or_else(malformed)? as u64;
    let mut counters = SmallVec::new();
    for part in &call.parts {
        let window_count = part.spec.windows.len();
        let doubles = numbers.by_ref().take(COUNTER_DOUBLES + window_count);
        let doubles: SmallVec<[f64; 16]> = doubles.collect();
        let (
            &[
                standing,
                window_index,
                remaining,
                wait,
                reset,
                delay,
                granted_units,
                total,
                granted_at_micros,
            ],
            used_units,
        ) = doubles.split_first_chunk().ok_or_else(malformed)?;
        if used_units.len() != window_count
            || window_index < 0.0
            || window_index >= window_count as f64
        {
            return Err(malformed());
        }
        counters.push(CounterReply {
            standing: parse_standing(standing).ok_or_else(malformed)?,
            window_index: window_index as u8,
            remaining: remaining as u32,
            retry_after: nanos_from_micros(wait),
            reset_after: nanos_from_micros(reset),
            delay: nanos_from_micros(delay),
            granted_units: granted_units as u32,
            gateway_total: total as u64,
            granted_at_micros: granted_at_micros as u64,
            used_units: used_units.iter().map(|units| *units as u32).collect(),
        });
    }
    match numbers.next() {
        Some(_) => Err(malformed()),
        None => Ok(StoreReply {
            is_admitted,
            now_micros,
            counters,
        }),
    }
}

/// The standing that has this number in `cell.lua`; `None` for all other numbers.
fn parse_standing(number: f64) -> Option<LimitStanding> {
    [
        (0.0, LimitStanding::Within),
        (1.0, LimitStanding::Over),
        (2.0, LimitStanding::Refused),
        (3.0, LimitStanding::Unsatisfiable),
    ]
    .into_iter()
    .find_map(|(code, standing)| (code == number).then_some(standing))
}

fn nanos_from_micros(micros: f64) -> Nanos {
    // The cast saturates.
    Nanos((micros as u64).saturating_mul(1_000))
}
