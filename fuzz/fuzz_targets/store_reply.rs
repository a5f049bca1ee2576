//! What shared stores answer. Whatever a script's answer says, a gateway decides by it without a panic, and so it
//! does after; memcached's replies are read to their end, or refused.

#![no_main]

use std::sync::Arc;

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use smallvec::smallvec;
use tollgate::base::clock::Nanos;
use tollgate::limit::{Fingerprint, OnStoreError, RateLimit, Scale, Sharing};
use tollgate::store::redis::wire;
use tollgate::store::shared::breaker::Breaker;
use tollgate::store::shared::call::StoreError;
use tollgate::store::shared::decider::{Decider, GrantsToReturn};
use tollgate::store::shared::give_backs::GiveBacks;
use tollgate::store::shared::ledger::Ledger;
use tollgate::store::shared::pending_call::{FirstStep, PendingCall};
use tollgate::store::shared::shared_item::SharedItem;
use tollgate::store::shared::sharing_plan::SharingPlan;
use tollgate::store::{MemoryStore, ParentNetwork, Settings, Taking, memcached};

fn decider() -> Option<(Decider, Vec<SharedItem>)> {
    let budget = Settings::MIN_BUDGET_BYTES;
    let memory = MemoryStore::new(Settings {
        budget_bytes: budget,
    })
    .ok()?;
    let mut lines = Vec::new();
    for (scope, rate) in [("ip", "600/m"), ("user", "5/s")] {
        let limit = RateLimit::hard(rate.parse().ok()?);
        let registered = memory.register(scope, &limit).ok()?;
        let sharing = Sharing::default_for(&limit);
        let plan = SharingPlan::new(scope, &limit, &registered, sharing, OnStoreError::Local)?;
        lines.push(SharedItem {
            plan: Some(Arc::new(plan)),
            limit: Arc::new(limit),
            slot: registered.slot(),
            key: Fingerprint(7 << 64 | 7),
            cost: 1,
            scale: Scale::plan(1),
            is_shadow: false,
            parents: smallvec![],
        });
    }
    lines[0].parents.push(ParentNetwork {
        key: Fingerprint(8 << 64 | 8),
        factor: 4,
    });
    let decider = Decider {
        memory: Arc::new(memory),
        ledger: Ledger::new(1 << 20),
        breaker: Breaker::new(Nanos(1)),
        give_backs: GiveBacks::default(),
        gateway: 1,
    };
    Some((decider, lines))
}

fn answer(decider: &Decider, asking: &PendingCall, text: &[u8], now: Nanos) {
    let said = wire::decode_reply(text, &asking.call);
    if let (Ok(said), Some(0)) = (&said, text.last().map(|last| last % 3)) {
        decider.finish_decision(asking, Err(StoreError::Late), now);
        decider.record_late_reply(asking, said, now);
        return;
    }
    decider.finish_decision(asking, said, now);
}

fuzz_target!(|data: &[u8]| {
    let mut replies = BytesMut::from(data);
    while let Ok(Some(_)) = memcached::wire::parse_reply(&mut replies) {}

    let Some((decider, lines)) = decider() else {
        return;
    };
    let mut now = Nanos::from_secs(1_000);
    decider.breaker.start_learning(now);
    decider.breaker.finish_learning(now);
    let mut rest = data;
    while !rest.is_empty() {
        now = now.after(Nanos::from_millis(150));
        let mut size = 1;
        if let FirstStep::AskStore(asking) =
            decider.begin_decision(lines.iter().cloned().collect(), Taking::All, now)
        {
            // As long as the answer to this should be.
            let windows = asking.call.parts.iter().map(|part| part.spec.windows.len());
            size = 8 * (2 + windows.map(|windows| 9 + windows).sum::<usize>());
            answer(&decider, &asking, &rest[..size.min(rest.len())], now);
        }
        decider.take_unused_units(GrantsToReturn::Ended, now);
        rest = &rest[size.min(rest.len())..];
    }
    decider.breaker.record_outage(now);
    let done = decider.begin_decision(lines.into_iter().collect(), Taking::All, now);
    assert!(matches!(done, FirstStep::Decided(_)));
});
