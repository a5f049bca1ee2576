//! The classes of requests: which are shed first when an upstream cannot serve all. Policies assign them;
//! `shed_level.rs` cuts them.

/// The class of a request, from the one that is shed last to the one that is shed first. Each class has a bound on open
/// requests. Requests beyond it are shed at any level, but only until 5 s after a queue, or during a probe. Requests
/// beyond `max_open` are always shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestClass {
    /// They are shed last: the level cuts none of their cohorts, and their bound is the highest.
    Critical,
    /// The level sheds them by cohorts, once all requests of [`RequestClass::Low`] are shed.
    Normal,
    /// The level sheds them by cohorts, once nothing is lent.
    Low,
}

impl RequestClass {
    /// All classes, the one shed last first. `class as usize` is the index of a class here.
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
