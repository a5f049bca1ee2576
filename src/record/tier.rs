//! The steps in which time is kept, and how long one file of each is.

/// Seconds of a day.
pub const DAY: u64 = 86_400;

/// A step. What is older is kept in longer ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// What happened in each second.
    Second,
    /// In each minute.
    Minute,
    /// In five minutes.
    FiveMinutes,
    /// In each hour.
    Hour,
    /// In each day, as UTC has days.
    Day,
}

impl Tier {
    /// All of them, from the finest.
    pub const ALL: [Tier; 5] = [
        Tier::Second,
        Tier::Minute,
        Tier::FiveMinutes,
        Tier::Hour,
        Tier::Day,
    ];

    /// Seconds of a bucket. Each tier's is a multiple of the one beneath.
    pub const fn step(self) -> u64 {
        match self {
            Tier::Second => 1,
            Tier::Minute => 60,
            Tier::FiveMinutes => 300,
            Tier::Hour => 3_600,
            Tier::Day => DAY,
        }
    }

    /// Seconds of a file. Each tier's is a multiple of the one beneath.
    pub const fn span(self) -> u64 {
        match self {
            Tier::Second => 3_600,
            Tier::Minute => 86_400,
            Tier::FiveMinutes => 10 * 86_400,
            Tier::Hour => 100 * 86_400,
            Tier::Day => 1_000 * 86_400,
        }
    }

    /// Buckets of a file.
    pub const fn slots(self) -> usize {
        (self.span() / self.step()) as usize
    }

    /// Its folder's name.
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Second => "1s",
            Tier::Minute => "1m",
            Tier::FiveMinutes => "5m",
            Tier::Hour => "1h",
            Tier::Day => "1d",
        }
    }

    /// The tier that this one is made of.
    pub const fn beneath(self) -> Option<Tier> {
        match self {
            Tier::Second => None,
            Tier::Minute => Some(Tier::Second),
            Tier::FiveMinutes => Some(Tier::Minute),
            Tier::Hour => Some(Tier::FiveMinutes),
            Tier::Day => Some(Tier::Hour),
        }
    }
}
