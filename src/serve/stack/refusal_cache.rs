//! Responses to refusals that a worker has made before. Those of one limit differ only in the seconds to wait.
//!
//! Bound: [`PLACES`] responses for each worker. The key is all that a response depends on, and a reload begins anew.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;

use crate::http::head::Response;
use crate::limit::{LimitReading, Rules};
use crate::route::HeaderStyle;
use crate::throttle::admission::{Finding, Verdict};
use crate::throttle::reject;

/// Responses that are kept; a power of two.
pub const PLACES: usize = 64;

/// Most limits of a request whose refusal is kept.
const MOST: usize = 4;

/// See the module.
#[derive(Default)]
pub struct RefusalCache(RefCell<Vec<Option<CachedResponse>>>);

struct CachedResponse {
    key: RefusalKey,
    /// Kept once the key has come a second time, or is about to.
    response: Option<Rc<Response<Bytes>>>,
}

/// A request that limits refuse, as far as the response depends on it.
pub(crate) struct RefusedRequest<'a> {
    /// The number of its set of limits, if they are those of one route.
    pub(crate) set: Option<usize>,
    pub(crate) rules: &'a Rules,
    pub(crate) headers: HeaderStyle,
    pub(crate) grpc: bool,
}

/// All that the response to a request that limits refuse depends on.
#[derive(PartialEq, Eq)]
struct RefusalKey {
    set: usize,
    grpc: bool,
    alone: bool,
    wait: Option<u64>,
    /// The limit that the response discloses, what remains of it and for how many seconds.
    decider: Option<(usize, u32, u64)>,
    /// Each limit; zero behind the last one.
    limits: [PackedFinding; MOST],
}

/// A limit: its index, its window, its rank by wait among those that refuse, and its quota.
type PackedFinding = u64;

impl RefusalCache {
    /// The response to a request that limits refuse.
    pub(crate) fn response(
        &self,
        request: &RefusedRequest<'_>,
        verdict: &Verdict,
    ) -> Rc<Response<Bytes>> {
        let RefusedRequest {
            rules,
            headers,
            grpc,
            ..
        } = *request;
        let make = || reject::refusal(verdict, rules, headers, grpc);
        let Some(key) = RefusalKey::of(request, verdict) else {
            return Rc::new(make());
        };
        let mut places = self.0.borrow_mut();
        if places.is_empty() {
            places.resize_with(PLACES, || None);
        }
        let place = key.wait.unwrap_or(0) as usize + 7 * key.decider.map_or(0, |(rule, ..)| rule);
        let place = &mut places[place.wrapping_add(key.set.wrapping_mul(11)) % PLACES];
        match place {
            Some(CachedResponse {
                key: known,
                response: Some(response),
            }) if *known == key => response.clone(),
            place => {
                let before = place.as_ref().is_some_and(|kept| kept.key == key);
                let mut made = make();
                if before || verdict.repeated {
                    gather(&mut made);
                }
                let made = Rc::new(made);
                let response = (before || verdict.repeated).then(|| made.clone());
                *place = Some(CachedResponse { key, response });
                made
            }
        }
    }
}

/// Makes a response that is cheap to repeat.
fn gather(response: &mut Response<Bytes>) {
    let fields = &mut response.head.fields;
    if !fields.contains("content-length") {
        // The sender would add it each time.
        let mut digits = itoa::Buffer::new();
        let length = digits.format(response.body.len());
        fields.add("content-length", length.as_bytes());
    }
    *fields = fields.to_shared();
}

impl RefusalKey {
    /// None for more than [`MOST`] limits, or for those of several routes.
    fn of(request: &RefusedRequest<'_>, verdict: &Verdict) -> Option<RefusalKey> {
        let (rules, set) = (request.rules, request.set?);
        let refuses = |finding: &&Finding| !finding.reading.standing.admits();
        let mut limits = [0; MOST];
        if verdict.findings.len() > MOST {
            return None;
        }
        let single = verdict.findings.iter().filter(refuses).count() == 1;
        for (place, (finding, limit)) in verdict.findings.iter().zip(&mut limits).enumerate() {
            let LimitReading {
                window,
                quota,
                wait,
                ..
            } = finding.reading;
            // Of equals the first comes first.
            let ahead = |(other, before): (usize, &Finding)| {
                let before_it = (before.reading.wait, place) > (wait, other);
                refuses(&before) && before_it
            };
            let each = verdict.findings.iter().enumerate();
            let order = match refuses(&finding) {
                true if single => 1,
                true => 1 + each.filter(|f| ahead(*f)).count(),
                false => 0,
            };
            let which = (finding.rule as u64) << 48 | u64::from(window) << 40;
            *limit = which | (order as u64) << 32 | u64::from(quota);
        }
        let decider = verdict.disclosed_decider(rules).map(|finding| {
            let reading = &finding.reading;
            let reset = rules[finding.rule].limit.whole_seconds(reading.reset);
            (finding.rule, reading.remaining, reset)
        });
        Some(RefusalKey {
            set,
            grpc: request.grpc,
            alone: verdict.without_store,
            wait: verdict.retry_after(rules),
            decider,
            limits,
        })
    }
}
