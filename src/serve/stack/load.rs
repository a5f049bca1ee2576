//! What one request tells about the load of its upstream: how long the response took, and what the response reports.

use std::cell::Cell;

use http::StatusCode;

use crate::base::clock::{Clock, Nanos};
use crate::http::head::Fields;
use crate::limit::pressure::{OrcaReport, RequestKind, UpstreamSlot, Utilisation};

/// A request on its way: its place among the open ones, until the response begins.
pub struct Load {
    slot: UpstreamSlot,
    kind: RequestKind,
    clock: Clock,
    /// When the upstream had all of the request.
    sent: Cell<Option<Nanos>>,
}

impl Load {
    /// A request that is about to be sent.
    pub fn new(slot: UpstreamSlot, kind: RequestKind, clock: Clock) -> Load {
        Load {
            slot,
            kind,
            clock,
            sent: Cell::new(None),
        }
    }

    /// Notes that the response has not come, and whether the gateway waits for the client to send the request.
    pub fn note_waiting(&self, for_client: bool) {
        self.slot.wait_for_client(for_client);
        if !for_client && self.sent.get().is_none() {
            self.sent.set(Some(self.clock.now()));
        }
    }

    /// Notes that the response began.
    pub fn response_began(&self, status: StatusCode, now: Nanos) {
        if status.is_server_error() {
            return self.slot.record_failure();
        }
        // A response that begins before the request was sent tells nothing about load.
        if let Some(sent) = self.sent.get() {
            let waited = now.since(sent);
            self.slot.record_latency(self.kind, waited);
        }
    }

    /// Notes that the request is sent again.
    pub fn sent_again(&self) {
        self.sent.set(None);
    }

    /// Notes that there is no response.
    pub fn failed(&self) {
        self.slot.record_failure();
    }

    /// Records a load that the response reports.
    pub fn report(&self, load: Utilisation) {
        self.slot.record_load(load);
    }
}

/// The field that a load is reported in, and its other forms: gRFC A51, `endpoint-load-metrics`.
const FIELD: &str = "endpoint-load-metrics";
const OTHERS: [&str; 2] = ["endpoint-load-metrics-bin", "endpoint-load-metrics-json"];

/// Whether a trailer of this name, in small letters, says how busy the upstream is.
pub fn is_report(name: &[u8]) -> bool {
    let mut all = OTHERS.iter().chain([&FIELD]);
    all.any(|known| known.as_bytes() == name)
}

/// Removes the load report from a response. A report that is duplicated, in several formats or malformed is ignored.
pub fn take_report(fields: &mut Fields, metric: Option<&str>) -> Option<Utilisation> {
    let load = {
        let mut all = fields.all(FIELD);
        let only = all.next().filter(|_| all.next().is_none());
        let only = only.filter(|_| !OTHERS.iter().any(|other| fields.contains(other)));
        only.and_then(|value| OrcaReport::parse(value, metric).ok())
    };
    fields.remove(FIELD);
    for other in OTHERS {
        fields.remove(other);
    }
    load?.load()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[&str], expected: Option<f64>) {
        let mut fields = Fields::default();
        fields.add("a", b"b");
        for value in values {
            match value.strip_prefix("bin ") {
                Some(value) => fields.add("endpoint-load-metrics-bin", value.as_bytes()),
                None => fields.add("Endpoint-Load-Metrics", value.as_bytes()),
            }
        }
        let load = take_report(&mut fields, Some("queue"));
        assert_eq!(load.map(Utilisation::get), expected, "{values:?}");
        assert_eq!(fields.iter().count(), 1);
    }

    #[test]
    fn reports_are_taken_off() {
        check(&[], None);
        check(&["cpu_utilization:0.5"], Some(0.5));
        check(
            &["TEXT cpu_utilization=0.5,named_metrics.queue=0.7"],
            Some(0.7),
        );
        check(&["cpu_utilization:nan"], None);
        check(&["cpu_utilization:0.5", "cpu_utilization:0.5"], None);
        check(&["cpu_utilization:0.5", "bin AA=="], None);
    }
}
