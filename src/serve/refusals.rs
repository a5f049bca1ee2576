//! Refusals that a worker has told before: those by one limit differ in the seconds to wait, if in anything.
//!
//! Bound: [`PLACES`] answers for each worker.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::identify::Identified;
use crate::admission::Verdict;
use crate::head::Answer;
use crate::throttle::reject;

/// Answers that are kept; a power of two.
const PLACES: usize = 64;

/// See the module.
#[derive(Default)]
pub struct Refusals(RefCell<Vec<Option<Kept>>>);

struct Kept {
    key: Key,
    /// Made when the key has come a second time.
    answer: Option<Rc<Answer<Bytes>>>,
}

/// All that the answer to a request refused by one limit depends on.
#[derive(PartialEq, Eq)]
struct Key {
    route: usize,
    grpc: bool,
    alone: bool,
    wait: Option<u64>,
    /// The limit that is told of, what is left of it and for how long.
    decider: Option<(usize, u32, u64)>,
    /// Limit, window, quota, and whether it refuses.
    findings: SmallVec<[(usize, u8, u32, bool); 4]>,
}

impl Refusals {
    /// The answer to a request that limits refuse.
    pub(super) fn answer(&self, request: &Identified, verdict: &Verdict) -> Rc<Answer<Bytes>> {
        let route = request.routed.route();
        let grpc = reject::is_grpc(&request.routed.arrival.head.fields);
        let make = || reject::answer(verdict, request.rules(), route.headers, grpc);
        let Some(key) = Key::of(request, verdict, grpc) else {
            return Rc::new(make());
        };
        let mut places = self.0.borrow_mut();
        if places.is_empty() {
            places.resize_with(PLACES, || None);
        }
        let place = key.wait.unwrap_or(0) as usize + 7 * key.decider.map_or(0, |(rule, ..)| rule);
        let place = &mut places[(place + 11 * key.route) % PLACES];
        match place {
            Some(Kept {
                key: known,
                answer: Some(answer),
            }) if *known == key => answer.clone(),
            Some(Kept { key: known, answer }) if *known == key => {
                let mut made = make();
                made.head.fields = made.head.fields.gathered();
                answer.insert(Rc::new(made)).clone()
            }
            _ => {
                *place = Some(Kept { key, answer: None });
                Rc::new(make())
            }
        }
    }
}

impl Key {
    /// Nothing where several limits refuse, whose order is that of their waits.
    fn of(request: &Identified, verdict: &Verdict, grpc: bool) -> Option<Key> {
        let rules = request.rules();
        let mut refusing = 0;
        let findings = verdict.findings.iter().map(|finding| {
            let reading = &finding.reading;
            let refuses = !reading.standing.admits();
            refusing += usize::from(refuses);
            (finding.rule, reading.window, reading.quota, refuses)
        });
        let findings = findings.collect();
        let decider = verdict.disclosed_decider(rules).map(|finding| {
            let reading = &finding.reading;
            let reset = rules[finding.rule].limit.seconds(reading.reset);
            (finding.rule, reading.remaining, reset)
        });
        (refusing == 1).then(|| Key {
            route: request.routed.index,
            grpc,
            alone: verdict.alone,
            wait: verdict.retry_after(rules),
            decider,
            findings,
        })
    }
}
