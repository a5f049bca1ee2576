//! Notes, their topics, and the bounds of each topic: how long and how many notes are kept. `notes.rs` enforces the
//! bounds.

use super::tier::DAY_SECONDS;

/// The subject of a note. The notes of each topic have a folder of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// A single request, kept as an example.
    Sample,
    /// The most frequent keys of a minute.
    Minute,
    /// The most frequent keys of an hour.
    Hour,
    /// The most frequent keys of a day.
    Day,
    /// What became of the gateway, such as a start or a reload, and what operators ordered.
    Event,
}

impl Topic {
    /// All topics. Notes of the first ones are the most numerous, and are deleted first.
    pub const ALL: [Topic; 5] = [
        Topic::Sample,
        Topic::Minute,
        Topic::Hour,
        Topic::Day,
        Topic::Event,
    ];

    /// The name of the folder with the files of the topic.
    pub(super) fn folder_name(self) -> &'static str {
        match self {
            Topic::Sample => "samples",
            Topic::Minute => "minutes",
            Topic::Hour => "hours",
            Topic::Day => "days",
            Topic::Event => "events",
        }
    }

    /// The most notes in memory, and the most that wait for the disk. They are lists of 180 minutes (three hours), of
    /// 48 hours (two days) and of eight days, and round numbers of samples and events.
    pub(super) const fn max_in_memory(self) -> usize {
        match self {
            Topic::Sample => 10_000,
            Topic::Minute => 180,
            Topic::Hour => 48,
            Topic::Day => 8,
            Topic::Event => 1_000,
        }
    }

    /// The bytes that all notes may take, divided by this number, are those that the file of one day may take. With 1,
    /// a day has no bound of its own.
    pub(super) const fn day_divisor(self) -> u64 {
        match self {
            Topic::Sample => 4,
            Topic::Minute => 2,
            Topic::Hour | Topic::Day | Topic::Event => 1,
        }
    }

    /// The seconds after its day for which a note is kept, unless notes take too many bytes. A year has 366 days here.
    pub const fn retention_seconds(self) -> u64 {
        match self {
            Topic::Sample | Topic::Minute => 7 * DAY_SECONDS,
            Topic::Hour => 90 * DAY_SECONDS,
            Topic::Event => 400 * DAY_SECONDS,
            Topic::Day => 5 * 366 * DAY_SECONDS,
        }
    }
}

/// A text with a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// The time that the text is about, in seconds since 1970.
    pub at: u64,
    /// The text. Only its writer knows its form.
    pub text: Vec<u8>,
}
