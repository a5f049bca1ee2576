//! Checks whether the store of the gateway file keeps the counts of limits with credits. A count that is lost gives used
//! credits back.

use super::super::context::LoadContext;
use super::super::decode::{GatewayConfig, LimitConfig, StoreAddress};

/// Reports a limit with credits whose counts would be forgotten.
pub(super) fn check_credits(cx: &mut LoadContext, gateway: &GatewayConfig, limit: &LimitConfig) {
    let Some(location) = limit.credits_location() else {
        return;
    };
    let store = &gateway.store;
    let (message, help) = match store.address.as_ref().map(|address| &address.value) {
        Some(StoreAddress::Redis(_)) => return,
        Some(StoreAddress::Memcached(_)) => (
            "memcached forgets counts when it is full or restarted, and used credits would come back",
            "use a Redis store, or one gateway with `store: { snapshots: data/counts }`",
        ),
        None if store.snapshots.is_some() => return,
        None => (
            "counts are forgotten when the process ends, and used credits would come back",
            "keep them: `store: { snapshots: data/counts }` in the gateway file, or a Redis store",
        ),
    };
    cx.error(location, message, Some(help.into()));
}
