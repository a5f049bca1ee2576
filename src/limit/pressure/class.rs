//! How much a request matters.

/// What a request is, from what is shed last to what is shed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Shed last, and only where critical requests alone are more than the upstream serves.
    Critical,
    /// Shed by cohorts once all of [`Class::Low`] is.
    Normal,
    /// Shed by cohorts once nothing is lent.
    Low,
}

impl Class {
    /// All of them, last shed first.
    pub const ALL: [Class; 3] = [Class::Critical, Class::Normal, Class::Low];

    /// As logs and metrics write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Critical => "critical",
            Class::Normal => "normal",
            Class::Low => "low",
        }
    }
}
