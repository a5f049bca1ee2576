//! How a request ended, as metrics, the access log and samples say it.

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The upstream responded.
    Admitted,
    /// A limit refused it.
    Refused,
    /// It gave way under pressure to requests that matter more, though within its limits.
    Shed,
    /// The gateway refused it for another reason, such as no route or no credential.
    Rejected,
    /// The upstream did not respond, or not with a whole response.
    Failed,
    /// The client left first.
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
