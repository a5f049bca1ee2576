//! How a request ended, as metrics, the access log and samples say it.

/// How requests ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
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

impl Outcome {
    /// All of them, in the order of the counters.
    pub const ALL: [Outcome; 6] = [
        Outcome::Admitted,
        Outcome::Refused,
        Outcome::Shed,
        Outcome::Rejected,
        Outcome::Failed,
        Outcome::Gone,
    ];

    /// As metrics and logs write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Admitted => "admitted",
            Outcome::Refused => "refused",
            Outcome::Shed => "shed",
            Outcome::Rejected => "rejected",
            Outcome::Failed => "failed",
            Outcome::Gone => "gone",
        }
    }
}

/// Who gave the response, as metrics and samples write it.
pub fn origin(by_upstream: bool) -> &'static str {
    if by_upstream { "upstream" } else { "gateway" }
}
