//! How a request ended, as metrics, the access log and samples say it.

/// How requests ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Answered by the upstream.
    Admitted,
    /// Refused by a limit.
    Refused,
    /// Within its limits, and turned away for those that matter more.
    Shed,
    /// Not a request that can be served: bad, unknown, not allowed.
    Rejected,
    /// The upstream gave no answer.
    Failed,
    /// The client went away first.
    Gone,
}

impl RequestOutcome {
    /// All of them, in the order of the counters.
    pub const ALL: [RequestOutcome; 6] = [
        RequestOutcome::Admitted,
        RequestOutcome::Refused,
        RequestOutcome::Shed,
        RequestOutcome::Rejected,
        RequestOutcome::Failed,
        RequestOutcome::Gone,
    ];

    /// As metrics and logs write it.
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

/// Who gave the response, as metrics and samples write it.
pub fn origin(by_upstream: bool) -> &'static str {
    if by_upstream { "upstream" } else { "gateway" }
}
