//! The JSON form: an object of numbers with an object of named metrics in it. It is read entry by entry, because a map
//! would silently keep the last of two equal names.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};

use super::entry::{APPLICATION, CPU, MOST, NAMED, PutEntry, ReportError};

/// Passes each number that may be a load to `put`; named metrics have the name of their object as prefix.
pub(crate) fn read(text: &str, put: &mut PutEntry<'_>) -> Result<(), ReportError> {
    let mut why = ReportError::Entry;
    let mut left = MOST;
    let mut reader = serde_json::Deserializer::from_str(text);
    let entries = Entries {
        within: "",
        left: &mut left,
        put,
        why: &mut why,
    };
    let read = entries.deserialize(&mut reader).and_then(|()| reader.end());
    read.map_err(|_| why)
}

/// The entries of one object. serde's errors are text only, so the cause is left in `why`.
struct Entries<'a, 'p> {
    within: &'a str,
    left: &'a mut usize,
    put: &'a mut PutEntry<'p>,
    why: &'a mut ReportError,
}

impl<'de> DeserializeSeed<'de> for Entries<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let top = self.within.is_empty();
        while let Some(name) = map.next_key::<String>()? {
            let put = if *self.left == 0 {
                Err(ReportError::Long)
            } else if top && matches!(name.as_str(), NAMED | "namedMetrics") {
                map.next_value_seed(Entries {
                    within: NAMED,
                    left: &mut *self.left,
                    put: &mut *self.put,
                    why: &mut *self.why,
                })?;
                Ok(())
            } else if top && !is_load(&name) {
                map.next_value::<IgnoredAny>()?;
                Ok(())
            } else {
                let load = map.next_value::<f64>()?;
                match self.within {
                    "" => (self.put)(&name, load),
                    within => (self.put)(&format!("{within}.{name}"), load),
                }
            };
            *self.left = self.left.saturating_sub(1);
            if let Err(error) = put {
                *self.why = error;
                return Err(M::Error::custom(error));
            }
        }
        Ok(())
    }
}

fn is_load(name: &str) -> bool {
    matches!(
        name,
        APPLICATION | "applicationUtilization" | CPU | "cpuUtilization"
    )
}
