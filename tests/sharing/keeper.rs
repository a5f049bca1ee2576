//! What `keeper.rs` does, driven by events, and what is expected of an outage.

use tollgate::base::clock::Nanos;
use tollgate::store::shared::call::{
    HeartbeatSender, LiveGateways, StoreError, StoreLoss, StoreReply,
};

use super::gateway::{Gateway, Waits};
use super::world::{Question, Reply, SECOND, World};
use tollgate::store::shared::breaker::StoreStatus;
use tollgate::store::shared::recovery::RecoveryStep;

impl Gateway {
    pub fn shared(&self) -> bool {
        self.decider.breaker.status() == StoreStatus::Shared
    }
}

impl World {
    /// One step of a return.
    pub(super) fn come_back(&mut self, gateway: usize) {
        let one = &mut self.gateways[gateway];
        let local = one.local(self.now);
        match one.recovery.next_step(&one.decider, local) {
            RecoveryStep::Identify => self.ask(gateway, Question::Meet, Waits::Met),
            RecoveryStep::ListGateways => self.ask(gateway, Question::Heartbeat(None), Waits::Look),
            RecoveryStep::Compare(asking) => {
                let question = Question::Decide(asking.call.clone());
                self.ask(gateway, question, Waits::Compares(asking));
            }
            RecoveryStep::Report(asking) => {
                let question = Question::Decide(asking.call.clone());
                self.ask(gateway, question, Waits::Learns(asking));
            }
            RecoveryStep::Heartbeat { has_reported } => {
                let sender = HeartbeatSender {
                    gateway: one.decider.gateway,
                    has_reported,
                };
                self.ask(gateway, Question::Heartbeat(Some(sender)), Waits::Heartbeat);
            }
        }
    }

    /// The keeper's question is answered, or it is too late.
    pub(super) fn kept(
        &mut self,
        gateway: usize,
        waits: Waits,
        reply: Result<Reply, StoreError>,
        said: Result<StoreReply, StoreError>,
    ) {
        let one = &mut self.gateways[gateway];
        let local = one.local(self.now);
        match (waits, reply) {
            (Waits::Met, Ok(Reply::Met(mark, master))) => {
                let same = one.mark.replace(mark) == Some(mark);
                let moved = std::mem::replace(&mut one.master, master) != master;
                let lost = match (same, moved) {
                    (false, _) => StoreLoss::All,
                    (true, false) => StoreLoss::Part,
                    (true, true) => StoreLoss::NewMaster,
                };
                one.recovery.on_identified(&one.decider, lost, local);
                return self.come_back(gateway);
            }
            (Waits::Look, Ok(Reply::LiveGateways(Ok(heartbeats)))) => {
                one.recovery.on_listed(&one.decider, heartbeats);
                return self.come_back(gateway);
            }
            (Waits::Compares(asking), Ok(Reply::Decision(Ok(said)))) => {
                one.decider.record_copied(&asking, &said);
                return self.come_back(gateway);
            }
            (Waits::Learns(asking), Ok(Reply::Decision(Ok(_)))) => {
                one.decider.record_report(&asking, local);
                return self.come_back(gateway);
            }
            (Waits::Heartbeat, Ok(Reply::LiveGateways(Ok(heartbeats)))) => {
                self.beaten(gateway, &heartbeats)
            }
            (Waits::Heartbeat, _) if one.shared() => {
                if said == Err(StoreError::Late) && one.late == 0 {
                    one.late = 1;
                } else {
                    one.late = 0;
                    one.decider.breaker.record_outage(local);
                }
            }
            _ => {
                let failure = said.err().unwrap_or(StoreError::Late);
                one.recovery.on_failure(&one.decider, &failure, local);
            }
        }
        self.next_tick(gateway);
    }

    fn beaten(&mut self, gateway: usize, heartbeats: &LiveGateways) {
        let one = &mut self.gateways[gateway];
        let local = one.local(self.now);
        if one.shared() {
            one.late = 0;
            one.decider
                .breaker
                .set_gateway_count(heartbeats.heartbeats.len());
        } else {
            let _ = one
                .recovery
                .on_heartbeat(&one.decider, heartbeats, true, local);
        }
    }

    /// From now on all gateways are alone: together they may use what is used, and each its part of what it
    /// takes for free.
    pub(super) fn expect_outage(&mut self) {
        let time = self.store_time();
        for rule in 0..self.rules.len() {
            for key in 0..self.rules[rule].keys {
                let name = self.gateways[0].name(rule, key);
                let plan = self.gateways[0].plan(rule);
                let part =
                    plan.call_part(name.key, tollgate::limit::Scale::plan(1), 0, Nanos::ZERO);
                for (window, span) in part.spec.windows.iter().enumerate() {
                    let until = self.now + 2_000 * span.window_micros + 10 * SECOND;
                    let used = self
                        .store
                        .as_ref()
                        .map_or(0, |data| data.used(&part, time, span));
                    let alive = self.gateways.iter().filter(|one| one.alive);
                    let each = alive.map(|one| one.holds(rule, key, self.now)[window].1);
                    let sum = used + each.sum::<u32>();
                    let units = sum.saturating_sub(span.ceiling);
                    self.stalest = self.stalest.max(units * 100 / span.ceiling);
                    self.tracks[rule][key as usize].allow(window, self.now, until, units);
                }
            }
        }
    }

    /// A gateway is alone while the others are not: it may use again what it has used, and its part of the rest.
    pub(super) fn expect_cut(&mut self, gateway: usize) {
        for rule in 0..self.rules.len() {
            for key in 0..self.rules[rule].keys {
                let one = &self.gateways[gateway];
                let gateways = one.decider.breaker.gateway_count();
                let holds = one.holds(rule, key, self.now);
                let track = &mut self.tracks[rule][key as usize];
                for (window, (own, free)) in holds.into_iter().enumerate() {
                    let units = (own + free).max(track.windows[window].0 / gateways);
                    track.allow(window, self.now, u64::MAX, units);
                }
            }
        }
    }
}
