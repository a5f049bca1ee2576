//! What uses up units of a limit: requests, responses with a status, or a cost.

use std::fmt;

use super::cost;

/// What a limit counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountMode {
    /// Every admitted request, one unit each.
    All,
    /// Responses whose status is in the range, one unit each.
    Status {
        /// Lowest status that counts.
        from: u16,
        /// Highest status that counts.
        to: u16,
    },
    /// The number in this header or trailer field of the response.
    CostHeader(http::HeaderName),
    /// The last number at this path in the body of the response.
    CostJson(cost::JsonPath),
    /// The number that the request states.
    CostRequest(RequestCost),
    /// The bytes of the bodies that pass in this direction.
    CostBytes(BodyDirection),
    /// Every admitted request and every message that a client sends over a WebSocket, one unit each.
    CostMessages,
}

/// The direction of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyDirection {
    /// Bodies of requests.
    In,
    /// Bodies of responses.
    Out,
    /// Both bodies of an exchange.
    Both,
}

impl BodyDirection {
    /// The word in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            BodyDirection::In => "in",
            BodyDirection::Out => "out",
            BodyDirection::Both => "both",
        }
    }

    /// Whether bodies of requests are counted.
    pub fn has_requests(self) -> bool {
        self != BodyDirection::Out
    }
}

/// A cost that a request states, so that it is certain at admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestCost {
    /// The number at this path in the body, the query or a cookie.
    Json(cost::JsonPath),
    /// The number of items of the batch that the body is, mostly the elements of a JSON array; 1 for other bodies.
    Items,
}

impl CountMode {
    /// Whether the units of a request are known only after its admission.
    pub fn is_settled_later(&self) -> bool {
        !matches!(
            self,
            CountMode::All | CountMode::CostRequest(_) | CountMode::CostMessages
        )
    }

    /// Whether the limit counts a cost: a request may use more than one unit.
    pub fn is_cost(&self) -> bool {
        !matches!(self, CountMode::All | CountMode::Status { .. })
    }

    /// Whether each request or message takes one unit at its admission, and nothing is settled later.
    pub fn takes_one_unit(&self) -> bool {
        matches!(self, CountMode::All | CountMode::CostMessages)
    }

    /// Whether the response states the cost, so that it may never become known.
    pub fn is_stated_in_response(&self) -> bool {
        matches!(self, CountMode::CostHeader(_) | CountMode::CostJson(_))
    }
}

/// Writes the count as policies do.
impl fmt::Display for CountMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CountMode::All => f.write_str("all"),
            CountMode::Status { from, to } if from == to => write!(f, "status {from}"),
            CountMode::Status { from, to } => write!(f, "status {from}-{to}"),
            CountMode::CostHeader(name) => write!(f, "cost header {name}"),
            CountMode::CostJson(path) => write!(f, "cost json {}", path.join(".")),
            CountMode::CostRequest(RequestCost::Json(path)) => {
                write!(f, "cost request json {}", path.join("."))
            }
            CountMode::CostRequest(RequestCost::Items) => f.write_str("cost request items"),
            CountMode::CostMessages => f.write_str("cost messages"),
            CountMode::CostBytes(direction) => write!(f, "cost bytes {}", direction.as_str()),
        }
    }
}
