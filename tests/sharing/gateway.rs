//! One gateway: the real core, on a clock of its own, and what its keeper does.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use tollgate::base::clock::Nanos;
use tollgate::limit::{
    Algorithm, Fingerprint, OnStoreError, Rate, RateLimit, Scale, Sharing, ThrottleMode,
};
use tollgate::store::shared::breaker::Breaker;
use tollgate::store::shared::call::CounterName;
use tollgate::store::shared::decider::Decider;
use tollgate::store::shared::give_backs::GiveBacks;
use tollgate::store::shared::ledger::Ledger;
use tollgate::store::shared::pending_call::PendingCall;
use tollgate::store::shared::recovery::Recovery;
use tollgate::store::shared::shared_item::{SharedItem, SharedItems};
use tollgate::store::shared::sharing_plan::SharingPlan;
use tollgate::store::{self, MemoryStore, RegisteredLimit};

/// One limit of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub scope: &'static str,
    pub sharing: Sharing,
    pub algorithm: Algorithm,
    /// Units and seconds.
    pub windows: &'static [(u32, u64)],
    /// Keys that are counted.
    pub keys: u64,
}

impl Rule {
    pub fn limit(&self) -> RateLimit {
        let each = self.windows.iter();
        let each = each.map(|(units, seconds)| Rate::new(*units, Nanos::from_secs(*seconds)));
        RateLimit {
            windows: each.collect::<Result<_, _>>().unwrap(),
            algorithm: self.algorithm,
            throttle: ThrottleMode::Hard,
            reserves: false,
            max_plan_factor: 1,
        }
    }
}

/// A rule as a gateway has it.
struct Place {
    limit: Arc<RateLimit>,
    plan: Arc<SharingPlan>,
    registered: RegisteredLimit,
}

/// What a gateway waits for.
#[derive(Debug)]
pub enum Waits {
    /// A request of these keys, one for each rule.
    Request(Box<PendingCall>, SmallVec<[u64; 2]>),
    /// The same request, which was decided without it.
    Gone(Box<PendingCall>),
    /// Nobody.
    Told(Box<PendingCall>),
    /// The keeper.
    Met,
    Look,
    Compares(Box<PendingCall>),
    Learns(Box<PendingCall>),
    Heartbeat,
}

/// See the module.
pub struct Gateway {
    pub decider: Decider,
    places: Vec<Place>,
    keys: Vec<u64>,
    pub recovery: Recovery,
    /// The mark that it knows.
    pub mark: Option<u64>,
    /// The master that it has met.
    pub master: u32,
    pub waits: BTreeMap<u64, Waits>,
    /// Processes in this place, counted.
    pub life: u32,
    pub alive: bool,
    /// Its machine stands still until then.
    pub paused: u64,
    /// Nothing gets through to the store or back.
    pub cut: bool,
    /// Regular heartbeats that were late in a row.
    pub late: u32,
    pub ticks: u64,
    /// How often the store had gone away when it last did, and what each window of each key may admit without it
    /// when nobody else is alone: what this gateway has used, and its part of what is free.
    round: u32,
    pub left: Vec<Vec<Vec<u32>>>,
    /// It takes requests.
    pub serves: bool,
    pub born: u64,
    /// What its clock says at zero, and how much faster it goes, in millionths.
    zero: u64,
    drift: i64,
}

impl Gateway {
    pub fn new(rules: &[Rule], number: u32, now: u64, (zero, drift): (u64, i64)) -> Gateway {
        let memory = MemoryStore::new(store::Settings {
            budget_bytes: 1 << 20,
        })
        .unwrap();
        let place = |rule: &Rule| {
            let limit = rule.limit();
            let registered = memory.register(rule.scope, &limit).unwrap();
            let (sharing, on_error) = (rule.sharing, OnStoreError::Local);
            let plan =
                SharingPlan::new(rule.scope, &limit, &registered, sharing, on_error).unwrap();
            assert_eq!(plan.lease.is_some(), rule.sharing == Sharing::Leased);
            Place {
                limit: Arc::new(limit),
                plan: Arc::new(plan),
                registered,
            }
        };
        let places: Vec<Place> = rules.iter().map(place).collect();
        let ledger = Ledger::new(1 << 20);
        places
            .iter()
            .for_each(|place| ledger.record_windows(&place.plan));
        let local = Nanos(zero).after(Nanos(scaled(now, drift)));
        Gateway {
            decider: Decider {
                memory: Arc::new(memory),
                ledger,
                breaker: Breaker::new(local),
                give_backs: GiveBacks::default(),
                gateway: number,
            },
            places,
            keys: rules.iter().map(|rule| rule.keys).collect(),
            recovery: Recovery::default(),
            mark: None,
            master: 0,
            waits: BTreeMap::new(),
            life: 0,
            alive: true,
            paused: 0,
            cut: false,
            late: 0,
            ticks: 0,
            round: 0,
            left: Vec::new(),
            serves: false,
            born: now,
            zero,
            drift,
        }
    }

    /// The same machine with a new process.
    pub fn restarted(&self, rules: &[Rule], number: u32, now: u64) -> Gateway {
        Gateway {
            life: self.life + 1,
            cut: self.cut,
            ..Gateway::new(rules, number, now, (self.zero, self.drift))
        }
    }

    /// What its clock says.
    pub fn local(&self, now: u64) -> Nanos {
        Nanos(self.zero + scaled(now, self.drift))
    }

    /// A request that counts one unit of each rule.
    pub fn lines(&self, keys: &[u64]) -> SharedItems {
        let line = |(place, key): (&Place, &u64)| SharedItem {
            plan: Some(place.plan.clone()),
            limit: place.limit.clone(),
            slot: place.registered.slot(),
            key: fingerprint(*key),
            cost: 1,
            scale: Scale::plan(1),
            is_shadow: false,
            parents: SmallVec::new(),
        };
        self.places.iter().zip(keys).map(line).collect()
    }

    pub fn name(&self, rule: usize, key: u64) -> CounterName {
        self.places[rule].plan.counter_name(fingerprint(key))
    }

    pub fn plan(&self, rule: usize) -> &SharingPlan {
        &self.places[rule].plan
    }

    /// Remembers what it may admit by itself, if it is alone since.
    pub fn note_leaving(&mut self, now: u64) {
        if self.decider.breaker.outage_count() == self.round && !self.left.is_empty() {
            return;
        }
        self.round = self.decider.breaker.outage_count();
        let gateways = self.decider.breaker.gateway_count();
        let key = |rule, key| {
            let windows = self.plan(rule).limit.windows.iter();
            let held = windows.zip(self.holds(rule, key, now));
            held.map(|(rate, (own, free))| (own + free).max(rate.quota() / gateways))
                .collect()
        };
        let rule = |rule| (0..self.keys[rule]).map(|one| key(rule, one)).collect();
        self.left = (0..self.places.len()).map(rule).collect();
    }

    /// Of a key and each window: units that it has used or has in hand, and its part of what it takes for free.
    pub fn holds(&self, rule: usize, key: u64, now: u64) -> Vec<(u32, u32)> {
        let (now, line) = (
            self.local(now),
            &self.lines(&vec![key; self.places.len()])[rule],
        );
        let item = store::LimitItem {
            limit: &line.limit,
            slot: line.slot,
            key: line.key,
            cost: 0,
            scale: line.scale,
            is_shadow: false,
            parents: &[],
        };
        let own = self.decider.memory.used_units(&item, now);
        let name = self.name(rule, key);
        let known = self.decider.ledger.with_entry(&name, |entry| {
            let untold = entry.unreported_units();
            let used: Vec<u32> = entry
                .last_reply
                .used_units
                .iter()
                .map(|used| used + untold)
                .collect();
            (used, entry.units_in_hand(now))
        });
        let (used, units) = known.unwrap_or_default();
        let gateways = self.decider.breaker.gateway_count();
        let each = line.limit.windows.iter().zip(&own).enumerate();
        let each = each.map(|(window, (rate, own))| {
            let used = used.get(window).copied().unwrap_or(0);
            (own + units, rate.quota().saturating_sub(used) / gateways)
        });
        each.collect()
    }
}

/// Far apart, as hashes are.
fn fingerprint(key: u64) -> Fingerprint {
    Fingerprint(u128::from(key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn scaled(now: u64, drift: i64) -> u64 {
    (i128::from(now) + i128::from(now) * i128::from(drift) / 1_000_000) as u64
}
