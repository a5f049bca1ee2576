//! Limits: what they guarantee, and the arithmetic that keeps it. Nothing here does I/O, reads a clock or takes a lock.
//!
//! | | where |
//! |---|---|
//! | a limit as policies name it, with its key and what it counts | `rule.rs`, `key_spec.rs`, `client_filter.rs` |
//! | the two kinds of limits: on a rate, and on open requests | `rule_limit.rs`, `rate_limit.rs`, `concurrency.rs` |
//! | the counts of one key under a limit on a rate | `key_state.rs`; with less work for most limits, `fast_path.rs` |
//! | one file for each algorithm | `sliding_log.rs`, `sliding_window.rs`, `multi_level.rs`, `fixed_window.rs`, `gcra.rs` |
//! | what is lent above a rate | `lending.rs` |
//! | the same arithmetic as numbers, for remote stores | `spec.rs` |
//! | the cost that a response states | `cost/` |
//! | what is done above a rate, and what a sentence promises of it | `throttle.rs`, `guarantee.rs` |
//! | how gateways share a limit | `sharing.rs` |
//! | how much an upstream bears | `pressure/` |

mod algorithm;
mod bucket_ring;
mod client_filter;
pub mod concurrency;
pub mod cost;
mod custom_identity;
mod fast_path;
mod fingerprint;
mod fixed_window;
mod gcra;
mod guarantee;
pub mod header_texts;
mod identity;
mod interval;
pub mod key_spec;
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
mod throttle;

pub use algorithm::{Algorithm, LOG_DEFAULT_MAX_QUOTA};
pub use client_filter::{ClientCondition, ClientFilter, IdentityTest};
pub use concurrency::Concurrency;
pub use custom_identity::CustomIdentity;
pub use fast_path::{Assessment, FastPath};
pub use fingerprint::Fingerprint;
pub use identity::{Identity, IdentitySet};
pub use key_spec::{KeyPart, KeySpec};
pub use key_state::{KeyState, StateShape};
pub use lending::Pace;
pub use rate::Rate;
pub use rate_limit::{MAX_WINDOWS, RateLimit};
pub use reading::{LimitFinding, LimitStanding};
pub use reserve::{Reserve, ReserveSource};
pub use rule::{CountMode, Disclose, LimitName, Rule};
pub use rule_limit::RuleLimit;
pub use rules::Rules;
pub use sharing::{OnStoreError, Sharing};
pub use spec::LimitSpec;
pub use throttle::{Scale, ThrottleMode};
