//! Insight: the keys that limits count and refuse most often, and single requests as examples (samples). Series
//! alone do not tell one client from a million.
//!
//! Workers pass their counts on ten times a second. So counts of a minute's last tenth of a second may be in the next
//! minute's list. Nothing here decides about a request, or writes to the disk.
//!
//! | module | content |
//! |---|---|
//! | [`recent_counts`] | the counts that one worker has not passed on yet |
//! | [`top_keys`] | counts the keys of a minute, for all workers |
//! | [`heavy_keeper`], [`distinct_count`] | its sketches: the frequent keys; the number of different keys |
//! | [`key_plans`] | the plan by which each key was counted |
//! | `shadow_tally` | the keys that limits would have refused |
//! | `live` | the counts and samples that all workers share |
//! | `limit_key`, `key_list`, `list_sum` | the name of a key; lists of keys in the record; sums of lists |
//! | `request_sample`, `gateway_event` | the other notes of the record |
//!
//! Bounds: those of two [`TopKeys`], of [`KeyPlans`], of [`ShadowTallies`], of one [`RecentCounts`] for each worker, and 1,024 samples that
//! wait to be collected.

pub mod distinct_count;
mod gateway_event;
pub mod heavy_keeper;
mod key_list;
pub mod key_plans;
mod limit_key;
mod list_sum;
mod live;
pub mod recent_counts;
mod request_sample;
mod shadow_tally;
pub mod top_keys;

pub use gateway_event::{AuditEntry, GatewayEvent, LimitChange};
pub use key_list::{KeyList, KeyLists, ListedKey, MAX_LISTED_KEYS};
pub use key_plans::KeyPlans;
pub use limit_key::LimitKey;
pub use list_sum::ListSums;
pub use live::{LiveInsight, Minute};
pub use recent_counts::{CountSink, RecentCounts};
pub use request_sample::{
    LimitDecision, MAX_SAMPLE_PATH_BYTES, RequestSample, SampleClass, Sampler,
};
pub use shadow_tally::{ShadowTallies, ShadowTally};
pub use top_keys::TopKeys;

#[cfg(test)]
mod tests;
