//! One request in, one verdict out, and the ticket that settles it. Every door of the gateway
//! decides here; nothing here knows HTTP status codes of its own. Only a store that gateways share is waited for.

mod ahead;
mod ask;
mod asked;
mod charge;
mod counters;
mod decide;
mod later;
mod stake;
pub mod ticket;
mod verdict;

pub use ahead::Ahead;
pub use ask::Ask;
pub use charge::Outcome;
pub use counters::Admission;
pub use later::{Decided, Later};
pub use stake::{Costs, Stake};
pub use ticket::Ticket;
pub use verdict::{Finding, Verdict};
