//! The state of a server in one word, for the admin listener and the metrics. Here each endpoint counts as a server of
//! its own. Requests do not depend on this state; they depend on `server_health`.

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
    /// The server did not accept its last connection in time. Requests still use open connections to it; new connections
    /// are tried at other servers first.
    Unreachable,
}

impl ServerState {
    /// Whether the server gets requests at all: all states but ejected and failing.
    pub fn gets_requests(self) -> bool {
        !matches!(self, ServerState::Ejected | ServerState::Failing)
    }

    /// The word for this state in responses of the admin listener.
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
