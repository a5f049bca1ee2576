//! The outcome of a request, with the word for it that metrics, the access log and samples share.

/// How a request ended. Every request has exactly one outcome, which the metrics count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The upstream sent a response.
    Admitted,
    /// A limit refused it.
    Refused,
    /// It was within its limits, but the upstream was under pressure and other requests had priority.
    Shed,
    /// The gateway refused it for another reason, such as no route or no credential.
    Rejected,
    /// The upstream sent no response, or broke it off.
    Failed,
    /// The client closed its connection or stream before there was a response.
    Gone,
}

impl RequestOutcome {
    /// Every outcome, in the order of the counters.
    pub const ALL: [RequestOutcome; 6] = [
        RequestOutcome::Admitted,
        RequestOutcome::Refused,
        RequestOutcome::Shed,
        RequestOutcome::Rejected,
        RequestOutcome::Failed,
        RequestOutcome::Gone,
    ];

    /// The word for it in metrics, logs and samples.
    pub fn as_str(self) -> &'static str {
        match self {
            RequestOutcome::Admitted => "admitted",
            RequestOutcome::Refused => "refused",
            RequestOutcome::Shed => "shed",
            RequestOutcome::Rejected => "rejected",
            RequestOutcome::Failed => "failed",
            RequestOutcome::Gone => "gone",
        }
    }
}

/// The word in metrics and samples for where a response came from.
pub fn response_origin(by_upstream: bool) -> &'static str {
    if by_upstream { "upstream" } else { "gateway" }
}
