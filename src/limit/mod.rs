//! Limits: what they guarantee, and the arithmetic that keeps it. No I/O, no clock, no lock.
//!
//! | | where |
//! |---|---|
//! | a limit as policies name it, with its key and what it counts | `rule.rs` |
//! | its two kinds: on a rate, and on open requests | `rule_limit.rs`, `rate_limit.rs`, `concurrency.rs` |
//! | the counts of one key under a limit on a rate | `key_state.rs`; with less work for the usual limits, `terms.rs` |
//! | one file for each algorithm | `sliding_log.rs`, `sliding_window.rs`, `multi_level.rs`, `fixed_window.rs`, `gcra.rs` |
//! | what is lent above a rate | `lending.rs` |
//! | the same arithmetic as numbers, for remote stores | `spec.rs` |
//! | the cost that a response states | `cost/` |
//! | how much an upstream bears | `pressure/` |

mod algorithm;
mod buckets;
pub mod concurrency;
pub mod cost;
mod fingerprint;
mod fixed_window;
mod gcra;
mod guarantee;
mod interval;
mod key_state;
mod lending;
mod multi_level;
pub mod pressure;
pub mod rate;
mod rate_limit;
mod reading;
mod reserve;
pub mod rule;
mod rule_limit;
mod rules;
pub mod sharing;
mod sliding_log;
mod sliding_window;
pub mod spec;
mod state_window;
mod terms;
pub mod texts;
mod throttle;

pub use algorithm::{Algorithm, LOG_DEFAULT_QUOTA};
pub use concurrency::Concurrency;
pub use fingerprint::Fingerprint;
pub use key_state::{KeyState, StateShape};
pub use lending::Pace;
pub use rate::Rate;
pub use rate_limit::{Limit, MAX_WINDOWS};
pub use reading::{LimitReading, LimitStanding};
pub use reserve::{Reserve, ReserveSource};
pub use rule::{CountMode, Disclose, Identity, LimitName, Rule};
pub use rule_limit::RuleLimit;
pub use rules::Rules;
pub use sharing::{OnError, Sharing};
pub use spec::Spec;
pub use terms::{Assessment, Terms};
pub use throttle::{Scale, ThrottleMode};
