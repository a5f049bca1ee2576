//! Checks what several gateways with one store share: whether they can share each limit as the file says, and whether
//! the series that they push can be told apart.

use super::super::context::LoadContext;
use super::super::decode::{GatewayConfig, LimitConfig, StoreAddress, ThrottleConfig};
use crate::limit::{Algorithm, Sharing};

/// Warns of a destination without labels, because gateways that share a store would push the same series to it.
pub(super) fn check_push_labels(cx: &mut LoadContext, gateway: &GatewayConfig) {
    let (Some(_), Some(record)) = (&gateway.store.address, &gateway.record) else {
        return;
    };
    let destinations = record.push.iter();
    for push in destinations.filter(|push| push.settings.labels.is_empty()) {
        let message = format!(
            "gateways that share a store push the same series to `{}`, where one takes the place of the other",
            push.settings.name
        );
        let help = "give each gateway labels of its own, for instance `labels: { instance: \"${env:HOSTNAME}\" }`";
        cx.warn(push.location, message, Some(help.into()));
    }
}

/// Reports a limit that gateways cannot share as the file says, because of its algorithm, its throttle, what it counts,
/// or the store. All stores can share limits on open requests.
pub(super) fn check_sharing(cx: &mut LoadContext, gateway: &GatewayConfig, limit: &LimitConfig) {
    if limit.concurrent.is_some() {
        return;
    }
    let algorithm = limit.algorithm.map(|algorithm| algorithm.value);
    let elastic = limit
        .throttle
        .filter(|throttle| throttle.value == ThrottleConfig::Elastic);
    let response_count = limit
        .count
        .as_ref()
        .filter(|count| count.value.is_settled_later());
    if let Some(sharing) = limit
        .sharing
        .filter(|sharing| sharing.value == Sharing::Leased)
    {
        let can_be_leased = matches!(
            algorithm,
            None | Some(Algorithm::SlidingLog | Algorithm::SlidingWindow)
        );
        let takes_one_unit = limit
            .count
            .as_ref()
            .is_none_or(|count| count.value.takes_one_unit());
        if !can_be_leased || elastic.is_some() || !takes_one_unit {
            let message = "units of this limit cannot be granted in advance";
            let help = match limit.is_quota() {
                true => "remove it: the store is asked about each unit of a quota",
                false => {
                    "write `sharing: strict`, or use sliding-log or sliding-window with `throttle: hard` or `soft` and `count: all` or `cost messages`"
                }
            };
            cx.error(sharing.location, message, Some(help.into()));
        }
    }
    let keeps_arrival_times = algorithm.is_some_and(Algorithm::is_gcra);
    let is_local = limit
        .sharing
        .is_some_and(|sharing| sharing.value == Sharing::Local);
    let has_shared_store = gateway.store.address.is_some();
    if let Some(count) = response_count
        && has_shared_store
        && keeps_arrival_times
        && !is_local
    {
        let message =
            "an arrival time that gateways share cannot take back what an answer does not count";
        let help = "use `algorithm: sliding-window`, or `sharing: local`";
        cx.error(count.location, message, Some(help.into()));
    }
    let store = gateway.store.address.as_ref().map(|address| &address.value);
    if matches!(store, Some(StoreAddress::Memcached(_))) && !is_local {
        check_memcached(cx, limit);
    }
}

/// Reports a limit that memcached cannot count, and warns of an elastic one, which then lends nothing.
fn check_memcached(cx: &mut LoadContext, limit: &LimitConfig) {
    if let Some(algorithm) = limit
        .algorithm
        .filter(|algorithm| algorithm.value.is_gcra())
    {
        let message = format!(
            "memcached cannot keep arrival times, which {} needs",
            algorithm.value.as_str()
        );
        let help = "use `algorithm: sliding-window`, `sharing: local`, or a Redis store";
        cx.error(algorithm.location, message, Some(help.into()));
    }
    if let Some(throttle) = limit
        .throttle
        .filter(|throttle| throttle.value == ThrottleConfig::Elastic)
    {
        let message = "with memcached an elastic limit lends nothing: it holds like a hard one";
        let help = "use a Redis store, or `sharing: local`";
        cx.warn(throttle.location, message, Some(help.into()));
    }
}
