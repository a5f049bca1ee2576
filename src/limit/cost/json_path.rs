//! [`JsonPath`]: where in a JSON document a number is.

use std::sync::Arc;

/// The names of the members that lead to a number in a JSON document, outermost first. A finder needs at least one.
pub type JsonPath = Arc<[String]>;
