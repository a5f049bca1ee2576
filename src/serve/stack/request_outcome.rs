//! The outcome of a request, with the word for each outcome in metrics, the access log and samples.
//!
//! The words are part of the interface to users: dashboards and queries select by them.

/// How a request ended. Every request has exactly one outcome, which the metrics count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestOutcome {
    /// The upstream sent a response, or the gateway gave the one of the route, even if the client left before its end.
    Admitted,
    /// A limit refused the request.
    Refused,
    /// The request was shed: its upstream was under pressure, and other requests had priority.
    Shed,
    /// A list of `deny` or `allow` refused the client.
    Denied,
    /// The gateway told the caller what it has left of its limits.
    Usage,
    /// The client is banned.
    Banned,
    /// The gateway refused the request for another reason, such as no route or no credential.
    Rejected,
    /// The upstream sent no response, or no whole one.
    Failed,
    /// The client closed its connection or stream before there was a response, was too late for one, or broke off its
    /// body.
    Gone,
}

impl RequestOutcome {
    /// Every outcome, in the order of the counters.
    pub const ALL: [RequestOutcome; 9] = [
        RequestOutcome::Admitted,
        RequestOutcome::Refused,
        RequestOutcome::Shed,
        RequestOutcome::Denied,
        RequestOutcome::Usage,
        RequestOutcome::Banned,
        RequestOutcome::Rejected,
        RequestOutcome::Failed,
        RequestOutcome::Gone,
    ];

    /// The word for the outcome in metrics, logs and samples.
    pub fn as_str(self) -> &'static str {
        match self {
            RequestOutcome::Admitted => "admitted",
            RequestOutcome::Refused => "refused",
            RequestOutcome::Shed => "shed",
            RequestOutcome::Denied => "denied",
            RequestOutcome::Usage => "usage",
            RequestOutcome::Banned => "banned",
            RequestOutcome::Rejected => "rejected",
            RequestOutcome::Failed => "failed",
            RequestOutcome::Gone => "gone",
        }
    }
}

/// The word in metrics and samples for where a response came from.
pub fn response_origin(is_from_upstream: bool) -> &'static str {
    if is_from_upstream {
        "upstream"
    } else {
        "gateway"
    }
}
