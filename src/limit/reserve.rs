//! The number of units that a request takes of a limit on cost at its admission. If the request states its cost, it takes
//! that cost. Otherwise it reserves units until its cost is known.

use std::fmt;

use http::HeaderName;

use super::{RequestCost, cost};

/// The number of units that a request takes at admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// Where a request states the number; `None` if all requests take `otherwise`.
    pub source: Option<ReserveSource>,
    /// The number for requests that state none.
    pub otherwise: u32,
}

/// Where a request states what it may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReserveSource {
    /// The largest number in the header fields of this name.
    Header(HeaderName),
    /// The largest number at this path of the body.
    Json(cost::JsonPath),
    /// The cost that the request states. It is the whole cost, so nothing is settled later.
    Cost(RequestCost),
}

impl Reserve {
    /// What a request takes of a limit that counts `cost`: one unit if it states nothing.
    pub fn for_request_cost(cost: RequestCost) -> Reserve {
        Reserve {
            source: Some(ReserveSource::Cost(cost)),
            otherwise: 1,
        }
    }
}

impl ReserveSource {
    /// Whether the number may stand in the body of the request.
    pub fn is_in_body(&self) -> bool {
        matches!(self, ReserveSource::Json(_) | ReserveSource::Cost(_))
    }
}

/// Writes a reservation as policies do. For [`ReserveSource::Cost`] it writes only the number `otherwise`, because the
/// count of the limit already names the source.
impl fmt::Display for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            None | Some(ReserveSource::Cost(_)) => return write!(f, "{}", self.otherwise),
            Some(ReserveSource::Header(name)) => write!(f, "header {name}")?,
            Some(ReserveSource::Json(path)) => write!(f, "json {}", path.join("."))?,
        }
        write!(f, " else {}", self.otherwise)
    }
}
