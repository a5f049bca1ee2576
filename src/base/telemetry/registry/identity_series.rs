//! The bounds of series with values of identities. `bounded_counters.rs` adds the series themselves, within these
//! bounds.

use std::collections::{HashMap, HashSet};

/// The largest number of values of one identity that are counted apart.
pub const MAX_VALUES_PER_IDENTITY: usize = 1_000;
/// The largest number of series with values of identities: half of the series that a process records. Without this
/// bound, values on many routes would leave no room for other series.
pub(super) const MAX_IDENTITY_SERIES: usize = 4_096;

/// What is used of the two bounds. It only grows, because these series are never removed.
#[derive(Debug, Default)]
pub(super) struct IdentitySeries {
    /// The values of each identity that are counted apart.
    values: HashMap<String, HashSet<String>>,
    /// The number of series, those with the value `other` left out.
    series_count: usize,
}

impl IdentitySeries {
    /// Counts a new series of this value if it is within the bounds, and returns whether it is. Must be called only for
    /// a series that does not exist yet.
    pub(super) fn add(&mut self, identity: &str, value: &str) -> bool {
        if self.series_count >= MAX_IDENTITY_SERIES {
            return false;
        }
        let values = self.values.entry(identity.to_owned()).or_default();
        if !values.contains(value) && values.len() >= MAX_VALUES_PER_IDENTITY {
            return false;
        }
        values.insert(value.to_owned());
        self.series_count += 1;
        true
    }
}
