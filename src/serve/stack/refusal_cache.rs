//! A cache of responses to requests that limits refuse. Refusals by one limit differ only in the seconds to wait, so a
//! worker often builds the same response again.
//!
//! Bound: [`CACHE_SLOTS`] responses for each worker. The key holds all that a response depends on, and a reload starts
//! with an empty cache.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;

use crate::http::head::Response;
use crate::limit::{LimitReading, Rules};
use crate::route::HeaderStyle;
use crate::throttle::admission::{Finding, Verdict};
use crate::throttle::reject;

/// Responses that the cache holds; a power of two, so that a slot is found without a division.
pub const CACHE_SLOTS: usize = 64;

/// Most limits of a request whose refusal is cached; each takes 8 bytes of every key.
const MAX_LIMITS: usize = 4;

/// One worker's cache of refusals. Each key has one slot, where a newer key replaces it.
#[derive(Default)]
pub struct RefusalCache(RefCell<Vec<Option<CacheSlot>>>);

struct CacheSlot {
    key: RefusalKey,
    /// The response; none until the key comes a second time or the verdict says that it will.
    response: Option<Rc<Response<Bytes>>>,
}

/// A request that limits refuse, as far as its response depends on it.
pub(crate) struct RefusedRequest<'a> {
    /// The number of its set of limits; none for a combination of several routes, which is not cached.
    pub(crate) set: Option<usize>,
    pub(crate) rules: &'a Rules,
    pub(crate) headers: HeaderStyle,
    pub(crate) is_grpc: bool,
}

/// All that the response to a refused request depends on. The set of limits determines the style of its fields.
#[derive(PartialEq, Eq)]
struct RefusalKey {
    set: usize,
    is_grpc: bool,
    without_store: bool,
    /// The seconds in `Retry-After`.
    retry_after: Option<u64>,
    /// The limit that the response discloses, what remains of its quota, and the seconds until it resets.
    decider: Option<(usize, u32, u64)>,
    /// The finding of each limit; zero behind the last one.
    limits: [PackedFinding; MAX_LIMITS],
}

/// A finding in one number: the limit's index, its window, its rank by wait among those that refuse, and its quota.
type PackedFinding = u64;

impl RefusalCache {
    /// The response to a refused request, from the cache or newly built.
    pub(crate) fn get_or_build(
        &self,
        request: &RefusedRequest<'_>,
        verdict: &Verdict,
    ) -> Rc<Response<Bytes>> {
        let RefusedRequest {
            rules,
            headers,
            is_grpc,
            ..
        } = *request;
        let build = || reject::refusal(verdict, rules, headers, is_grpc);
        let Some(key) = RefusalKey::new(request, verdict) else {
            return Rc::new(build());
        };
        let mut slots = self.0.borrow_mut();
        if slots.is_empty() {
            slots.resize_with(CACHE_SLOTS, || None);
        }
        match &mut slots[key.slot_index()] {
            Some(CacheSlot {
                key: cached_key,
                response: Some(response),
            }) if *cached_key == key => response.clone(),
            slot => {
                let is_second = slot.as_ref().is_some_and(|cached| cached.key == key);
                let is_kept = is_second || verdict.is_repeated;
                let mut response = build();
                if is_kept {
                    prepare_for_repetition(&mut response);
                }
                let response = Rc::new(response);
                *slot = Some(CacheSlot {
                    key,
                    response: is_kept.then(|| response.clone()),
                });
                response
            }
        }
    }
}

/// Makes a response cheap to send again: with a length, and with its fields in one piece of memory.
fn prepare_for_repetition(response: &mut Response<Bytes>) {
    let fields = &mut response.head.fields;
    if !fields.contains("content-length") {
        // Otherwise the sender would format the length each time.
        let mut digits = itoa::Buffer::new();
        let length = digits.format(response.body.len());
        fields.add("content-length", length.as_bytes());
    }
    *fields = fields.to_shared();
}

impl RefusalKey {
    /// The key of a refusal; none for more than [`MAX_LIMITS`] findings, or for a combination of several routes.
    fn new(request: &RefusedRequest<'_>, verdict: &Verdict) -> Option<RefusalKey> {
        let (rules, set) = (request.rules, request.set?);
        if verdict.findings.len() > MAX_LIMITS {
            return None;
        }
        let decider = verdict.disclosed_decider(rules).map(|finding| {
            let reading = &finding.reading;
            let reset = rules[finding.rule_index].limit.whole_seconds(reading.reset);
            (finding.rule_index, reading.remaining, reset)
        });
        Some(RefusalKey {
            set,
            is_grpc: request.is_grpc,
            without_store: verdict.is_without_store,
            retry_after: verdict.retry_after_secs(rules),
            decider,
            limits: pack_findings(&verdict.findings),
        })
    }

    /// The slot of this key. The factors spread keys that differ in one part only.
    fn slot_index(&self) -> usize {
        let wait = self.retry_after.unwrap_or(0) as usize;
        let by_limit = wait + 7 * self.decider.map_or(0, |(rule, ..)| rule);
        by_limit.wrapping_add(self.set.wrapping_mul(11)) % CACHE_SLOTS
    }
}

/// Packs at most [`MAX_LIMITS`] findings. The response lists those that refuse by their waits, of which the key needs
/// only the order.
fn pack_findings(findings: &[Finding]) -> [PackedFinding; MAX_LIMITS] {
    let refuses = |finding: &&Finding| !finding.reading.standing.admits();
    let is_single = findings.iter().filter(refuses).count() == 1;
    let mut packed = [0; MAX_LIMITS];
    for (index, (finding, packed)) in findings.iter().zip(&mut packed).enumerate() {
        let LimitReading {
            window,
            quota,
            wait,
            ..
        } = finding.reading;
        // Of equal waits the first comes first.
        let is_before = |(other_index, other): (usize, &Finding)| {
            let has_longer_wait = (other.reading.wait, index) > (wait, other_index);
            refuses(&other) && has_longer_wait
        };
        let rank = match refuses(&finding) {
            true if is_single => 1,
            true => {
                let others = findings.iter().enumerate();
                1 + others.filter(|other| is_before(*other)).count()
            }
            false => 0,
        };
        let limit = (finding.rule_index as u64) << 48 | u64::from(window) << 40;
        *packed = limit | (rank as u64) << 32 | u64::from(quota);
    }
    packed
}
