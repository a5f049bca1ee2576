//! Measures the load of an upstream with each request: the latency of its response, and the load that the response
//! reports.
//!
//! `limit/pressure/` computes the pressure on the upstream from these measurements.

use std::cell::Cell;

use http::StatusCode;

use crate::base::clock::{Clock, Nanos};
use crate::http::head::Fields;
use crate::limit::pressure::{OrcaReport, RequestKind, UpstreamSlot, Utilisation};

/// The measurement of one request, which holds the request's slot among the open requests of the upstream.
pub struct LoadMeasurement {
    slot: UpstreamSlot,
    kind: RequestKind,
    clock: Clock,
    /// When the whole request had been sent to the upstream; `None` before.
    sent_at: Cell<Option<Nanos>>,
}

impl LoadMeasurement {
    /// The measurement of a request that is about to be sent.
    pub fn new(slot: UpstreamSlot, kind: RequestKind, clock: Clock) -> LoadMeasurement {
        LoadMeasurement {
            slot,
            kind,
            clock,
            sent_at: Cell::new(None),
        }
    }

    /// Records that the response has not begun, and whether the whole request is sent. Until it is, the gateway waits for
    /// the client's body.
    pub fn record_waiting(&self, is_request_sent: bool) {
        self.slot.wait_for_client(!is_request_sent);
        if is_request_sent && self.sent_at.get().is_none() {
            self.sent_at.set(Some(self.clock.now()));
        }
    }

    /// Records that the response has begun: its latency, or a failure for a status from 500 to 599.
    pub fn record_response(&self, status: StatusCode, now: Nanos) {
        if status.is_server_error() {
            return self.slot.record_failure();
        }
        // A response that begins before the whole request is sent says nothing about load.
        if let Some(sent_at) = self.sent_at.get() {
            self.slot.record_latency(self.kind, now.since(sent_at));
        }
    }

    /// Starts the measurement anew, because the request is sent again.
    pub fn restart(&self) {
        self.sent_at.set(None);
    }

    /// Records that the upstream sent no valid response.
    pub fn record_failure(&self) {
        self.slot.record_failure();
    }

    /// Records a load that the response reports.
    pub fn record_report(&self, load: Utilisation) {
        self.slot.record_load(load);
    }
}

/// The response field that reports a load as text or JSON, from the design of ORCA (xDS) as Envoy implements it.
const REPORT_FIELD: &str = "endpoint-load-metrics";

/// The fields of other formats, which the gateway does not read: the binary one, which gRFC A51 sends as a trailer, and
/// the JSON one of earlier versions of Envoy.
const OTHER_REPORT_FIELDS: [&str; 2] = ["endpoint-load-metrics-bin", "endpoint-load-metrics-json"];

/// Whether a field of this name, in lower case, reports the load of an upstream.
pub fn is_report_field(name: &[u8]) -> bool {
    let mut report_fields = OTHER_REPORT_FIELDS.iter().chain([&REPORT_FIELD]);
    report_fields.any(|field| field.as_bytes() == name)
}

/// Removes the load report from a response and returns the load. `None` if the report is missing, duplicated, malformed,
/// in another format too, or names no load. `metric` is the named metric that [`OrcaReport::parse`] takes as the load.
pub fn take_report(fields: &mut Fields, metric: Option<&str>) -> Option<Utilisation> {
    let report = {
        let mut values = fields.all(REPORT_FIELD);
        let single_value = values.next().filter(|_| values.next().is_none());
        let has_other_format = || OTHER_REPORT_FIELDS.iter().any(|name| fields.contains(name));
        let unambiguous_value = single_value.filter(|_| !has_other_format());
        unambiguous_value.and_then(|value| OrcaReport::parse(value, metric).ok())
    };
    fields.remove(REPORT_FIELD);
    for name in OTHER_REPORT_FIELDS {
        fields.remove(name);
    }
    report?.load()
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
