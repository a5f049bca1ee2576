//! Counters with labels of which there may be many: statuses of responses, and values of identities. Beyond a bound,
//! new ones share the label `other`.

use std::sync::Arc;

use super::super::names::{Label, Metric};
use super::{Cell, MetricLabels, Registry, WorkerCounter, owned_labels};

/// The number of pairs of status and origin that a route may have before new statuses of upstreams count as `other`.
/// The gateway's own statuses and 429 are counted apart beyond it. Workers that add a status at once may exceed it.
const MAX_STATUSES_PER_ROUTE: usize = 32;

impl Registry {
    /// A counter of requests by the value of an identity, on a route and with an outcome. A value beyond the bounds of
    /// `identity_series.rs` counts as `other`.
    pub fn identity_counter(
        &self,
        worker_number: usize,
        (identity, value): (&str, &str),
        (route, outcome): (&str, &str),
    ) -> WorkerCounter {
        let metric = Metric::IdentityRequests;
        let labels = |value| {
            [
                (Label::Identity, identity),
                (Label::Value, value),
                (Label::Route, route),
                (Label::Outcome, outcome),
            ]
        };
        // Locked until the series is added, or two workers would count the series twice against its bound.
        let mut identity_series = self.identity_series.lock();
        let series_name = (metric, owned_labels(&labels(value)));
        let is_counted = value == "other" || self.series.lock().contains_key(&series_name);
        let has_room = is_counted || identity_series.add(identity, value);
        self.worker_counter(
            worker_number,
            metric,
            &labels(if has_room { value } else { "other" }),
        )
    }

    /// A counter of a route's responses with one status and origin. If the route has [`MAX_STATUSES_PER_ROUTE`] pairs
    /// already, a new status of an upstream counts as `other`, unless it is 429.
    pub fn response_counter(
        &self,
        worker_number: usize,
        route: &str,
        (status, origin): (u16, &str),
    ) -> WorkerCounter {
        let status = status.to_string();
        let labels = |status| {
            [
                (Label::Route, route),
                (Label::Status, status),
                (Label::Origin, origin),
            ]
        };
        let is_of_route = |((metric, labels), _): &(&(Metric, MetricLabels), &Vec<Arc<Cell>>)| {
            let is_route =
                |(label, value): &(Label, String)| *label == Label::Route && value == route;
            *metric == Metric::Responses && labels.iter().any(is_route)
        };
        let series = self.series.lock();
        let is_counted = series.contains_key(&(Metric::Responses, owned_labels(&labels(&status))));
        // Refusals and the gateway's own responses matter most, so they are always counted apart.
        let has_room = is_counted
            || status == "429"
            || origin == "gateway"
            || series.iter().filter(is_of_route).count() < MAX_STATUSES_PER_ROUTE;
        drop(series);
        let status = if has_room { &status } else { "other" };
        self.worker_counter(worker_number, Metric::Responses, &labels(status))
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity_series::{MAX_IDENTITY_SERIES, MAX_VALUES_PER_IDENTITY};
    use super::*;

    #[test]
    fn values_of_identities_and_their_series_are_bounded() {
        let registry = Registry::default();
        let count = |worker_number, identity, value: &str, route: &str| {
            let counter =
                registry.identity_counter(worker_number, (identity, value), (route, "admitted"));
            counter.increment(1);
        };
        let total = |identity, value: &str, route| {
            let labels = [
                (Label::Identity, identity),
                (Label::Value, value),
                (Label::Route, route),
                (Label::Outcome, "admitted"),
            ];
            registry.total(Metric::IdentityRequests, &labels)
        };
        for number in 0..MAX_VALUES_PER_IDENTITY + 5 {
            count(0, "tenant", &number.to_string(), "a");
            count(1, "tenant", &number.to_string(), "a");
        }
        assert_eq!(total("tenant", "999", "a"), 2);
        assert_eq!(total("tenant", "other", "a"), 10);
        for route in ["b", "c", "d", "e"] {
            for number in 0..MAX_VALUES_PER_IDENTITY {
                count(0, "tenant", &number.to_string(), route);
            }
        }
        let most = (MAX_IDENTITY_SERIES - 4 * MAX_VALUES_PER_IDENTITY) as u64;
        assert_eq!(total("tenant", &(most - 1).to_string(), "e"), 1);
        assert_eq!(total("tenant", &most.to_string(), "e"), 0);
        assert_eq!(
            total("tenant", "other", "e"),
            MAX_VALUES_PER_IDENTITY as u64 - most
        );
        // A value that is counted apart stays so.
        count(2, "tenant", "0", "e");
        assert_eq!(total("tenant", "0", "e"), 2);
        count(0, "place", "office", "a");
        assert_eq!(total("place", "other", "a"), 1);
    }
}
