//! Clients, gateways and one store in simulated time. The real code decides; messages are lost, delayed, doubled, reordered.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use smallvec::SmallVec;
use tollgate::store::Taking;
use tollgate::store::shared::call::{Call, HeartbeatSender, LiveGateways, StoreError, StoreReply};
use tollgate::store::shared::decider::GrantsToReturn;
use tollgate::store::shared::pending_call::{CountedIn, FirstStep, PendingCall, SharedDecision};

use super::draw::Draw;
use super::faults::Fault;
use super::gateway::{Gateway, Rule, Waits};
use super::judge::{DRIFT, Track, Unit};
use super::store::Data;

pub const MILLI: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLI;
/// For how long a request waits for the store, and everything else.
pub const BUDGET: u64 = 5 * MILLI;
pub const PATIENCE: u64 = 500 * MILLI;
const TICK: u64 = 100 * MILLI;

/// What happens to a message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Net {
    /// Messages of a million that are lost, doubled, slow (up to 80 ms).
    pub lost: u64,
    pub doubled: u64,
    pub slow: u64,
}

/// What the clients ask for: each key so often a second.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub rate: f64,
    /// Requests that come at once.
    pub burst: u64,
}

#[derive(Clone, Debug)]
pub enum Question {
    Decide(Call),
    Meet,
    Heartbeat(Option<HeartbeatSender>),
}

#[derive(Clone, Debug)]
pub enum Reply {
    Decision(Result<StoreReply, StoreError>),
    /// Under which mark, by which master.
    Met(u64, u32),
    LiveGateways(Result<LiveGateways, StoreError>),
}

#[derive(Clone, Debug)]
pub struct Message {
    pub gateway: usize,
    pub life: u32,
    pub id: u64,
    pub mark: Option<u64>,
    /// The master that it goes to, but for the first question.
    pub master: u32,
    pub question: Question,
}

#[derive(Debug)]
enum What {
    Client(u64),
    Request(usize, u32, SmallVec<[u64; 2]>),
    Asked(Message),
    Answered(usize, u32, u64, Reply, u64),
    Late(usize, u32, u64),
    Tick(usize, u32),
    Fault(Fault),
}

pub struct World {
    pub now: u64,
    pub draw: Draw,
    pub rules: Vec<Rule>,
    pub gateways: Vec<Gateway>,
    pub tracks: Vec<Vec<Track>>,
    pub net: Net,
    pub load: Load,
    pub steps: u64,
    /// Runs, stands still, or is gone.
    pub store: Result<Data, Option<Data>>,
    pub(super) stopped: bool,
    pub(super) copied: Data,
    pub(super) queue: VecDeque<Message>,
    /// Which one leads, of those that have led, and the one before, which sleeps and takes itself for the master.
    pub(super) master: u32,
    pub(super) former: Option<Data>,
    /// What its clock says at zero in ns, and how much faster it goes.
    pub(super) store_clock: (i64, i64),
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<What>>,
    free: Vec<usize>,
    serial: u64,
    numbers: u32,
    pub failed: Option<String>,
    pub alone: u64,
    /// Every other request counts by the first rule only.
    pub partial: bool,
    /// What outages may add by what was not known, most, in hundredths of a limit.
    pub stalest: u32,
}

impl World {
    pub fn new(seed: u64, rules: &[Rule], gateways: usize, net: Net, load: Load) -> World {
        let mut draw = Draw::new(seed);
        let drift = |draw: &mut Draw| draw.below(2 * DRIFT + 1) as i64 - DRIFT as i64;
        let each = (1..=gateways as u32).map(|number| {
            let clock = (
                draw.below(1 << 20) * SECOND / 16 + 100_000 * SECOND,
                drift(&mut draw),
            );
            Gateway::new(rules, number, 0, clock)
        });
        let each = each.collect();
        let track = |rule: &Rule, key| {
            let limit = rule.limit();
            let windows = limit
                .windows
                .iter()
                .map(|rate| (rate.quota(), rate.window()));
            let sharing = rule.sharing.as_str();
            Track::new(
                format!("{} {key}, {sharing}", rule.scope),
                &windows.collect::<Vec<_>>(),
            )
        };
        let tracks = rules
            .iter()
            .map(|rule| (0..rule.keys).map(|key| track(rule, key)).collect());
        let mut world = World {
            now: 0,
            tracks: tracks.collect(),
            rules: rules.to_vec(),
            gateways: each,
            net,
            load,
            steps: 0,
            store: Ok(Data::default()),
            stopped: false,
            copied: Data::default(),
            queue: VecDeque::new(),
            master: 0,
            former: None,
            store_clock: ((1_700_000_000 * SECOND) as i64, drift(&mut draw)),
            draw,
            heap: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            serial: 0,
            numbers: gateways as u32,
            failed: None,
            alone: 0,
            partial: false,
            stalest: 0,
        };
        for gateway in 0..gateways {
            let phase = world.draw.below(TICK);
            world.plan(phase, What::Tick(gateway, 0));
        }
        for client in 0..rules[0].keys {
            world.plan(SECOND, What::Client(client));
        }
        world
    }

    pub fn fault(&mut self, after_ms: u64, fault: Fault) {
        self.plan(after_ms * MILLI, What::Fault(fault));
    }

    /// What happens until `seconds` more have passed, or something is wrong.
    pub fn run(&mut self, seconds: f64) {
        let end = self.now + (seconds * SECOND as f64) as u64;
        while let Some(Reverse((at, _, place))) = self.heap.peek().copied() {
            if at > end || self.failed.is_some() {
                break;
            }
            self.heap.pop();
            self.now = at;
            self.steps += 1;
            self.free.push(place);
            if let Some(what) = self.events[place].take() {
                self.step(what);
            }
        }
        self.now = end;
    }

    fn plan(&mut self, after: u64, what: What) {
        let place = self.free.pop().unwrap_or(self.events.len());
        if place == self.events.len() {
            self.events.push(None);
        }
        self.events[place] = Some(what);
        self.serial += 1;
        self.heap
            .push(Reverse((self.now + after, self.serial, place)));
    }

    fn step(&mut self, what: What) {
        let whose = match &what {
            What::Request(gateway, life, _) | What::Tick(gateway, life) => Some((*gateway, *life)),
            What::Answered(gateway, life, ..) | What::Late(gateway, life, _) => {
                Some((*gateway, *life))
            }
            _ => None,
        };
        if let Some((gateway, life)) = whose {
            let gateway = &self.gateways[gateway];
            if gateway.life != life || !gateway.alive {
                return;
            }
            if gateway.paused > self.now {
                // Who wakes up reads what has come before it looks at what is late.
                let later = u64::from(matches!(what, What::Late(..)));
                return self.plan(gateway.paused + later - self.now, what);
            }
        }
        match what {
            What::Client(key) => self.client(key),
            What::Request(gateway, _, keys) => self.request(gateway, keys),
            What::Asked(message) => self.asked(message),
            What::Answered(gateway, _, id, reply, at) => self.answered(gateway, id, reply, at),
            What::Late(gateway, _, id) => {
                if let Some(waits) = self.gateways[gateway].waits.remove(&id) {
                    // A hung server executes the call when it goes on, and its reply comes then.
                    if let Waits::Request(asking, _) | Waits::Told(asking) = &waits {
                        let gone = Waits::Gone(asking.clone());
                        self.gateways[gateway].waits.insert(id, gone);
                    }
                    self.heard(gateway, waits, Err(StoreError::Late), self.now);
                }
            }
            What::Tick(gateway, _) => self.tick(gateway),
            What::Fault(fault) => self.strike(fault),
        }
    }

    /// The client of a key comes again, and goes on at the rate of the load.
    pub fn come(&mut self, key: u64) {
        self.plan(0, What::Client(key));
    }

    fn client(&mut self, key: u64) {
        for _ in 0..self.load.burst {
            let gateway = self.draw.below(self.gateways.len() as u64) as usize;
            let mut keys: SmallVec<[u64; 2]> = SmallVec::from_slice(&[key]);
            let rules = match self.partial && self.draw.below(2) == 0 {
                true => 1,
                false => self.rules.len(),
            };
            for rule in 1..rules {
                keys.push(self.draw.below(self.rules[rule].keys));
            }
            let life = self.gateways[gateway].life;
            let after = self.draw.below(200_000);
            self.plan(after, What::Request(gateway, life, keys));
        }
        let mean = SECOND as f64 * self.load.burst as f64 / self.load.rate;
        let gap = self.draw.gap(mean) as u64;
        self.plan(gap, What::Client(key));
    }

    fn request(&mut self, gateway: usize, keys: SmallVec<[u64; 2]>) {
        let one = &self.gateways[gateway];
        if !one.serves {
            return;
        }
        let before = self.holds(gateway, &keys);
        let one = &self.gateways[gateway];
        let (lines, local) = (one.lines(&keys), one.local(self.now));
        match one.decider.begin_decision(lines, Taking::All, local) {
            FirstStep::Decided(done) => self.done(gateway, &keys, done, self.now, before),
            FirstStep::AskStore(asking) => {
                let question = Question::Decide(asking.call.clone());
                self.send(gateway, question, Waits::Request(asking, keys), BUDGET);
            }
        }
    }

    fn holds(&self, gateway: usize, keys: &[u64]) -> Vec<Vec<(u32, u32)>> {
        let each = keys.iter().enumerate();
        each.map(|(rule, key)| self.gateways[gateway].holds(rule, *key, self.now))
            .collect()
    }

    /// A decision is made; `at` is when the store counted.
    fn done(
        &mut self,
        gateway: usize,
        keys: &[u64],
        mut done: SharedDecision,
        at: u64,
        before: Vec<Vec<(u32, u32)>>,
    ) {
        for asking in done.followups.drain(..).map(PendingCall::numbered) {
            let question = Question::Decide(asking.call.clone());
            self.send(gateway, question, Waits::Told(Box::new(asking)), PATIENCE);
        }
        if !done.is_admitted {
            return;
        }
        self.alone += u64::from(done.is_alone);
        for (rule, key) in keys.iter().enumerate() {
            let at = match done.counted_in[rule] {
                CountedIn::Store(_) => at,
                CountedIn::Gateway => self.now,
            };
            let track = &mut self.tracks[rule][*key as usize];
            self.gateways[gateway].note_leaving(self.now);
            let one = &self.gateways[gateway];
            let new = one.decider.breaker.was_never_shared();
            if done.is_alone && (self.net.lost > 0 || new) {
                let units = match one.shared() || new {
                    true => before[rule].iter().map(|(_, free)| *free).collect(),
                    false => one.left[rule][*key as usize].clone(),
                };
                track.allow_late(gateway, at, units);
            }
            let unit = Unit {
                at,
                gateway,
                alone: done.is_alone,
            };
            if let Err(failed) = track.admit(unit) {
                self.failed.get_or_insert(failed);
            }
        }
    }

    fn send(&mut self, gateway: usize, question: Question, waits: Waits, patience: u64) {
        let id = self.serial;
        let one = &mut self.gateways[gateway];
        one.waits.insert(id, waits);
        let (life, mark, cut) = (one.life, one.mark, one.cut);
        let master = match question {
            Question::Meet => self.master,
            Question::Decide(_) | Question::Heartbeat(_) => one.master,
        };
        let message = Message {
            gateway,
            life,
            id,
            mark,
            master,
            question,
        };
        self.plan(patience, What::Late(gateway, life, id));
        for delay in self.copies(cut) {
            self.plan(delay, What::Asked(message.clone()));
        }
    }

    /// When a message arrives, if it does.
    fn copies(&mut self, cut: bool) -> SmallVec<[u64; 2]> {
        let mut copies = SmallVec::new();
        let lost = self.draw.below(1_000_000) < self.net.lost || cut;
        let doubled = self.draw.below(1_000_000) < self.net.doubled;
        for _ in 0..u64::from(!lost) + u64::from(!lost && doubled) {
            let slow = self.draw.below(1_000_000) < self.net.slow;
            let most = if slow { 80 * MILLI } else { MILLI };
            copies.push(MILLI / 10 + self.draw.below(most));
        }
        copies
    }

    /// Microseconds, as the store counts them.
    pub fn store_time(&self) -> u64 {
        let (zero, drift) = self.store_clock;
        let now = self.now as i128;
        ((i128::from(zero) + now + now * i128::from(drift) / 1_000_000) / 1_000) as u64
    }

    pub(super) fn asked(&mut self, message: Message) {
        let sleeps = match message.master == self.master {
            true => self.stopped,
            false => self.former.is_some(),
        };
        if sleeps {
            return self.queue.push_back(message);
        }
        self.execute(message);
    }

    /// The server that a message goes to executes it.
    pub(super) fn execute(&mut self, message: Message) {
        let (time, fresh) = (self.store_time(), self.serial);
        let data = match message.master == self.master {
            true => self.store.as_mut().ok(),
            false => self.former.as_mut(),
        };
        let Some(data) = data else {
            let reply = match message.question {
                Question::Decide(_) => Reply::Decision(Err(StoreError::NotConnected)),
                _ => Reply::LiveGateways(Err(StoreError::NotConnected)),
            };
            return self.answer(&message, reply);
        };
        let reply = match &message.question {
            Question::Decide(call) => Reply::Decision(data.decide(time, message.mark, call)),
            Question::Meet => Reply::Met(data.meet(fresh), message.master),
            Question::Heartbeat(sender) => {
                Reply::LiveGateways(data.heartbeat(time, message.mark, *sender))
            }
        };
        self.answer(&message, reply);
    }

    fn answer(&mut self, message: &Message, reply: Reply) {
        let cut = self.gateways[message.gateway].cut;
        for delay in self.copies(cut) {
            let (gateway, life, id) = (message.gateway, message.life, message.id);
            self.plan(
                delay,
                What::Answered(gateway, life, id, reply.clone(), self.now),
            );
        }
    }

    fn answered(&mut self, gateway: usize, id: u64, reply: Reply, at: u64) {
        if let Some(waits) = self.gateways[gateway].waits.remove(&id) {
            self.heard(gateway, waits, Ok(reply), at);
        }
    }

    fn heard(&mut self, gateway: usize, waits: Waits, reply: Result<Reply, StoreError>, at: u64) {
        let said = match &reply {
            Ok(Reply::Decision(said)) => said.clone(),
            Ok(Reply::LiveGateways(Err(failure))) | Err(failure) => Err(failure.clone()),
            Ok(_) => Err(StoreError::Late),
        };
        let local = self.gateways[gateway].local(self.now);
        let decider = &self.gateways[gateway].decider;
        match waits {
            Waits::Request(asking, keys) => {
                let before = self.holds(gateway, &keys);
                let done = decider.finish_decision(&asking, said, local);
                self.done(gateway, &keys, done, at, before);
            }
            Waits::Gone(asking) => {
                let Ok(said) = said else { return };
                decider.record_late_reply(&asking, &said, local);
            }
            Waits::Told(asking) => {
                let done = decider.finish_decision(&asking, said, local);
                self.done(gateway, &[], done, at, Vec::new());
            }
            keeper => self.kept(gateway, keeper, reply, said),
        }
        self.gateways[gateway].note_leaving(self.now);
    }

    fn tick(&mut self, gateway: usize) {
        let one = &mut self.gateways[gateway];
        let (local, ticks) = (one.local(self.now), one.ticks);
        one.ticks += 1;
        one.serves |= one.shared() || self.now > one.born + SECOND;
        if !one.shared() {
            return self.come_back(gateway);
        }
        let unused = one.decider.take_unused_units(GrantsToReturn::Ended, local);
        for asking in unused.into_iter().map(PendingCall::numbered) {
            let question = Question::Decide(asking.call.clone());
            self.send(gateway, question, Waits::Told(Box::new(asking)), PATIENCE);
        }
        if ticks % 10 != 0 {
            return self.next_tick(gateway);
        }
        let one = &mut self.gateways[gateway];
        one.decider.ledger.remove_idle_entries(local);
        let question = Question::Heartbeat(Some(HeartbeatSender {
            gateway: one.decider.gateway,
            has_reported: true,
        }));
        self.send(gateway, question, Waits::Heartbeat, PATIENCE);
    }

    pub(super) fn next_tick(&mut self, gateway: usize) {
        let life = self.gateways[gateway].life;
        self.plan(TICK, What::Tick(gateway, life));
    }

    pub(super) fn ask(&mut self, gateway: usize, question: Question, waits: Waits) {
        self.send(gateway, question, waits, PATIENCE);
    }

    pub(super) fn restart(&mut self, gateway: usize) {
        self.numbers += 1;
        let one = &self.gateways[gateway];
        self.gateways[gateway] = one.restarted(&self.rules, self.numbers, self.now);
        self.next_tick(gateway);
    }
}
