//! How many units of a limit are left for one key, whatever request may come.

use smallvec::SmallVec;

use super::counters::{Admission, RuleCounter, SharedConnection, SharedCounter};
use crate::limit::{Fingerprint, Rule, RuleLimit, Scale};
use crate::store::shared::pending_call::FirstStep;
use crate::store::shared::shared_item::{SharedItem, SharedItems};
use crate::store::{LimitItem, Taking};

impl Admission {
    /// The units of the rule's quota that are left for a key, as the shared store knows them if there is one. `None` for
    /// limits on open requests, and while the store is away.
    pub async fn read_remaining(&self, rule: &Rule, key: Fingerprint) -> Option<u32> {
        let RuleLimit::Rate(limit) = &rule.limit else {
            return None;
        };
        let Some(RuleCounter::Rate(registered, shared_counter)) = self.counter(rule) else {
            return None;
        };
        let (slot, now) = (registered.slot(), self.clock.now());
        let (Some(connection), Some(shared_counter)) = (&self.shared, shared_counter) else {
            let item = LimitItem {
                limit,
                slot,
                key,
                cost: 1,
                scale: Scale::plan(1),
                is_shadow: false,
                parents: &[],
            };
            let mut findings = SmallVec::new();
            self.store.peek(&[item], now, &mut findings);
            return findings.first().map(|finding| finding.remaining);
        };
        let SharedConnection {
            store,
            connection_index,
        } = connection;
        let SharedCounter { limit, plan } = shared_counter;
        let item = SharedItem {
            plan: plan.clone(),
            limit: limit.clone(),
            slot,
            key,
            cost: 1,
            scale: Scale::plan(1),
            is_shadow: false,
            parents: SmallVec::new(),
        };
        let items = SharedItems::from_iter([item]);
        let decision = match store.begin_decision(*connection_index, items, Taking::Nothing, now) {
            FirstStep::Decided(decision) => decision,
            FirstStep::AskStore(call) => {
                store.decide(*connection_index, *call, store.budget()).await
            }
        };
        let finding = decision.findings.first().filter(|_| !decision.is_alone)?;
        Some(finding.remaining)
    }
}
