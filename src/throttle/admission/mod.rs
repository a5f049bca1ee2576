//! Admission: one request in, one verdict out, and the ticket that settles it. The proxy, `explain` and the admin
//! listener all decide here. Nothing here chooses an HTTP status code, and only a store that gateways share is waited
//! for.

mod counters;
mod decide;
mod demand;
mod holdings;
mod prepared;
mod request;
mod shared_decision;
pub mod ticket;
mod usage;
mod verdict;

pub use counters::Admission;
pub use holdings::{ChargedCosts, Holdings};
pub use prepared::PreparedDecision;
pub use request::AdmissionRequest;
pub use shared_decision::{AdmissionOutcome, PendingDecision};
pub use ticket::Ticket;
pub use usage::RequestProgress;
pub use verdict::{Finding, Verdict};
