//! The cost that a response states, in header fields or in its body. A body is read while it passes: JSON, event streams
//! or JSON lines, plain or compressed. The body is neither kept nor changed. Numbers that requests state are parsed here
//! too.
//!
//! | file | what it is |
//! |---|---|
//! | `meter` | looks for the costs in one body |
//! | `unpacker` | decompresses a body |
//! | `body_text` | finds the JSON in a body |
//! | `number_finder` | finds the number at a path of a JSON document |
//! | `container_skip` | skips a container that is off the path |
//! | `json_path` | the path of a number |
//! | `units` | numbers of units in texts |
//!
//! Bounds: for each path a number of [`number_finder::MAX_NUMBER_BYTES`] bytes; for decompressors see [`unpacker`].

#[cfg(feature = "gateway")]
mod body_text;
#[cfg(feature = "gateway")]
mod container_skip;
mod json_path;
#[cfg(feature = "gateway")]
mod meter;
#[cfg(feature = "gateway")]
mod number_finder;
mod units;
#[cfg(feature = "gateway")]
mod unpacker;

#[cfg(feature = "gateway")]
#[cfg(test)]
mod tests;

use http::HeaderName;

use crate::http::head::Lookup;

pub use json_path::JsonPath;
#[cfg(feature = "gateway")]
pub use meter::{CostMeter, MeasuredCost};
pub use units::{parse_plain_units, parse_units, parse_units_from};

/// The largest number of units in the fields of this name, whose values may be lists; `None` without a number.
pub fn largest_in_fields(fields: &dyn Lookup, name: &HeaderName) -> Option<u32> {
    let mut largest = None;
    fields.visit(name.as_str(), &mut |value| {
        let numbers = value.split(|byte| *byte == b',').filter_map(parse_units);
        largest = largest.max(numbers.max());
    });
    largest
}
