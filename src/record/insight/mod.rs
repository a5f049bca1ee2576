//! Insight: the keys that limits count and refuse most often, and single requests as examples. Series alone do not tell
//! one client from a million.
//!
//! Workers pass their counts on ten times a second. So counts of a minute's last tenth of a second may be in the next
//! minute's list. Nothing here decides about a request, or writes to the disk.
//!
//! Bounds: those of two [`TopKeys`], of [`KeyPlans`], of one [`RecentCounts`] for each worker, and 1,024 examples that
//! wait to be collected.

pub mod distinct;
mod event;
pub mod heavy_keeper;
mod key;
mod list;
mod live;
pub mod plans;
pub mod recent;
mod sample;
mod sum;
pub mod top;

pub use event::{Change, GatewayEvent};
pub use key::LimitKey;
pub use list::{KeyList, KeyLists, ListedKey, MAX_LISTED_KEYS};
pub use live::{Insight, Minute};
pub use plans::KeyPlans;
pub use recent::{CountSink, RecentCounts};
pub use sample::{Decision, MAX_SAMPLE_PATH, RequestSample, SampleClass, Sampler};
pub use sum::ListSums;
pub use top::TopKeys;

#[cfg(test)]
mod tests;
