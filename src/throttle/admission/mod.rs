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

mod counters;
mod decide;
mod demand;
mod holdings;
mod joint_decision;
mod outcome;
mod passed_bytes;
mod prepared;
mod remaining;
mod request;
mod request_progress;
mod shared_decision;
pub mod ticket;
mod verdict;

pub use counters::Admission;
pub use holdings::{ChargedCosts, ChargedUnits, Holdings};
pub use joint_decision::{JointError, JointPart, JointVerdict, MAX_JOINT_COUNTERS};
pub use outcome::{AdmissionOutcome, PendingDecision};
pub use passed_bytes::PassedBytes;
pub use prepared::PreparedDecision;
pub use request::AdmissionRequest;
pub use request_progress::RequestProgress;
pub use ticket::Ticket;
pub use verdict::{Remedy, RuleFinding, Verdict};
