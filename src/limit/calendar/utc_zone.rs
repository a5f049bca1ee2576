//! [`UtcZone`]: the only time zone of builds without the gateway, which lack the data of the others.

pub(super) use UtcZone as Zone;

/// Seconds of a day.
pub(super) const SECONDS_PER_DAY: i64 = 86_400;

/// Coordinated universal time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UtcZone;

impl UtcZone {
    /// The zone of this name; `None` unless it is `UTC`, in any case of letters.
    pub(super) fn new(name: &str) -> Option<UtcZone> {
        name.eq_ignore_ascii_case("UTC").then_some(UtcZone)
    }

    /// Coordinated universal time.
    pub(super) fn utc() -> UtcZone {
        UtcZone
    }

    /// The IANA name.
    pub(super) fn name(&self) -> &str {
        "UTC"
    }

    /// The seconds by which local time is ahead of UTC: none.
    pub(super) fn offset_at(&self, _: i64) -> i64 {
        0
    }

    /// The day at an instant, counted from 1970-01-01.
    pub(super) fn day_at(&self, instant: i64) -> i64 {
        instant.div_euclid(SECONDS_PER_DAY)
    }

    /// The first instant of a day.
    pub(super) fn start_of_day(&self, day: i64) -> i64 {
        day * SECONDS_PER_DAY
    }
}

/// The names of all zones.
pub fn zone_names() -> Vec<String> {
    vec![String::from("UTC")]
}
