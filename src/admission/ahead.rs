//! Counts of requests that will come: a processor takes longer to fetch them from memory than to decide, and what a
//! connection waits for is known before it is read.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Admission, Counter};
use crate::limit::{Fingerprint, Rule};
use crate::store::{Bucket, Memory};

/// Where the counts are that the next request will most likely meet.
#[derive(Debug)]
pub struct Ahead {
    store: Arc<Memory>,
    buckets: SmallVec<[Bucket; 4]>,
}

impl Ahead {
    /// Starts to load them. Asks nothing, and waits for nothing.
    #[inline]
    pub fn prefetch(&self) {
        for bucket in &self.buckets {
            self.store.prefetch(*bucket);
        }
    }
}

impl Admission {
    /// What a request will meet that these rules count under these keys.
    pub fn ahead(&self, rules: &[Arc<Rule>], keys: &[Option<Fingerprint>]) -> Ahead {
        let buckets = rules.iter().zip(keys).filter_map(|(rule, key)| {
            match self.counters.get(rule.index)? {
                Counter::Rate(registered, _) => self.store.bucket(registered.slot(), (*key)?),
                Counter::Open(_) => None,
            }
        });
        Ahead {
            store: self.store.clone(),
            buckets: buckets.collect(),
        }
    }
}
