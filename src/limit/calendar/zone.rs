//! [`Zone`]: a time zone, from the data that the binary brings along. The zone files of the system are never read.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

use super::period::civil_from_day;

/// The zones of the IANA time zone database, as the binary has them.
static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Seconds of a day without a change of the clock.
pub(super) const SECONDS_PER_DAY: i64 = 86_400;

/// A time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Zone {
    name: Box<str>,
    time_zone: TimeZone,
}

impl Zone {
    /// The zone of this IANA name, in any case of letters; `None` if there is none.
    pub(super) fn new(name: &str) -> Option<Zone> {
        let time_zone = match name.eq_ignore_ascii_case("UTC") {
            true => TimeZone::UTC,
            false => DATABASE.get(name).ok()?,
        };
        let name = time_zone.iana_name()?.into();
        Some(Zone { name, time_zone })
    }

    /// Coordinated universal time.
    pub(super) fn utc() -> Zone {
        Zone {
            name: "UTC".into(),
            time_zone: TimeZone::UTC,
        }
    }

    /// The IANA name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The seconds by which local time is ahead of UTC at an instant, in seconds since the Unix epoch.
    pub(super) fn offset_at(&self, instant: i64) -> i64 {
        let timestamp = Timestamp::from_second(instant).unwrap_or_default();
        i64::from(self.time_zone.to_offset(timestamp).seconds())
    }

    /// The local day at an instant, counted from 1970-01-01.
    pub(super) fn day_at(&self, instant: i64) -> i64 {
        (instant + self.offset_at(instant)).div_euclid(SECONDS_PER_DAY)
    }

    /// When a local day begins: at its midnight, at the first of two, or where the clock skips midnight at the first
    /// instant behind it.
    pub(super) fn start_of_day(&self, day: i64) -> i64 {
        let local = day * SECONDS_PER_DAY;
        let (year, month, day) = civil_from_day(day);
        let date = Date::new(year as i16, month as i8, day as i8).unwrap_or_default();
        let midnight = date.at(0, 0, 0, 0);
        let ambiguous = self.time_zone.to_ambiguous_timestamp(midnight);
        let (offset, is_skipped) = match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { offset } => (offset, false),
            AmbiguousOffset::Fold { before, .. } => (before, false),
            AmbiguousOffset::Gap { before, .. } => (before, true),
        };
        let instant = local - i64::from(offset.seconds());
        if !is_skipped {
            return instant;
        }
        // By the clock as it was, midnight would come here or later than the change.
        let behind = Timestamp::from_second(instant + 1).unwrap_or_default();
        let change = self.time_zone.preceding(behind).next();
        change.map_or(instant, |change| change.timestamp().as_second())
    }
}

/// The names of all zones, in alphabetical order.
pub fn zone_names() -> Vec<String> {
    let mut names: Vec<String> = DATABASE
        .available()
        .map(|name| name.as_str().into())
        .collect();
    names.sort();
    names
}
