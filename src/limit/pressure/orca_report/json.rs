//! The JSON form of a report: an object of numbers with an object of named metrics in it. It is read entry by entry,
//! because a map would silently keep the last of two equal names.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};

use super::entry::{
    APPLICATION_METRIC, CPU_METRIC, MAX_REPORT_ENTRIES, NAMED_METRICS, OnEntry, ReportError,
};

/// Passes each number that may be a load to `on_entry`. Named metrics get the name of their object as a prefix.
pub(crate) fn parse_entries(text: &str, on_entry: &mut OnEntry<'_>) -> Result<(), ReportError> {
    let mut cause = ReportError::BadEntry;
    let mut remaining_entries = MAX_REPORT_ENTRIES;
    let mut reader = serde_json::Deserializer::from_str(text);
    let entries = ObjectEntries {
        prefix: "",
        remaining_entries: &mut remaining_entries,
        on_entry,
        cause: &mut cause,
    };
    let parsed = entries.deserialize(&mut reader).and_then(|()| reader.end());
    parsed.map_err(|_| cause)
}

/// The entries of one object. serde's errors are text only, so the cause is left in `cause`.
struct ObjectEntries<'a, 'p> {
    /// The name of the enclosing object; empty at the top.
    prefix: &'a str,
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
        let is_outermost = self.prefix.is_empty();
        while let Some(name) = map.next_key::<String>()? {
            let outcome = if *self.remaining_entries == 0 {
                Err(ReportError::TooLong)
            } else if is_outermost && matches!(name.as_str(), NAMED_METRICS | "namedMetrics") {
                map.next_value_seed(ObjectEntries {
                    prefix: NAMED_METRICS,
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
                    "" => (self.on_entry)(&name, number),
                    prefix => (self.on_entry)(&format!("{prefix}.{name}"), number),
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

fn is_load_name(name: &str) -> bool {
    matches!(
        name,
        APPLICATION_METRIC | "applicationUtilization" | CPU_METRIC | "cpuUtilization"
    )
}
