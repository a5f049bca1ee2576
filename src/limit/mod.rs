//! Limits: what they guarantee, and the arithmetic that keeps it. Nothing here does I/O, reads a clock or waits for a
//! store. The one mutex is in `cost/unpacker.rs`: it guards the list of the owners of decompressors' windows.
//!
//! | modules | what they are |
//! |---|---|
//! | `rule`, `rules` | a limit as a policy names it, compiled; the rules of one route |
//! | `key_spec`, `identity`, `custom_identity`, `fingerprint` | what a limit counts by; the keyed hash of that, which stores see |
//! | `client_filter` | which clients a limit is for |
//! | `user_sources` | what verified a user, and what a route requires of that |
//! | `access_list`, `network_table` | which clients are denied or allowed; many networks with names |
//! | `count_mode`, `reserve`, `cost/` | what uses up units; what a request takes at admission; the cost that a response states |
//! | `rule_limit` | the two kinds of limits: `rate_limit` on a rate, `concurrency` on open requests |
//! | `rate`, `interval` | a quota in a window; durations by which every request divides |
//! | `calendar/` | windows of the calendar: days, weeks, months, quarters and years of a time zone |
//! | `finding` | what one limit says of one request |
//! | `key_state`, `state_window`, `state_shape` | the counts of one key under a limit on a rate; one window of them; which limits share them |
//! | `fast_path` | decisions with less work than `key_state`, for most limits |
//! | `algorithm` | the names of the algorithms |
//! | `sliding_log`, `sliding_window`, `multi_level`, `fixed_window`, `gcra` | the arithmetic of each algorithm |
//! | `bucket_ring` | a ring of counts, for sliding windows and for levels |
//! | `throttle`, `lending` | what a limit does above its rate; the pace at which an elastic one lends |
//! | `grant` | how much more of a limit a key has for a time |
//! | `guarantee` | the guarantee as a sentence |
//! | `header_style`, `header_texts` | which rate-limit header fields a response carries; texts for them |
//! | `sharing`, `spec` | how gateways share a limit; the arithmetic as numbers, for a remote store |
//! | `pressure/` | how much an upstream bears, and who gives way first |

mod access_list;
mod algorithm;
mod ban_policy;
mod bucket_ring;
pub mod calendar;
mod client_filter;
pub mod concurrency;
pub mod cost;
mod count_mode;
pub mod custom_identity;
mod fast_path;
mod finding;
mod fingerprint;
mod fixed_window;
mod gcra;
mod grant;
mod guarantee;
mod header_style;
pub mod header_texts;
mod identity;
mod interval;
pub mod key_spec;
mod key_state;
mod lending;
mod multi_level;
mod network_table;
// Rules name conditions, which only the gateway parses.
#[cfg_attr(not(feature = "gateway"), allow(dead_code))]
pub mod pressure;
pub mod rate;
mod rate_limit;
mod reserve;
pub mod rule;
mod rule_limit;
mod rules;
pub mod sharing;
mod sliding_log;
mod sliding_window;
pub mod spec;
mod state_shape;
mod state_window;
mod throttle;
mod user_sources;

pub use access_list::{AccessEffect, AccessList, AccessLists};
pub use algorithm::{Algorithm, LOG_DEFAULT_MAX_QUOTA};
pub use ban_policy::BanPolicy;
pub use calendar::{Calendar, CalendarUnit, CalendarWindow, Period};
pub use client_filter::{ClientCondition, ClientFilter, IdentityTest};
pub use concurrency::Concurrency;
pub use count_mode::{BodyDirection, CountMode, RequestCost};
pub use custom_identity::CustomIdentity;
pub use fast_path::{Assessment, FastPath};
pub use finding::{LimitFinding, LimitStanding};
pub use fingerprint::Fingerprint;
pub use grant::{AppliedGrant, GrantError, LimitGrant};
pub use header_style::HeaderStyle;
pub use identity::{Identity, IdentitySet};
pub use key_spec::{KeyPart, KeySpec};
pub use key_state::KeyState;
pub use lending::Pace;
pub use network_table::{NetworkTable, NetworkTableBuilder};
pub use rate::{Alignment, Rate};
pub use rate_limit::{MAX_WINDOWS, RateLimit};
pub use reserve::{Reserve, ReserveSource};
pub use rule::{Disclose, KeyLimit, LimitName, OverrideSet, Overrides, Rule};
pub use rule_limit::RuleLimit;
pub use rules::{RuleRef, Rules};
pub use sharing::{OnStoreError, Sharing};
pub use spec::LimitSpec;
pub use state_shape::StateShape;
pub use throttle::{Scale, ThrottleMode};
pub use user_sources::UserSources;
