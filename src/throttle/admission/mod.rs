//! Admission: one request in, one verdict out, and the ticket that settles it. The proxy, `explain` and the admin
//! listener all decide here. Nothing here chooses an HTTP status code, and only a store that gateways share is waited
//! for.
//!
//! | file | what it is |
//! |---|---|
//! | `request` | a request as limits see it |
//! | `counters` | [`Admission`]: the counters of all rules, and the stores that keep them |
//! | `demand` | the keys that count a request, and what it takes of each limit |
//! | `decide` | the decision, where the gateway decides alone |
//! | `shared_decision` | the decision, where gateways share a store |
//! | `joint_decision` | the decision about several clients' descriptors, which are admitted together or not at all |
//! | `outcome` | what a decision leaves to its caller |
//! | `remaining` | what is left for a key, without a request |
//! | `prepared` | the prepared decision about a client's next request |
//! | `verdict` | what all limits say, and which of them decides |
//! | `ticket` | the reservations and permits of an admitted request |
//! | `request_progress` | how many units a request uses, as far as its response has come |
//! | `passed_bytes` | the bytes of a request's bodies that have passed, for limits that count them |
//! | `holdings` | the permits, bytes and costs that a ticket shares with others |

#[cfg(feature = "gateway")]
mod counters;
#[cfg(feature = "gateway")]
mod decide;
#[cfg(feature = "gateway")]
mod demand;
#[cfg(feature = "gateway")]
mod holdings;
#[cfg(feature = "gateway")]
mod joint_decision;
#[cfg(feature = "gateway")]
mod outcome;
#[cfg(feature = "gateway")]
mod passed_bytes;
#[cfg(feature = "gateway")]
mod prepared;
#[cfg(feature = "gateway")]
mod remaining;
#[cfg(feature = "gateway")]
mod request;
#[cfg(feature = "gateway")]
mod request_progress;
#[cfg(feature = "gateway")]
mod shared_decision;
#[cfg(feature = "gateway")]
pub mod ticket;
mod verdict;

#[cfg(feature = "gateway")]
pub use counters::Admission;
#[cfg(feature = "gateway")]
pub use holdings::{ChargedCosts, ChargedUnits, Holdings};
#[cfg(feature = "gateway")]
pub use joint_decision::{JointError, JointPart, JointVerdict, MAX_JOINT_COUNTERS};
#[cfg(feature = "gateway")]
pub use outcome::{AdmissionOutcome, PendingDecision};
#[cfg(feature = "gateway")]
pub use passed_bytes::PassedBytes;
#[cfg(feature = "gateway")]
pub use prepared::PreparedDecision;
#[cfg(feature = "gateway")]
pub use request::AdmissionRequest;
#[cfg(feature = "gateway")]
pub use request_progress::RequestProgress;
#[cfg(feature = "gateway")]
pub use ticket::Ticket;
pub use verdict::{Remedy, RuleFinding, Verdict};
