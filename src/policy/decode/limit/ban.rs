//! Reads `ban` of a limit: after how many refusals it bans a client, and for how long.

use std::time::Duration;

use super::super::super::context::LoadContext;
use super::super::super::section::{LocatedField, RequiredField, section};
use super::super::super::table::{MapFields, TextFormat, ValueShape};
use super::super::ValueError;
use super::super::field::{DurationField, scalar_fields};
use super::super::scalar::parse_duration;
use crate::base::clock::Nanos;
use crate::limit::BanPolicy;

/// Minimum of a ban in milliseconds.
const MIN_BAN_MILLIS: u64 = 1_000;
/// Maximum of a ban in milliseconds: ten years.
const MAX_BAN_MILLIS: u64 = 3_650 * 86_400_000;
/// The time within which refusals must come.
const WITHIN: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);

section! {
    /// When a limit bans a client whom it keeps refusing, and for how long.
    pub struct BanConfig, table BAN_TABLE = "`ban`", "When the limit bans a client whom it keeps refusing.", check check_ban;
    after: RequiredField<LocatedField<BanAfterField>>,
        "How many refusals in how long lead to a ban: up to 100 in at most 7d.", "3 refusals in 10m";
    duration("for"): DurationField<MIN_BAN_MILLIS, MAX_BAN_MILLIS> = Duration::from_secs(3_600),
        "How long the first ban lasts.", "1h";
    up_to: LocatedField<DurationField<MIN_BAN_MILLIS, MAX_BAN_MILLIS>>,
        "The longest that a ban lasts: each further ban of a client lasts twice as long as the one before. Default: as `for`.", "7d";
}

static BAN_AFTER_FORMAT: TextFormat = TextFormat {
    name: "ban_after",
    pattern: r"^\s*[0-9]+\s+refusals?\s+in\s+[0-9]+\s*[smhd]\s*$",
    doc: "How many refusals in how long, for instance 3 refusals in 10m.",
};

scalar_fields! {
    /// A field that says how many refusals in how long lead to a ban.
    pub struct BanAfterField: (u32, Duration) =
        ValueShape::Format(&BAN_AFTER_FORMAT), "how many refusals in how long, such as 3 refusals in 10m", parse_ban_after;
}

impl BanConfig {
    /// The policy; `None` if `after` has a mistake.
    pub fn policy(&self) -> Option<BanPolicy> {
        let (refusals, within) = self.after.as_ref()?.value;
        let first = Nanos::from(self.duration);
        let up_to = self.up_to.as_ref().map(|up_to| Nanos::from(up_to.value));
        Some(BanPolicy {
            refusals,
            within: within.into(),
            first,
            up_to: up_to.unwrap_or(first),
        })
    }
}

/// Reports a longest ban that is shorter than the first one.
fn check_ban(cx: &mut LoadContext, _: &MapFields<'_>, ban: &BanConfig) {
    if let Some(up_to) = ban.up_to.filter(|up_to| up_to.value < ban.duration) {
        let message = "the longest ban is shorter than the first one";
        let help = "write at least the duration of `for`, or remove `up_to`";
        cx.error(up_to.location, message, Some(help.into()));
    }
}

fn parse_ban_after(text: &str) -> Result<(u32, Duration), ValueError> {
    let help = "write for instance `3 refusals in 10m`";
    let mistake = || {
        ValueError::new(
            format!("`{text}` is not a number of refusals in a time"),
            help,
        )
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let (count, within) = match words.as_slice() {
        [count, "refusal" | "refusals", "in", within @ ..] if !within.is_empty() => (
            count.parse::<u32>().map_err(|_| mistake())?,
            within.concat(),
        ),
        _ => return Err(mistake()),
    };
    let within = parse_duration(&within).map_err(|_| mistake())?;
    if !(1..=BanPolicy::MAX_REFUSALS).contains(&count) || !WITHIN.contains(&within) {
        let message = format!("`{text}` is beyond the bounds");
        return Err(ValueError::new(
            message,
            "write 1 to 100 refusals in 1s to 7d",
        ));
    }
    Ok((count, within))
}
