//! Many threads, few keys: never one request more than the limit, never one less.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;

use smallvec::SmallVec;
use tollgate::base::clock::{Clock, Nanos};
use tollgate::identity::{self, ClientIdentity, Identifier, Keyer};
use tollgate::limit::{
    Algorithm, Concurrency, Fingerprint, Identity, LimitName, RateLimit, Rule, RuleLimit, Scale,
    ThrottleMode,
};
use tollgate::store::{LimitItem, LimitSlot, MemoryStore, Settings};
use tollgate::throttle::admission::{
    Admission, AdmissionOutcome, AdmissionRequest, PreparedDecision, Ticket,
};

const THREADS: u32 = 8;
const NOW: Nanos = Nanos::from_secs(90_000);

fn limit(rates: &str, algorithm: Algorithm) -> RateLimit {
    let windows = rates.split(',').map(|rate| rate.parse().unwrap()).collect();
    RateLimit {
        windows,
        algorithm,
        throttle: ThrottleMode::Hard,
        reserves: false,
        max_plan_factor: 1,
    }
}

fn algorithms() -> [Algorithm; 5] {
    [
        Algorithm::SlidingLog,
        Algorithm::SlidingWindow,
        Algorithm::MultiLevel,
        Algorithm::FixedWindow,
        Algorithm::Gcra { burst: None },
    ]
}

fn item(limit: &RateLimit, slot: LimitSlot, key: u128) -> LimitItem<'_> {
    let key = Fingerprint(key.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    LimitItem {
        limit,
        slot,
        key,
        cost: 1,
        scale: Scale::plan(1),
        is_shadow: false,
        parents: &[],
    }
}

fn store() -> Arc<MemoryStore> {
    Arc::new(
        MemoryStore::new(Settings {
            budget_bytes: 8 << 20,
        })
        .unwrap(),
    )
}

/// Runs `work(thread, turn)` on all threads; how often it said yes.
fn count(turns: u32, work: impl Fn(u32, u32) -> bool + Sync) -> u32 {
    let yes = AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (yes, work) = (&yes, &work);
            scope.spawn(move || {
                let mine = (0..turns).filter(|turn| work(number, *turn)).count();
                yes.fetch_add(mine as u32, Relaxed);
            });
        }
    });
    yes.into_inner()
}

fn passes(memory: &MemoryStore, items: &[LimitItem<'_>]) -> bool {
    memory.take(items, NOW, &mut SmallVec::new())
}

#[test]
fn admitted_is_the_limit_exactly() {
    for algorithm in algorithms() {
        let memory = store();
        let (ip, user) = (limit("1000/h", algorithm), limit("600/h", algorithm));
        let a = memory.register("ip", &ip).unwrap().slot();
        let b = memory.register("user", &user).unwrap().slot();
        // Two users behind one address: 1,000 of the 1,200 they could have.
        let pairs = [
            [item(&ip, a, 1), item(&user, b, 2)],
            [item(&user, b, 3), item(&ip, a, 1)],
        ];
        let done = count(500, |thread, turn| {
            passes(&memory, &pairs[((thread + turn) % 2) as usize])
        });
        assert_eq!(done, 1_000, "{algorithm:?}");
        // What the users have left is what the refusals did not take.
        let left = |key| {
            let one = [item(&user, b, key)];
            (0..700).filter(|_| passes(&memory, &one)).count()
        };
        assert_eq!(left(2) + left(3), 200, "{algorithm:?}");
    }
}

#[test]
fn refusals_leave_other_limits_untouched() {
    for algorithm in algorithms() {
        let memory = store();
        let (full, free) = (limit("1/h", algorithm), limit("500/h", algorithm));
        let a = memory.register("full", &full).unwrap().slot();
        let b = memory.register("free", &free).unwrap().slot();
        assert!(passes(&memory, &[item(&full, a, 1)]));
        let both = [item(&free, b, 2), item(&full, a, 1)];
        let mixed = count(400, |thread, turn| {
            if (thread + turn) % 2 == 0 {
                assert!(!passes(&memory, &both));
                false
            } else {
                passes(&memory, &both[..1])
            }
        });
        assert_eq!(mixed, 500, "{algorithm:?}");
    }
}

#[test]
fn reservations_never_pass_the_limit() {
    for algorithm in algorithms() {
        let memory = store();
        let limit = RateLimit {
            reserves: true,
            ..limit("200/h", algorithm)
        };
        let slot = memory.register("fails", &limit).unwrap().slot();
        let (open, most) = (AtomicU32::new(0), AtomicU32::new(0));
        let failed = count(2_000, |thread, turn| {
            let one = item(&limit, slot, 5);
            if !passes(&memory, &[one]) {
                return false;
            }
            most.fetch_max(open.fetch_add(1, Relaxed) + 1, Relaxed);
            let fails = (thread + turn) % 3 == 0;
            if !fails {
                open.fetch_sub(1, Relaxed);
            }
            memory.settle(&one, false, u32::from(fails), NOW);
            fails
        });
        assert_eq!(failed, 200, "{algorithm:?}");
        assert!(most.into_inner() <= 200, "{algorithm:?}");
        assert!(!passes(&memory, &[item(&limit, slot, 5)]));
    }
}

/// An admission by rules of one identity each, and requests of it.
struct Site {
    rules: Vec<Arc<Rule>>,
    admission: Admission,
    identifier: Identifier,
}

impl Site {
    fn new(limits: Vec<(Identity, RuleLimit)>) -> Site {
        let rule = |(index, (by, limit)): (usize, (Identity, RuleLimit))| {
            let name = LimitName::new(&format!("limit-{index}")).unwrap();
            Arc::new(Rule::new(name, index, &[by], limit))
        };
        let rules: Vec<_> = limits.into_iter().enumerate().map(rule).collect();
        Site {
            admission: Admission::new(&rules, store(), Clock::manual(NOW)).unwrap(),
            rules,
            identifier: Identifier::new(identity::Settings::default(), Keyer::random()),
        }
    }

    /// Of one address and one of a few users.
    fn decide(&self, user: u32) -> (bool, Ticket) {
        let mut who = ClientIdentity::new(IpAddr::V4(Ipv4Addr::LOCALHOST));
        who.user = Some(user.to_string().into());
        self.ask_limits(&self.ask(&who, NOW), None)
    }

    fn ask_limits(
        &self,
        ask: &AdmissionRequest<'_>,
        ahead: Option<&PreparedDecision>,
    ) -> (bool, Ticket) {
        let mut decided = AdmissionOutcome::default();
        assert!(self.admission.decide(ask, ahead, &mut decided).is_none());
        (decided.verdict.is_admitted, decided.ticket)
    }

    fn ask<'a>(&'a self, who: &'a ClientIdentity, now: Nanos) -> AdmissionRequest<'a> {
        AdmissionRequest {
            rules: &self.rules,
            client: who,
            identifier: &self.identifier,
            now,
            pressure: None,
            reserved_units: &[],
        }
    }
}

#[test]
fn open_requests_never_exceed_their_permits() {
    const USERS: u32 = 3;
    let permits = |most| RuleLimit::from(Concurrency::hard(most));
    let site = Site::new(vec![
        (Identity::Ip, permits(5)),
        (Identity::User, permits(2)),
    ]);
    let of_user: [AtomicU32; USERS as usize] = Default::default();
    let of_ip = AtomicU32::new(0);
    let done = count(3_000, |thread, turn| {
        let user = (thread + turn) % USERS;
        let (admitted, ticket) = site.decide(user);
        if !admitted {
            assert!(ticket.is_empty());
            return false;
        }
        let counters = [(&of_ip, 5), (&of_user[user as usize], 2)];
        for (open, most) in counters {
            assert!(open.fetch_add(1, SeqCst) < most);
        }
        if turn % 4 == 0 {
            thread::yield_now();
        }
        // Before they are given back, for then others have them at once.
        for (open, _) in counters {
            open.fetch_sub(1, SeqCst);
        }
        true
    });
    assert!(done > 0);
    assert_eq!(site.admission.permits().key_count(), 0, "all are back");
    let users = (0..USERS).chain(0..USERS);
    let all: Vec<(bool, Ticket)> = users.map(|user| site.decide(user)).collect();
    let admitted: Vec<bool> = all.iter().map(|(admitted, _)| *admitted).collect();
    assert_eq!(admitted, [true, true, true, true, true, false]);
}

#[test]
fn permits_and_rates_are_taken_together_or_not_at_all() {
    for algorithm in algorithms() {
        let site = Site::new(vec![
            (Identity::Ip, limit("1000/h", algorithm).into()),
            (Identity::User, Concurrency::hard(1).into()),
        ]);
        let busy = count(200, |thread, turn| {
            let (admitted, ticket) = site.decide((thread + turn) % 2);
            if admitted && turn % 4 == 0 {
                thread::yield_now();
            }
            drop(ticket);
            admitted
        });
        assert_eq!(site.admission.permits().key_count(), 0, "{algorithm:?}");
        // What was refused for want of a permit used up no rate.
        let rest = (0..2_000).filter(|_| site.decide(0).0).count();
        assert_eq!(busy as usize + rest, 1_000, "{algorithm:?}");
        // What the rate refuses holds no permit.
        let refused: Vec<_> = (0..3).map(|_| site.decide(0)).collect();
        assert!(refused.iter().all(|(admitted, _)| !admitted));
        assert_eq!(site.admission.permits().key_count(), 0, "{algorithm:?}");
    }
}

#[test]
fn a_client_that_is_refused_again_and_again_gets_what_there_is() {
    const ROUNDS: u64 = 50;
    for algorithm in algorithms() {
        let site = Site::new(vec![
            (Identity::Ip, limit("60/m", algorithm).into()),
            (Identity::User, limit("90/m", algorithm).into()),
        ]);
        let who = ClientIdentity::new(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let together = Barrier::new(THREADS as usize);
        let admitted: [AtomicU32; ROUNDS as usize] = std::array::from_fn(|_| AtomicU32::new(0));
        count(1, |_, _| {
            // A connection of its own, which knows what it was told last.
            let ahead = site.admission.prepare(&site.ask(&who, NOW));
            for round in 0..ROUNDS {
                // Long enough for all that was used to leave every kind of window.
                let now = NOW.after(Nanos::from_secs(round * 200));
                together.wait();
                for _ in 0..100 {
                    let ask = site.ask(&who, now);
                    let (passes, _) = site.ask_limits(&ask, Some(&ahead));
                    admitted[round as usize].fetch_add(u32::from(passes), Relaxed);
                }
            }
            true
        });
        let admitted = admitted.map(AtomicU32::into_inner);
        assert_eq!(admitted, [60; ROUNDS as usize], "{algorithm:?}");
    }
}
