//! The kinds of notes: where each is kept, for how long, and how many.

use super::tier::DAY;

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// Single requests.
    Sample,
    /// Who was counted most in a minute.
    Minute,
    /// The same of an hour.
    Hour,
    /// The same of a day.
    Day,
    /// What was done to the gateway.
    Event,
}

impl Topic {
    /// All, those that are many first.
    pub const ALL: [Topic; 5] = [
        Topic::Sample,
        Topic::Minute,
        Topic::Hour,
        Topic::Day,
        Topic::Event,
    ];

    /// The name of its folder.
    pub(super) fn name(self) -> &'static str {
        match self {
            Topic::Sample => "samples",
            Topic::Minute => "minutes",
            Topic::Hour => "hours",
            Topic::Day => "days",
            Topic::Event => "events",
        }
    }

    /// The most of its notes that are in memory.
    pub(super) const fn recent(self) -> usize {
        match self {
            Topic::Sample => 10_000,
            Topic::Minute => 180,
            Topic::Hour => 48,
            Topic::Day => 8,
            Topic::Event => 1_000,
        }
    }

    /// Which part of what notes may take a day of these may.
    pub(super) const fn part(self) -> u64 {
        match self {
            Topic::Sample => 4,
            Topic::Minute => 2,
            Topic::Hour | Topic::Day | Topic::Event => 1,
        }
    }

    /// How many seconds its notes are kept.
    pub const fn kept(self) -> u64 {
        match self {
            Topic::Sample | Topic::Minute => 7 * DAY,
            Topic::Hour => 90 * DAY,
            Topic::Event => 400 * DAY,
            Topic::Day => 5 * 366 * DAY,
        }
    }
}

/// A time and what is to be said of it.
pub type Note = (u64, Vec<u8>);
