//! The JSON form of an ORCA report (`xds/data/orca/v3/orca_load_report.proto` in <https://github.com/cncf/xds>): an
//! object of numbers, with an object of named metrics in it. It is read entry by entry, because a map would silently
//! keep the last of two equal names.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};

use super::entry::{
    APPLICATION_METRIC, CPU_METRIC, MAX_REPORT_ENTRIES, NAMED_METRICS, OnEntry, ReportError,
};

/// Passes the loads of the outermost object and all named metrics to `on_entry`. The name of a named metric gets the
/// prefix `named_metrics.`, however the report spells it. Other members are skipped.
///
/// # Errors
///
/// The text is not a JSON object, or a load or named metric is not a number. Also if all objects together have more
/// than [`MAX_REPORT_ENTRIES`] members, or if `on_entry` rejects an entry.
pub(crate) fn parse_entries(text: &str, on_entry: &mut OnEntry<'_>) -> Result<(), ReportError> {
    let mut cause = ReportError::BadEntry;
    let mut remaining_entries = MAX_REPORT_ENTRIES;
    let mut reader = serde_json::Deserializer::from_str(text);
    let entries = ObjectEntries {
        prefix: None,
        remaining_entries: &mut remaining_entries,
        on_entry,
        cause: &mut cause,
    };
    let parsed = entries.deserialize(&mut reader).and_then(|()| reader.end());
    parsed.map_err(|_| cause)
}

/// Reads the entries of one object. An error of serde holds text only, so a [`ReportError`] is stored in `cause`.
struct ObjectEntries<'a, 'p> {
    /// The prefix of the entries' names; `None` in the outermost object.
    prefix: Option<&'static str>,
    /// How many members the report may still have in all of its objects, skipped ones included.
    remaining_entries: &'a mut usize,
    on_entry: &'a mut OnEntry<'p>,
    cause: &'a mut ReportError,
}

impl<'de> DeserializeSeed<'de> for ObjectEntries<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ObjectEntries<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let is_outermost = self.prefix.is_none();
        while let Some(name) = map.next_key::<String>()? {
            let outcome = if *self.remaining_entries == 0 {
                Err(ReportError::TooLong)
            } else if is_outermost && matches!(name.as_str(), NAMED_METRICS | "namedMetrics") {
                map.next_value_seed(ObjectEntries {
                    prefix: Some(NAMED_METRICS),
                    remaining_entries: &mut *self.remaining_entries,
                    on_entry: &mut *self.on_entry,
                    cause: &mut *self.cause,
                })?;
                Ok(())
            } else if is_outermost && !is_load_name(&name) {
                map.next_value::<IgnoredAny>()?;
                Ok(())
            } else {
                let number = map.next_value::<f64>()?;
                match self.prefix {
                    None => (self.on_entry)(&name, number),
                    Some(prefix) => (self.on_entry)(&format!("{prefix}.{name}"), number),
                }
            };
            *self.remaining_entries = self.remaining_entries.saturating_sub(1);
            if let Err(error) = outcome {
                *self.cause = error;
                return Err(M::Error::custom(error));
            }
        }
        Ok(())
    }
}

/// Whether an entry of the outermost object is a load, by the proto's name or by its JSON name.
fn is_load_name(name: &str) -> bool {
    matches!(
        name,
        APPLICATION_METRIC | "applicationUtilization" | CPU_METRIC | "cpuUtilization"
    )
}
