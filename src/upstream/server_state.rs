//! The state of a server in one word, as the admin listener and the metrics show it. Requests do not depend on it.

/// The state of a server: what its health means for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// The server gets requests by its full weight.
    Up,
    /// The server gets fewer requests, because it is in a slow start or on trial.
    Starting,
    /// The server gets no requests, because requests to it failed.
    Ejected,
    /// The server gets no requests, because its health checks fail.
    Failing,
    /// The server did not accept the last connection in time. It still gets requests.
    Unreachable,
}

impl ServerState {
    /// Whether the server gets requests.
    pub fn gets_requests(self) -> bool {
        !matches!(self, ServerState::Ejected | ServerState::Failing)
    }

    /// The word for this state on the admin listener.
    pub fn as_str(self) -> &'static str {
        match self {
            ServerState::Up => "up",
            ServerState::Starting => "starting",
            ServerState::Ejected => "ejected",
            ServerState::Failing => "failing",
            ServerState::Unreachable => "unreachable",
        }
    }
}
