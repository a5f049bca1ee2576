//! Permits of several gateways with a store that is a model, and a network that delays, reorders and loses calls and
//! replies. Gateways are killed and cut off. Never more requests are open than the limit has, and all permits come back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate::base::clock::{Clock, Nanos};
use tollgate::base::random::SplitMix64;
use tollgate::limit::{Concurrency, Fingerprint, OnStoreError};
use tollgate::store::permits::permit_call::{
    LeasePhase, PermitCall, PermitDecider, PermitReply, StoreView,
};
use tollgate::store::permits::{
    PermitGuard, PermitRequest, PermitScope, Permits, SharedTerms, TakeStep, WaitingPermits,
};
use tollgate::store::shared::permit_lease::PermitLease;

const GATEWAYS: usize = 3;
const LIFE: Nanos = Nanos::from_secs(4);
const STEPS: usize = 20_000;

/// What the scripts of Redis do, in a few lines.
#[derive(Default)]
struct Store {
    /// When each lease ends.
    leases: BTreeMap<u64, Nanos>,
    /// The permits of each lease, and the number of its last call.
    holders: BTreeMap<u64, (u32, u64)>,
}

impl Store {
    fn execute(&mut self, call: &PermitCall, now: Nanos) -> Option<PermitReply> {
        self.leases.retain(|_, ends_at| *ends_at > now);
        self.leases.get(&call.lease)?;
        let leases = &self.leases;
        self.holders.retain(|lease, _| leases.contains_key(lease));
        let own = self.holders.get(&call.lease);
        if own.is_some_and(|(_, last_call)| call.number <= *last_call) {
            return None;
        }
        let others = self.holders.iter();
        let others = others.filter(|(lease, _)| **lease != call.lease);
        let others = others.map(|(_, (held, _))| held).sum();
        let free = call.ceiling.saturating_sub(others);
        let held = match free.checked_sub(call.needed) {
            Some(left) => call.needed + call.spare.min(left / 2),
            None => free,
        };
        let held = held.max(call.used);
        match held == 0 && call.is_clean {
            true => self.holders.remove(&call.lease),
            false => self.holders.insert(call.lease, (held, call.number)),
        };
        Some(PermitReply { held, others })
    }
}

/// A call under way: lost to its gateway once that has given up.
struct Sent {
    gateway: usize,
    call: PermitCall,
    is_awaited: bool,
}

struct Gateway {
    permits: Arc<Permits>,
    lease: PermitLease,
    /// The open requests.
    open: Vec<PermitGuard>,
    waiting: Vec<WaitingPermits>,
    is_cut_off: bool,
    has_revoked: bool,
}

struct World {
    draws: SplitMix64,
    clock: Clock,
    store: Store,
    gateways: Vec<Gateway>,
    network: Vec<Sent>,
    lease_count: u64,
    /// The number of permits, of all gateways together.
    ceiling: u32,
    is_leased: bool,
    runtime: tokio::runtime::Runtime,
}

impl Gateway {
    fn new(clock: &Clock) -> Gateway {
        Gateway {
            permits: Arc::new(Permits::shared(clock.clone())),
            lease: PermitLease::new(LIFE),
            open: Vec::new(),
            waiting: Vec::new(),
            is_cut_off: false,
            has_revoked: false,
        }
    }

    fn view(&self, now: Nanos) -> StoreView {
        StoreView {
            decider: PermitDecider::Store,
            phase: self.lease.phase(now),
            gateway_count: GATEWAYS as u32,
            connection_index: 0,
        }
    }
}

impl World {
    fn draw(&self, below: usize) -> usize {
        (self.draws.draw() % below as u64) as usize
    }

    /// A request arrives at a gateway.
    fn arrive(&mut self, index: usize) {
        let limit = Concurrency::hard(self.ceiling);
        let request = [PermitRequest {
            limit: &limit,
            scope: PermitScope::new("parallel"),
            key: Fingerprint(7),
            plan_factor: 1,
            is_shadow: false,
            parents: &[],
            shared: Some(SharedTerms {
                is_leased: self.is_leased,
                is_shadow: false,
                on_store_error: OnStoreError::Closed,
            }),
        }];
        let now = self.clock.now();
        let gateway = &mut self.gateways[index];
        let view = gateway.view(now);
        match gateway
            .permits
            .begin_take(&request, &mut SmallVec::new(), &view, now)
        {
            TakeStep::Decided(decision) if decision.is_admitted => {
                gateway.open.push(decision.guard);
            }
            TakeStep::Decided(_) => {}
            TakeStep::AskStore(waiting) => gateway.waiting.push(*waiting),
        }
    }

    /// A request that waits looks whether it has a permit, and is refused if not.
    fn resolve(&mut self, index: usize) {
        let (now, gateway) = (self.clock.now(), &mut self.gateways[index]);
        let Some(waiting) = gateway.waiting.pop() else {
            return;
        };
        let view = gateway.view(now);
        let limit = Concurrency::hard(self.ceiling);
        let mut findings = SmallVec::new();
        findings.push(limit.assess(0, 1));
        let waiting = waiting.wait(&mut findings, Duration::ZERO, || (view, now));
        let decision = self.runtime.block_on(waiting);
        if decision.is_admitted {
            gateway.open.push(decision.guard);
        }
    }

    /// A gateway sends the calls that are due.
    fn send(&mut self, index: usize) {
        let (now, gateway) = (self.clock.now(), &self.gateways[index]);
        for key in gateway.permits.due_keys(9, now) {
            if let Some(call) = gateway.permits.next_call(key, &gateway.view(now), now) {
                self.network.push(Sent {
                    gateway: index,
                    call,
                    is_awaited: true,
                });
            }
        }
    }

    /// Some call that is under way is executed, and its reply comes or is lost; or its gateway gives it up before.
    fn advance_call(&mut self) {
        if self.network.is_empty() {
            return;
        }
        let place = self.draw(self.network.len());
        let now = self.clock.now();
        if self.draw(8) == 0 {
            let sent = &mut self.network[place];
            if std::mem::take(&mut sent.is_awaited) {
                let (call, gateway) = (sent.call, &self.gateways[sent.gateway]);
                let view = gateway.view(now);
                gateway.permits.record_reply(&call, None, &view, now);
            }
            return;
        }
        if self.gateways[self.network[place].gateway].is_cut_off {
            return;
        }
        let sent = self.network.swap_remove(place);
        let mut reply = self.store.execute(&sent.call, now);
        if self.draw(8) == 0 {
            reply = None;
        }
        if sent.is_awaited {
            let gateway = &self.gateways[sent.gateway];
            let view = gateway.view(now);
            gateway.permits.record_reply(&sent.call, reply, &view, now);
        }
    }

    /// A gateway renews its lease with a call that was sent some time ago, or begins one.
    fn renew(&mut self, index: usize) {
        let now = self.clock.now();
        let sent_at = Nanos(now.0 - Nanos::from_millis(self.draw(300) as u64).0);
        let gateway = &self.gateways[index];
        if gateway.is_cut_off {
            return;
        }
        self.store.leases.retain(|_, ends_at| *ends_at > now);
        let number = gateway.lease.number();
        let is_live = number.is_some_and(|number| self.store.leases.contains_key(&number));
        if is_live && gateway.lease.phase(now) < LeasePhase::Ended && self.draw(50) > 0 {
            let number = number.unwrap();
            self.store.leases.insert(number, now.after(LIFE));
            if self.draw(5) > 0 {
                gateway.lease.record_renewal(sent_at);
            }
            return;
        }
        self.lease_count += 1;
        self.store.leases.insert(self.lease_count, now.after(LIFE));
        gateway.permits.begin_lease(self.lease_count);
        gateway.lease.begin(self.lease_count, sent_at);
        let (keys, _) = gateway.permits.unconfirmed_keys(9);
        for key in keys {
            let view = gateway.view(now);
            if let Some(call) = gateway.permits.next_call(key, &view, now) {
                let reply = self.store.execute(&call, now);
                gateway.permits.record_reply(&call, reply, &view, now);
            }
        }
        if let Some(former) = number {
            self.store.leases.remove(&former);
        }
    }

    /// Gateways whose leases end tell their requests to end.
    fn end_lost_requests(&mut self) {
        let now = self.clock.now();
        for gateway in &mut self.gateways {
            let has_ended =
                gateway.lease.number().is_some() && gateway.lease.phase(now) >= LeasePhase::Ended;
            if has_ended && !gateway.has_revoked {
                gateway.permits.revoke(&gateway.view(now));
            }
            gateway.has_revoked = has_ended;
            gateway.open.retain(|guard| !guard.is_revoked());
        }
    }

    fn step(&mut self) {
        let index = self.draw(GATEWAYS);
        let burst = self.ceiling.div_ceil(5);
        match self.draw(100) {
            // Of many permits more must be asked for at a time, or the last ones are never used.
            0..20 => (0..burst).for_each(|_| self.arrive(index)),
            20..28 => {
                let gateway = &self.gateways[index];
                if !gateway.open.is_empty() {
                    let place = self.draw(gateway.open.len());
                    drop(self.gateways[index].open.swap_remove(place));
                }
            }
            28..55 => (0..burst).for_each(|_| self.resolve(index)),
            55..85 => self.advance_call(),
            85..97 => self.renew(index),
            97 => self.gateways[index].is_cut_off = self.draw(4) == 0,
            98 if self.draw(10) == 0 => {
                let lost = self.network.iter_mut();
                let lost = lost.filter(|sent| sent.gateway == index);
                lost.for_each(|sent| sent.is_awaited = false);
                self.gateways[index] = Gateway::new(&self.clock);
            }
            _ => {}
        }
        self.send(index);
        if self.draw(2) == 0 {
            self.advance_call();
        }
        self.clock.advance(Nanos::from_millis(self.draw(60) as u64));
        self.end_lost_requests();
    }

    fn open_count(&self) -> usize {
        self.gateways.iter().map(|gateway| gateway.open.len()).sum()
    }
}

#[track_caller]
fn check(seed: u64, ceiling: u32, is_leased: bool) {
    let clock = Clock::manual(Nanos::from_secs(1_000));
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let mut world = World {
        draws: SplitMix64::new(seed),
        store: Store::default(),
        gateways: (0..GATEWAYS).map(|_| Gateway::new(&clock)).collect(),
        clock,
        network: Vec::new(),
        lease_count: 0,
        ceiling,
        is_leased,
        runtime: runtime.enable_time().build().unwrap(),
    };
    let (mut most, mut full_steps) = (0, 0);
    for step in 0..STEPS {
        world.step();
        let open_count = world.open_count();
        assert!(
            open_count <= ceiling as usize,
            "seed {seed}, step {step}: {open_count} are open"
        );
        most = most.max(open_count);
        full_steps += usize::from(open_count == ceiling as usize);
    }
    println!("seed {seed}: at most {most}, all of them at {full_steps} steps");
    assert_eq!(most, ceiling as usize, "seed {seed}: the limit is reached");
    // All end, and everybody has the store again.
    for gateway in &mut world.gateways {
        gateway.is_cut_off = false;
        gateway.open.clear();
        gateway.waiting.clear();
    }
    let mut rounds = 0;
    loop {
        for index in 0..GATEWAYS {
            world.renew(index);
            world.send(index);
        }
        world.advance_call();
        world.clock.advance(Nanos::from_millis(50));
        world.end_lost_requests();
        let now = world.clock.now();
        let leases = &world.store.leases;
        let holders = world.store.holders.iter();
        let live = holders.filter(|(lease, _)| leases.get(lease).is_some_and(|end| *end > now));
        if live.map(|(_, (held, _))| held).sum::<u32>() == 0 && world.network.is_empty() {
            break;
        }
        rounds += 1;
        assert!(rounds < 2_000, "seed {seed}: some permits do not come back");
    }
    for gateway in &world.gateways {
        assert_eq!(gateway.permits.key_count(), 0, "seed {seed}");
    }
}

#[test]
fn never_more_than_the_limit_whatever_happens() {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    let seed = u64::from_le_bytes(bytes);
    // Of 60 permits each gateway may take five in advance.
    for (offset, (ceiling, is_leased)) in [(5, false), (5, true), (60, false), (60, true)]
        .into_iter()
        .enumerate()
    {
        check(seed.wrapping_add(offset as u64), ceiling, is_leased);
    }
}

/// Requests of a lease that has ended were counted under the next one, and ended then. So the gateway held their permits
/// beside those that others had taken meanwhile.
#[test]
fn permits_of_an_ended_lease_are_not_used_again() {
    check(18_369_742_864_998_532_024, 60, true);
}
