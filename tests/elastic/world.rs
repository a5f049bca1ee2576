//! Clients, gateways and one upstream, under a clock that jumps from event to event. What stands between
//! them are the real modules. Greedy keys have an elastic limit each, divided among the gateways.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use smallvec::SmallVec;
use tollgate::base::clock::Nanos;
use tollgate::limit::pressure::{
    CONTROL_STEP, Controller, GatewayLoad, Pressure, PressureFigures, RequestClass, RequestKind,
    Settings, StepContext, Trust, UpstreamSlot, Utilisation,
};
use tollgate::limit::{
    Algorithm, Fingerprint, LimitStanding, Rate, RateLimit, Scale, ThrottleMode,
};
use tollgate::store::{self, LimitItem, MemoryStore, RegisteredLimit};

use super::draw::Draw;
use super::figures::Figures;
use super::upstream::{Service, Upstream};

const SECOND: f64 = 1_000_000_000.0;

/// Base limits of the greedy keys in requests a second: three plans, 160 together.
pub const BASE: [f64; 10] = [4., 4., 4., 4., 16., 16., 16., 32., 32., 32.];

/// What a scenario is made of. All but the number of gateways may change while it runs.
#[derive(Clone, Copy, Debug)]
pub struct World {
    pub gateways: usize,
    pub workers: usize,
    pub service: Service,
    /// Requests a second.
    pub critical: f64,
    pub normal: f64,
    pub low: f64,
    /// What the greedy keys ask for together, and what their base limits are multiplied with.
    pub greedy: f64,
    pub base: f64,
    pub trust: Trust,
    /// What takes long has a route of its own.
    pub routes: bool,
    /// What each answer says of the upstream's load.
    pub report: Option<Utilisation>,
}

impl World {
    /// 16 workers, 800 requests a second, and 1,630 of which 590 are guaranteed.
    pub fn calm(gateways: usize) -> World {
        World {
            gateways,
            workers: 16,
            service: Service {
                mean: 20.0,
                spread: 0.5,
                long: 0.0,
            },
            critical: 200.0,
            normal: 150.0,
            low: 80.0,
            greedy: 1_200.0,
            base: 1.0,
            trust: Trust::Lower,
            routes: false,
            report: None,
        }
    }

    /// The same with all rates and workers multiplied.
    pub fn times(self, by: f64) -> World {
        World {
            workers: (self.workers as f64 * by) as usize,
            critical: self.critical * by,
            normal: self.normal * by,
            low: self.low * by,
            greedy: self.greedy * by,
            base: self.base * by,
            ..self
        }
    }
}

struct Request {
    arrived: u64,
    class: RequestClass,
    slot: UpstreamSlot,
    /// What takes long, and before it the rest.
    kinds: [RequestKind; 2],
}

enum What {
    Arrival,
    Done(Request, RequestKind),
    Step(usize),
}

/// A due event; the heap hands out the earliest, and of two the one that was planned first.
struct Event {
    at: u64,
    serial: u64,
    what: What,
}

impl Ord for Event {
    fn cmp(&self, other: &Event) -> Ordering {
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

struct Gateway {
    pressure: Arc<Pressure>,
    controller: Controller,
    store: MemoryStore,
    /// Those of the greedy keys.
    limits: Vec<(RateLimit, RegisteredLimit)>,
    /// How far its wall clock is ahead.
    skew: u64,
}

/// A world that runs.
pub struct Simulation {
    pub world: World,
    now: u64,
    draw: Draw,
    events: BinaryHeap<Event>,
    serial: u64,
    gateways: Vec<Gateway>,
    upstream: Upstream<Request>,
    figures: Figures,
}

impl Simulation {
    /// Begins at a moment that the seed chooses, so that scenarios meet probes in any phase.
    pub fn new(world: World, seed: u64) -> Simulation {
        let mut draw = Draw::new(seed);
        let now = Nanos::from_secs(90_000).0 + draw.below(Nanos::from_secs(4).0);
        let gateways = (0..world.gateways).map(|_| {
            let settings = Settings {
                max_open: 10_000,
                max_factor: 10.0,
                trust: world.trust,
            };
            let live = world.gateways as u32;
            let (pressure, controller) = Controller::new(settings, live, Nanos(now));
            let store = MemoryStore::new(store::Settings {
                budget_bytes: 1 << 20,
            })
            .unwrap();
            let limits = BASE.iter().enumerate().map(|(key, base)| {
                let limit = limit(base * world.base / world.gateways as f64);
                let registered = store.register(&key.to_string(), &limit).unwrap();
                (limit, registered)
            });
            Gateway {
                pressure,
                controller,
                limits: limits.collect(),
                store,
                skew: draw.below(Nanos::from_millis(50).0),
            }
        });
        let mut simulation = Simulation {
            gateways: gateways.collect(),
            upstream: Upstream::new(world.workers),
            figures: Figures::new(world),
            events: BinaryHeap::new(),
            serial: 0,
            world,
            now,
            draw,
        };
        for gateway in 0..world.gateways {
            let phase = simulation.draw.below(CONTROL_STEP.0);
            simulation.plan(phase, What::Step(gateway));
        }
        simulation.plan(0, What::Arrival);
        simulation
    }

    /// Runs for so many seconds and says what happened in them.
    pub fn run(&mut self, seconds: f64) -> Figures {
        let end = self.now + (seconds * SECOND) as u64;
        self.figures = Figures::new(self.world);
        while self.events.peek().is_some_and(|event| event.at <= end) {
            let Some(event) = self.events.pop() else {
                break;
            };
            self.advance(event.at);
            match event.what {
                What::Arrival => self.arrive(),
                What::Done(request, kind) => self.done(request, kind),
                What::Step(gateway) => self.step(gateway),
            }
        }
        self.advance(end);
        std::mem::replace(&mut self.figures, Figures::new(self.world))
    }

    /// Seconds until the mean of the gateways' factors is above `factor`; at most `most`.
    pub fn until_above(&mut self, factor: f64, most: f64) -> f64 {
        let mut seconds = 0.0;
        while seconds < most && self.factor() <= factor {
            self.run(0.1);
            seconds += 0.1;
        }
        seconds
    }

    /// The mean of the gateways' factors.
    pub fn factor(&self) -> f64 {
        let sum: f64 = self.figures_of_all().map(|now| now.factor.get()).sum();
        sum / self.gateways.len() as f64
    }

    /// What each gateway publishes.
    pub fn figures_of_all(&self) -> impl Iterator<Item = PressureFigures> {
        self.gateways
            .iter()
            .map(|gateway| gateway.pressure.figures())
    }

    fn plan(&mut self, after: u64, what: What) {
        self.serial += 1;
        self.events.push(Event {
            at: self.now + after,
            serial: self.serial,
            what,
        });
    }

    fn advance(&mut self, to: u64) {
        let seconds = (to - self.now) as f64 / SECOND;
        self.figures.pass(seconds, self.upstream.busy());
        self.now = to;
    }

    fn arrive(&mut self) {
        let World {
            critical,
            normal,
            low,
            greedy,
            ..
        } = self.world;
        let rates = [critical, normal, low, greedy];
        let rate: f64 = rates.iter().sum();
        let gap = self.draw.gap(SECOND / rate) as u64;
        self.plan(gap, What::Arrival);
        let gateway = self.draw.below(self.gateways.len() as u64) as usize;
        let mut rest = self.draw.unit() * rate;
        let kind = rates.iter().position(|rate| {
            rest -= rate;
            rest < 0.0
        });
        let person = self.draw.below(1_000);
        let (class, key) = match kind {
            Some(0) => (RequestClass::Critical, person),
            Some(1) => (RequestClass::Normal, person),
            Some(2) => (RequestClass::Low, person),
            _ => (RequestClass::Normal, person % BASE.len() as u64),
        };
        // As in the gateway: a place first, then what the limit says to what may be lent now.
        let hash = || Draw::new(key).next();
        let admitted = self.gateways[gateway]
            .pressure
            .admit(class, Nanos(self.now), hash);
        let mut borrows = false;
        if !matches!(kind, Some(0..=2)) {
            // Who is shed is told of the limit where that refuses too.
            match self.limit(gateway, key as usize, admitted.is_ok()) {
                LimitStanding::Within => {}
                LimitStanding::Over => borrows = true,
                _ => return,
            }
        }
        if !borrows {
            self.figures.asked(class, admitted.is_ok());
        } else if admitted.is_ok() {
            self.figures.borrowed(key as usize);
        }
        if let Err(shed) = &admitted {
            self.gateways[gateway].pressure.record_shed(shed);
        }
        if let Ok(slot) = admitted {
            slot.record_admission(borrows);
            let arrived = self.now;
            let pressure = &self.gateways[gateway].pressure;
            let request = Request {
                arrived,
                class,
                slot,
                kinds: ["short", "long"].map(|name| pressure.kind(name)),
            };
            if let Some(request) = self.upstream.arrive(request) {
                self.begin(request);
            }
        }
    }

    /// What a greedy key's elastic limit says, which counts the request if it is to `take`.
    fn limit(&mut self, gateway: usize, key: usize, take: bool) -> LimitStanding {
        let gateway = &self.gateways[gateway];
        let (limit, registered) = &gateway.limits[key];
        let item = LimitItem {
            limit,
            slot: registered.slot(),
            key: Fingerprint(1),
            cost: 1,
            scale: Scale {
                plan_factor: 1,
                lent: ((gateway.pressure.lending_factor().get() - 1.0) * 1000.0) as u32,
            },
            is_shadow: false,
            parents: &[],
        };
        let mut findings = SmallVec::new();
        let now = Nanos(self.now);
        match take {
            true => gateway.store.take(&[item], now, &mut findings),
            false => gateway.store.peek(&[item], now, &mut findings),
        };
        findings[0].standing
    }

    fn begin(&mut self, request: Request) {
        let (span, long) = self.world.service.draw(&mut self.draw);
        let kind = request.kinds[usize::from(long && self.world.routes)];
        self.plan(span, What::Done(request, kind));
    }

    fn done(&mut self, request: Request, kind: RequestKind) {
        let span = Nanos(self.now - request.arrived);
        request.slot.record_latency(kind, span);
        if let Some(load) = self.world.report {
            request.slot.record_load(load);
        }
        self.figures.served(request.class, span);
        drop(request);
        if let Some(next) = self.upstream.done() {
            self.begin(next);
        }
    }

    fn step(&mut self, gateway: usize) {
        self.plan(CONTROL_STEP.0, What::Step(gateway));
        let gateways = self.gateways.len() as u32;
        let gateway = &mut self.gateways[gateway];
        let around = StepContext {
            wall: Nanos(self.now + gateway.skew),
            gateways,
            gateway_load: GatewayLoad::default(),
        };
        gateway.controller.step(Nanos(self.now), &around);
        self.figures.factor(gateway.pressure.factor().get());
    }
}

/// A bucket of tokens: what a second brings may come at once, and two units at least.
fn limit(rate: f64) -> RateLimit {
    let quota = (60.0 * rate) as u32;
    RateLimit {
        windows: vec![Rate::new(quota, Nanos::from_secs(60)).unwrap()],
        algorithm: Algorithm::Gcra {
            burst: Some((rate as u32).max(2)),
        },
        throttle: ThrottleMode::Elastic {
            at_most: 10,
            base: 1,
        },
        reserves: false,
        max_plan_factor: 1,
    }
}
