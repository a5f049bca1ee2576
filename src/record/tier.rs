//! The tiers of the record: the length of their buckets, and of the span that one file holds. Nothing here reads files.

/// The seconds of a day.
pub const DAY_SECONDS: u64 = 86_400;

/// A tier: all buckets of one length, which is called the step. Older seconds survive only in tiers with longer steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// Buckets of a second.
    Second,
    /// Buckets of a minute.
    Minute,
    /// Buckets of five minutes.
    FiveMinutes,
    /// Buckets of an hour.
    Hour,
    /// Buckets of a day in UTC.
    Day,
}

impl Tier {
    /// All tiers, the finest first.
    pub const ALL: [Tier; 5] = [
        Tier::Second,
        Tier::Minute,
        Tier::FiveMinutes,
        Tier::Hour,
        Tier::Day,
    ];

    /// The seconds of a bucket, a multiple of those of the next finer tier.
    pub const fn step_seconds(self) -> u64 {
        match self {
            Tier::Second => 1,
            Tier::Minute => 60,
            Tier::FiveMinutes => 300,
            Tier::Hour => 3_600,
            Tier::Day => DAY_SECONDS,
        }
    }

    /// The seconds that one file covers, a multiple of those of the next finer tier. A file has 1,000 to 3,600
    /// buckets.
    pub const fn file_seconds(self) -> u64 {
        match self {
            Tier::Second => 3_600,
            Tier::Minute => DAY_SECONDS,
            Tier::FiveMinutes => 10 * DAY_SECONDS,
            Tier::Hour => 100 * DAY_SECONDS,
            Tier::Day => 1_000 * DAY_SECONDS,
        }
    }

    /// The number of buckets of a complete file.
    pub const fn file_bucket_count(self) -> usize {
        (self.file_seconds() / self.step_seconds()) as usize
    }

    /// The name of the tier's folder, and of its step in the admin API.
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Second => "1s",
            Tier::Minute => "1m",
            Tier::FiveMinutes => "5m",
            Tier::Hour => "1h",
            Tier::Day => "1d",
        }
    }

    /// The next finer tier, from whose files this one is rolled up; `None` for seconds.
    pub const fn finer(self) -> Option<Tier> {
        match self {
            Tier::Second => None,
            Tier::Minute => Some(Tier::Second),
            Tier::FiveMinutes => Some(Tier::Minute),
            Tier::Hour => Some(Tier::FiveMinutes),
            Tier::Day => Some(Tier::Hour),
        }
    }

    /// The next coarser tier, which is rolled up from files of this one; `None` for days.
    pub(super) fn coarser(self) -> Option<Tier> {
        let mut tiers = Tier::ALL.into_iter();
        tiers.find(|tier| tier.finer() == Some(self))
    }
}
