//! A shared store as one process: what `decide.lua` and `heartbeat.lua` do, for logs of stamps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use smallvec::SmallVec;
use tollgate::base::clock::Nanos;
use tollgate::limit::LimitStanding;
use tollgate::limit::spec::{StateKind, WindowSpec};
use tollgate::store::Taking;
use tollgate::store::shared::call::{
    Call, CallPart, CounterName, CounterReply, GatewayHeartbeat, HeartbeatSender, LiveGateways,
    StoreError, StoreReply,
};

/// How long a gateway counts as there, in microseconds.
const LISTED: u64 = 10_000_000;

#[derive(Clone, Default)]
struct Cell {
    /// In ticks, oldest first.
    stamps: VecDeque<u64>,
    newest: u64,
    /// All units that a gateway was granted, and its give-backs.
    gateways: BTreeMap<u32, (u64, BTreeSet<u32>)>,
}

/// What is gone when the process is, or some of it.
#[derive(Clone, Default)]
pub struct Data {
    cells: BTreeMap<CounterName, Cell>,
    /// When each was heard, and what it said.
    heartbeats: BTreeMap<u32, (u64, HeartbeatSender)>,
    mark: Option<u64>,
}

impl Cell {
    fn used(&self, now: u64, tick: u64, window: u64) -> usize {
        let (ticks, tick) = (window.div_ceil(tick), now / tick);
        let inside = |stamp: &u64| tick < stamp + ticks;
        self.stamps.len() - self.stamps.partition_point(|stamp| !inside(stamp))
    }

    /// What was counted later than now, by a clock that went back since, counts as of now.
    fn rewind(&mut self, now: u64, tick: u64) {
        let ahead = self.newest.saturating_sub(now.div_ceil(tick));
        if ahead > 0 && !self.stamps.is_empty() {
            self.newest -= ahead;
            self.stamps.iter_mut().for_each(|stamp| *stamp -= ahead);
        }
    }

    /// Until `units` of those inside have left.
    fn wait(&self, now: u64, tick: u64, window: u64, units: usize) -> Nanos {
        let inside = self.used(now, tick, window);
        let place = (self.stamps.len() - inside + units).saturating_sub(1);
        let place = place.min(self.stamps.len().saturating_sub(1));
        let stamp = self.stamps.get(place).copied().unwrap_or(0);
        let leaves = (stamp + window.div_ceil(tick)) * tick;
        Nanos(leaves.saturating_sub(now) * 1_000)
    }

    fn apply(&mut self, now: u64, part: &CallPart, units: u32) {
        let tick = tick(part);
        let longest = part
            .spec
            .windows
            .last()
            .map_or(0, |span| span.window_micros);
        let gone = self.stamps.len() - self.used(now, tick, longest);
        self.stamps.drain(..gone);
        let stamp = now.div_ceil(tick);
        self.newest = match self.stamps.is_empty() {
            true => stamp,
            false => self.newest.max(stamp),
        };
        // What gateways counted without the store may be more than one of them asks room for.
        let news = std::iter::repeat_n(self.newest, units as usize);
        self.stamps.extend(news);
    }

    /// What was told of before, and what comes back.
    fn hear(&mut self, now: u64, gateway: u32, part: &mut CallPart) {
        let tick = tick(part);
        if let Some(back) = part.give_back {
            let entry = self.gateways.entry(gateway).or_default();
            if entry.1.insert(back.number) {
                let unknown = part.gateway_total.saturating_sub(entry.0);
                let left = u64::from(part.cost).saturating_sub(unknown);
                let (mut left, stamp) = (left, back.granted_at_micros / tick);
                for place in (0..self.stamps.len()).rev() {
                    if left > 0 && self.stamps[place] == stamp {
                        self.stamps.remove(place);
                        left -= 1;
                    }
                }
            }
            (part.cost, part.wanted_units, part.gateway_total) = (0, 0, 0);
        }
        if part.gateway_total > 0 {
            let known = self.gateways.entry(gateway).or_default().0;
            let missing = part.gateway_total.saturating_sub(known);
            let missing = missing.min(u64::from(part.units_in_window)) as u32;
            if missing > 0 {
                self.apply(now, part, missing);
            }
            self.gateways.entry(gateway).or_default().0 = known.max(part.gateway_total);
        }
    }

    /// Says what the windows say, and how many units may be taken.
    fn eval(&self, now: u64, part: &CallPart) -> (CounterReply, u32) {
        let tick = tick(part);
        let (mut room, mut best) = (u32::MAX, None::<(CounterReply, _)>);
        for (window, span) in part.spec.windows.iter().enumerate() {
            let total = self.used(now, tick, span.window_micros) as u32;
            let mut said = CounterReply {
                standing: LimitStanding::Within,
                window_index: window as u8,
                remaining: span.base.saturating_sub(total),
                retry_after: Nanos::ZERO,
                reset_after: Nanos::ZERO,
                delay: Nanos::ZERO,
                granted_units: 0,
                gateway_total: 0,
                granted_at_micros: now,
                used_units: SmallVec::new(),
            };
            let mut rank = (0, -i64::from(said.remaining));
            if part.cost > span.ceiling {
                (said.standing, rank) = (LimitStanding::Unsatisfiable, (3, 0));
            } else if total + part.cost > span.ceiling {
                said.standing = LimitStanding::Refused;
                let units = total + part.cost - span.ceiling;
                said.retry_after = self.wait(now, tick, span.window_micros, units as usize);
                rank = (2, said.retry_after.0 as i64);
            } else {
                room = room.min(span.ceiling - total);
            }
            if best.as_ref().is_none_or(|(_, before)| rank >= *before) {
                best = Some((said, rank));
            }
        }
        let (answer, _) = best.unwrap();
        let shared = part.wanted_units.min(room / part.free_units_divisor.max(1));
        (answer, shared.max(part.cost))
    }
}

fn tick(part: &CallPart) -> u64 {
    match part.spec.kind {
        StateKind::Log { tick_micros, .. } => tick_micros,
        _ => panic!("only logs are simulated"),
    }
}

impl Data {
    /// Units that count in a window of a key.
    pub fn used(&self, part: &CallPart, now: u64, span: &WindowSpec) -> u32 {
        let (cell, tick) = (self.cells.get(&part.name), tick(part));
        cell.map_or(0, |cell| cell.used(now, tick, span.window_micros) as u32)
    }

    /// One request: all parts, or none.
    pub fn decide(
        &mut self,
        now: u64,
        known: Option<u64>,
        call: &Call,
    ) -> Result<StoreReply, StoreError> {
        if known != self.mark {
            return Err(StoreError::MarkMismatch);
        }
        let mut parts = call.parts.clone();
        let mut evaluated = Vec::new();
        for part in &mut parts {
            assert!(!part.is_shadow && part.key_part_index.is_none());
            let cell = self.cells.entry(part.name).or_default();
            cell.rewind(now, tick(part));
            if call.taking != Taking::Nothing {
                cell.hear(now, call.gateway, part);
            }
        }
        for part in &parts {
            evaluated.push(self.cells[&part.name].eval(now, part));
        }
        let admitted = evaluated.iter().all(|(said, _)| said.standing.admits());
        let admitted = admitted && call.taking != Taking::Shadows;
        let mut counters = SmallVec::new();
        for (part, (mut answer, granted)) in parts.iter().zip(evaluated) {
            let cell = self.cells.entry(part.name).or_default();
            let takes = admitted && call.taking == Taking::All;
            if takes && granted > 0 {
                cell.apply(now, part, granted);
                cell.gateways.entry(call.gateway).or_default().0 += u64::from(granted);
                answer.granted_units = granted;
                answer.remaining = answer.remaining.saturating_sub(granted);
                answer.granted_at_micros = cell.newest * tick(part);
            }
            let tick = tick(part);
            let span = &part.spec.windows[usize::from(answer.window_index)];
            let total = cell.used(now, tick, span.window_micros) as u32;
            if total > 0 {
                let units = (total + 1).saturating_sub(span.base).max(1);
                answer.reset_after = cell.wait(now, tick, span.window_micros, units as usize);
            }
            answer.gateway_total = cell.gateways.get(&call.gateway).map_or(0, |own| own.0);
            let each = part.spec.windows.iter();
            let each = each.map(|span| cell.used(now, tick, span.window_micros) as u32);
            answer.used_units = each.collect();
            counters.push(answer);
        }
        Ok(StoreReply {
            is_admitted: admitted,
            now_micros: now,
            counters,
        })
    }

    /// Marks an empty store with `fresh`, and says its mark.
    pub fn meet(&mut self, fresh: u64) -> u64 {
        *self.mark.get_or_insert(fresh)
    }

    /// Lists a gateway, if there is one, and says who else is.
    pub fn heartbeat(
        &mut self,
        now: u64,
        known: Option<u64>,
        sender: Option<HeartbeatSender>,
    ) -> Result<LiveGateways, StoreError> {
        if known != self.mark {
            return Err(StoreError::MarkMismatch);
        }
        let heard = sender.into_iter();
        self.heartbeats
            .extend(heard.map(|sender| (sender.gateway, (now, sender))));
        for (at, sender) in self.heartbeats.values_mut() {
            sender.has_reported &= *at <= now;
            *at = now.min(*at);
        }
        self.heartbeats
            .retain(|_, (at, _)| *at > now.saturating_sub(LISTED));
        Ok(LiveGateways {
            now_micros: now,
            heartbeats: self
                .heartbeats
                .values()
                .map(|(at, sender)| GatewayHeartbeat {
                    sender: *sender,
                    sent_at_micros: *at,
                })
                .collect(),
        })
    }
}
