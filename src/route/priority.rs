//! The priorities of routes under pressure.

/// The order in which requests are shed when an upstream is under pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    /// Requests are shed first.
    Low,
    /// Requests are shed after all requests of low priority.
    #[default]
    Normal,
    /// Requests are shed last.
    Critical,
}

/// The priority of two combined routes: the lower one, where `None` is that of the client's plan. Beside `None`,
/// critical gives `None`, because the plan's cannot be higher. Low and normal stay, though the plan's may be low.
pub(super) fn lower_priority(
    first: Option<Priority>,
    second: Option<Priority>,
) -> Option<Priority> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.min(second)),
        (priority, None) | (None, priority) => {
            priority.filter(|priority| *priority != Priority::Critical)
        }
    }
}
