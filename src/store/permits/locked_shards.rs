//! [`LockedShards`]: the shards of the permit counts that one request needs. They are locked in ascending order, so
//! requests never wait for each other in a circle. They stay locked from the evaluation to the last change. Meanwhile
//! only a memory store locks anything else.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::permit_request::{PermitKey, PermitRequest};
use super::shared_key::SharedKey;
use crate::base::locks::{Mutex, MutexGuard};
use crate::limit::concurrency::REFUSAL_WAIT;
use crate::limit::{LimitFinding, LimitStanding};

/// The number of shards, each with a lock of its own: several for each of up to 32 workers, so that two of them rarely need
/// the same.
pub(super) const SHARD_COUNT: usize = 64;

/// The counts of one shard.
#[derive(Debug, Default)]
pub(super) struct ShardCounts {
    /// The number of permits that each key holds.
    pub(super) open: HashMap<PermitKey, u32>,
    /// The keys whose permits gateways share; empty where none are shared.
    pub(super) shared: HashMap<PermitKey, SharedKey>,
}

impl ShardCounts {
    /// The number of permits that a key holds.
    pub(super) fn open_count(&self, key: &PermitKey) -> u32 {
        self.open.get(key).copied().unwrap_or(0)
    }
}

/// One shard of the counts. It has cache lines of its own, so that workers do not wait for each other's shards.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct PermitShard(pub(super) Mutex<ShardCounts>);

/// The index of a key's shard.
pub(super) fn shard_index(key: &PermitKey) -> usize {
    // Scope and key are hashes already.
    (key.scope.hash() ^ key.key.0) as usize % SHARD_COUNT
}

/// The locked shards of one request.
pub(super) struct LockedShards<'a> {
    /// The index of each shard, ascending, and its lock.
    guards: SmallVec<[(usize, MutexGuard<'a, ShardCounts>); 4]>,
}

impl<'a> LockedShards<'a> {
    /// Locks the shards of all keys of these requests, each once.
    pub(super) fn new(
        shards: &'a [PermitShard],
        requests: &[PermitRequest<'_>],
    ) -> LockedShards<'a> {
        let keys = requests.iter().flat_map(PermitRequest::permit_keys);
        let mut indices: SmallVec<[usize; 4]> = keys.map(|key| shard_index(&key)).collect();
        indices.sort_unstable();
        indices.dedup();
        let guards = indices
            .iter()
            .map(|index| (*index, shards[*index].0.lock()));
        LockedShards {
            guards: guards.collect(),
        }
    }

    /// The counts of a key's shard; `None` if the shard is not locked here.
    pub(super) fn counts_for(&mut self, key: &PermitKey) -> Option<&mut ShardCounts> {
        let key_shard = shard_index(key);
        let mut guards = self.guards.iter_mut();
        let (_, guard) = guards.find(|(index, _)| *index == key_shard)?;
        Some(&mut **guard)
    }

    /// The number of permits that a key of a locked shard holds.
    fn open_count(&mut self, key: &PermitKey) -> u32 {
        let counts = self.counts_for(key);
        counts.map_or(0, |counts| counts.open_count(key))
    }

    /// The number of permits that other gateways hold of a key, as far as this one knows.
    fn others(&mut self, request: &PermitRequest<'_>, key: &PermitKey) -> u32 {
        if request.shared.is_none() {
            return 0;
        }
        let counts = self.counts_for(key);
        let shared = counts.and_then(|counts| counts.shared.get(key));
        shared.map_or(0, |shared| shared.others)
    }

    /// Leaves one finding for each permit request. Returns whether there is room for all requests but shadows.
    /// `counts_others` says whether permits that other gateways hold count as well, as far as this one knows.
    pub(super) fn evaluate(
        &mut self,
        requests: &[PermitRequest<'_>],
        findings: &mut SmallVec<[LimitFinding; 2]>,
        counts_others: bool,
    ) -> bool {
        findings.clear();
        let mut has_room = true;
        for (index, request) in requests.iter().enumerate() {
            // Permits that earlier requests of the list would take for the same key.
            let earlier_count = |key: &PermitKey| {
                let earlier_requests = requests[..index].iter();
                let earlier_keys = earlier_requests.flat_map(PermitRequest::permit_keys);
                earlier_keys
                    .filter(|earlier_key| earlier_key == key)
                    .count() as u32
            };
            let mut counted = |key: PermitKey| {
                let others = match counts_others {
                    true => self.others(request, &key),
                    false => 0,
                };
                (self.open_count(&key) + earlier_count(&key)).saturating_add(others)
            };
            let open_count = counted(request.permit_key());
            let mut finding = request.limit.assess(open_count, request.plan_factor);
            for parent in request.parents {
                let open_count = counted(request.network_key(parent));
                let remaining =
                    request
                        .limit
                        .free_in_network(open_count, request.plan_factor, parent.factor);
                finding.remaining = finding.remaining.min(remaining);
                if remaining == 0 {
                    finding.standing = LimitStanding::Refused;
                    finding.wait = REFUSAL_WAIT;
                }
            }
            has_room &= request.is_shadow || finding.standing.admits();
            findings.push(finding);
        }
        has_room
    }

    /// Takes a permit for each request whose finding admits, and adds its keys to `taken_keys`. Then sets in all findings
    /// how many permits remain.
    pub(super) fn take_permits(
        &mut self,
        requests: &[PermitRequest<'_>],
        findings: &mut [LimitFinding],
        taken_keys: &mut SmallVec<[PermitKey; 1]>,
    ) {
        for (request, finding) in requests.iter().zip(&*findings) {
            if !finding.standing.admits() {
                continue;
            }
            for key in request.permit_keys() {
                if let Some(counts) = self.counts_for(&key) {
                    *counts.open.entry(key).or_insert(0) += 1;
                    taken_keys.push(key);
                }
            }
        }
        self.update_remaining(requests, findings);
    }

    /// Sets in all findings how many permits remain now.
    pub(super) fn update_remaining(
        &mut self,
        requests: &[PermitRequest<'_>],
        findings: &mut [LimitFinding],
    ) {
        for (request, finding) in requests.iter().zip(findings) {
            let mut counted = |key: PermitKey| {
                self.open_count(&key)
                    .saturating_add(self.others(request, &key))
            };
            let open_count = counted(request.permit_key());
            finding.remaining = request.limit.free_permits(open_count, request.plan_factor);
            for parent in request.parents {
                let open_count = counted(request.network_key(parent));
                let remaining =
                    request
                        .limit
                        .free_in_network(open_count, request.plan_factor, parent.factor);
                finding.remaining = finding.remaining.min(remaining);
            }
        }
    }
}
