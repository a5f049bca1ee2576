//! A cache of responses to requests that limits refuse. Refusals by one limit differ only in the seconds to wait, so a
//! worker would often build the same response again.
//!
//! Bound: [`CACHE_SLOTS`] responses for each generation of a worker. The key holds everything that a response depends on,
//! and a reload starts with an empty cache.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;

use crate::http::head::Response;
use crate::limit::{LimitFinding, RuleRef, Rules};
use crate::route::HeaderStyle;
use crate::throttle::admission::{Remedy, RuleFinding, Verdict};
use crate::throttle::reject;

/// Maximum number of responses in the cache: a power of two, so that the index of a slot is computed without a division.
pub const CACHE_SLOTS: usize = 64;

/// Maximum number of limits of a request whose refusal is cached. Each limit takes 8 bytes of every key.
const MAX_LIMITS: usize = 4;

/// One worker's cache of refusals. A key can stand in one slot only, where a newer key replaces it.
#[derive(Default)]
pub struct RefusalCache(RefCell<Vec<Option<CacheSlot>>>);

/// The last key that had this slot, and its response.
struct CacheSlot {
    key: RefusalKey,
    /// The response; `None` until the key comes a second time in turn, or the verdict says that it will.
    response: Option<Rc<Response<Bytes>>>,
}

/// The facts of a refused request that its response depends on.
pub(crate) struct RefusedRequest<'a> {
    /// The number of the set of limits that count the request. `None` for a combination of several routes, whose refusals
    /// are not cached.
    pub(crate) limit_set_number: Option<usize>,
    /// The limits that count the request.
    pub(crate) rules: &'a Rules,
    pub(crate) header_style: HeaderStyle,
    pub(crate) is_grpc: bool,
}

/// Everything that the response to a refused request depends on. The set of limits determines the style of its fields.
#[derive(PartialEq, Eq)]
struct RefusalKey {
    limit_set_number: usize,
    is_grpc: bool,
    is_without_store: bool,
    /// What the response tells the client to do.
    remedy: Remedy,
    /// `None` if the response discloses no limit as the one that decided.
    decider: Option<DisclosedDecider>,
    /// The finding of each limit; zero behind the last finding.
    findings: [PackedFinding; MAX_LIMITS],
    /// When the calendar's window of each limit began, because windows differ in length; zero without a calendar.
    calendar_starts: [u32; MAX_LIMITS],
}

/// The limit that the response discloses as the one that decided.
#[derive(PartialEq, Eq)]
struct DisclosedDecider {
    rule: RuleRef,
    /// The units that remain of the limit's quota.
    remaining: u32,
    /// The seconds until the quota resets; 0 for credits, which responses show without a time.
    reset_seconds: u64,
}

/// A finding in one number. From the highest bits: the number of the override (16 bits), the limit's index (8; a request
/// has at most 64 limits), its window (4), its rank by wait among the limits that refuse (4), and its quota (32).
type PackedFinding = u64;

/// The lowest bit of the override's number in a [`PackedFinding`].
const OVERRIDE_SHIFT: u32 = 48;

/// The lowest bit of the limit's index in a [`PackedFinding`].
const RULE_SHIFT: u32 = 40;

/// The lowest bit of the window in a [`PackedFinding`].
const WINDOW_SHIFT: u32 = 36;

/// The lowest bit of the rank in a [`PackedFinding`].
const RANK_SHIFT: u32 = 32;

/// Distance in slots between two keys whose deciding limits have neighbouring indices. A small prime, so that few keys of
/// a busy worker share a slot.
const RULE_STRIDE: usize = 7;

/// Distance in slots between two keys whose sets of limits have neighbouring numbers. Another small prime, for the same
/// reason.
const LIMIT_SET_STRIDE: usize = 11;

impl RefusalCache {
    /// The response to a refused request, from the cache or newly built.
    pub(crate) fn get_or_build(
        &self,
        request: &RefusedRequest<'_>,
        verdict: &Verdict,
    ) -> Rc<Response<Bytes>> {
        let RefusedRequest {
            rules,
            header_style,
            is_grpc,
            ..
        } = *request;
        let build = || reject::refusal(verdict, rules, header_style, is_grpc);
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
                let should_keep = is_second || verdict.is_repeated;
                let mut response = build();
                if should_keep {
                    prepare_for_repetition(&mut response);
                }
                let response = Rc::new(response);
                *slot = Some(CacheSlot {
                    key,
                    response: should_keep.then(|| response.clone()),
                });
                response
            }
        }
    }
}

/// Makes a response cheap to send again: with a length, and with its fields in one piece of memory.
pub(super) fn prepare_for_repetition(response: &mut Response<Bytes>) {
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
    /// The key of a refusal; `None` for more than [`MAX_LIMITS`] findings, or for a combination of several routes.
    fn new(request: &RefusedRequest<'_>, verdict: &Verdict) -> Option<RefusalKey> {
        let rules = request.rules;
        let limit_set_number = request.limit_set_number?;
        if verdict.findings.len() > MAX_LIMITS {
            return None;
        }
        let decider = verdict.disclosed_decider(rules).map(|rule_finding| {
            let finding = &rule_finding.finding;
            let limit = &rule_finding.rule.resolve(rules).limit;
            DisclosedDecider {
                rule: rule_finding.rule,
                remaining: finding.remaining,
                reset_seconds: match limit.is_credits() {
                    true => 0,
                    false => limit.whole_seconds(finding.reset),
                },
            }
        });
        Some(RefusalKey {
            limit_set_number,
            is_grpc: request.is_grpc,
            is_without_store: verdict.is_without_store,
            remedy: verdict.remedy(rules),
            decider,
            findings: pack_findings(&verdict.findings),
            calendar_starts: calendar_starts(&verdict.findings),
        })
    }

    /// The index of the slot of this key. The strides spread keys that differ in one part only.
    fn slot_index(&self) -> usize {
        let wait_seconds = self.remedy.wait_secs().unwrap_or(0) as usize;
        let decider = self.decider.as_ref();
        let rule_index = decider.map_or(0, |decider| usize::from(decider.rule.index));
        let slot = wait_seconds + RULE_STRIDE * rule_index;
        let set_offset = self.limit_set_number.wrapping_mul(LIMIT_SET_STRIDE);
        slot.wrapping_add(set_offset) % CACHE_SLOTS
    }
}

/// The beginnings of the calendar's windows of at most [`MAX_LIMITS`] findings.
fn calendar_starts(findings: &[RuleFinding]) -> [u32; MAX_LIMITS] {
    let mut starts = [0; MAX_LIMITS];
    for (rule_finding, start) in findings.iter().zip(&mut starts) {
        let calendar_window = rule_finding.finding.calendar_window;
        *start = calendar_window.map_or(0, |window| window.start);
    }
    starts
}

/// Packs at most [`MAX_LIMITS`] findings. The response lists the findings that refuse in the order of their waits, so the
/// key needs only that order of the waits.
fn pack_findings(findings: &[RuleFinding]) -> [PackedFinding; MAX_LIMITS] {
    let refuses = |rule_finding: &&RuleFinding| !rule_finding.finding.standing.admits();
    let has_single_refusal = findings.iter().filter(refuses).count() == 1;
    let mut packed_findings = [0; MAX_LIMITS];
    let pairs = findings.iter().zip(&mut packed_findings);
    for (finding_index, (rule_finding, packed_finding)) in pairs.enumerate() {
        let LimitFinding {
            window,
            quota,
            wait,
            ..
        } = rule_finding.finding;
        // The response lists the longest wait first, and equal waits in the order of their indices.
        let is_listed_before = |(other_index, other): (usize, &RuleFinding)| {
            let has_longer_wait = (other.finding.wait, finding_index) > (wait, other_index);
            refuses(&other) && has_longer_wait
        };
        let rank = match refuses(&rule_finding) {
            true if has_single_refusal => 1,
            true => {
                let indexed_findings = findings.iter().enumerate();
                1 + indexed_findings
                    .filter(|indexed_finding| is_listed_before(*indexed_finding))
                    .count()
            }
            false => 0,
        };
        let RuleRef {
            index: rule_index,
            override_number,
        } = rule_finding.rule;
        *packed_finding = u64::from(override_number) << OVERRIDE_SHIFT
            | u64::from(rule_index) << RULE_SHIFT
            | u64::from(window) << WINDOW_SHIFT
            | (rank as u64) << RANK_SHIFT
            | u64::from(quota);
    }
    packed_findings
}
