//! Counts of requests that will come: a processor takes longer to fetch them from memory than to decide, and what a
//! connection waits for is known before it is read.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Admission;
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
        let each = rules.iter().zip(keys);
        let buckets = each.filter_map(|(rule, key)| self.store.bucket(self.slot(rule)?, (*key)?));
        Ahead {
            store: self.store.clone(),
            buckets: buckets.collect(),
        }
    }
}
