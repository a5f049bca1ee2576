//! The classes of requests: which are shed first when an upstream cannot serve all. Policies assign them; `shed_level.rs`
//! cuts them.

/// The class of a request, from the one that is shed last to the one that is shed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestClass {
    /// Requests are shed last, and only where critical requests alone are more than the upstream serves.
    Critical,
    /// Requests are shed by cohorts, once all requests of [`RequestClass::Low`] are shed.
    Normal,
    /// Requests are shed by cohorts, once nothing is lent.
    Low,
}

impl RequestClass {
    /// All classes, the one shed last first.
    pub const ALL: [RequestClass; 3] = [
        RequestClass::Critical,
        RequestClass::Normal,
        RequestClass::Low,
    ];

    /// The word for the class in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            RequestClass::Critical => "critical",
            RequestClass::Normal => "normal",
            RequestClass::Low => "low",
        }
    }
}
