//! Parses the span of a query: two moments, each absolute or relative to now. The end of a span is not part of it.

use super::query::{ErrorResponse, bad_request};
use crate::record::promql::number;
use crate::serve::admin::control::Control;

/// Moments must be before this second, some 35,000 years after 1970, so that sums with them cannot overflow.
const MAX_MOMENT: u64 = 1 << 40;

/// The parameter `to` if the request does not name one.
pub(super) fn default_end() -> String {
    String::from("now")
}

/// Parses `from` and `to` into seconds since 1970. The error is the response.
pub(super) fn parse_span(
    gateway: &dyn Control,
    from: &str,
    to: &str,
) -> Result<(u64, u64), ErrorResponse> {
    let now = gateway.clock().wall().as_secs();
    let (Some(from), Some(to)) = (parse_moment(from, now), parse_moment(to, now)) else {
        return Err(bad_request(
            "`from` and `to` are seconds since 1970, a span before now such as -1h, or `now`",
        ));
    };
    if from >= to {
        return Err(bad_request("`from` must be before `to`"));
    }
    Ok((from, to))
}

/// Parses seconds since 1970, `now`, or a span before now such as `-1h30m`, into seconds since 1970. `None` for any other
/// text, and from [`MAX_MOMENT`] on.
fn parse_moment(text: &str, now: u64) -> Option<u64> {
    if text == "now" {
        // The end of a span is not part of it, and the current second is to be.
        return Some(now + 1);
    }
    let Some(duration) = text.strip_prefix('-') else {
        return text.parse().ok().filter(|seconds| *seconds < MAX_MOMENT);
    };
    let duration_ms = u64::try_from(number::parse_duration_ms(duration)?).ok()?;
    Some(now.saturating_sub(duration_ms / 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        let check = |text, expected| assert_eq!(parse_moment(text, 100_000), expected, "{text}");
        check("now", Some(100_001));
        check("77", Some(77));
        check("-90s", Some(99_910));
        check("-1h", Some(96_400));
        check("-1m30s", Some(99_910));
        check("-20y", Some(0));
        check("-99999999999999999999y", None);
        check("-1", None);
        check("-", None);
        check("-h", None);
        check("-1é", None);
        check("yesterday", None);
        check("99999999999999", None);
    }
}
