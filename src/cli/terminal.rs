//! Formats numbers, times, curves and foreign text for a terminal. Nothing is printed here.

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The characters of a sparkline, from low to high.
const SPARKLINE_BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Formats a time in seconds since 1970 as in `2026-11-27T16:00:00Z`.
pub fn format_time(at: &Value) -> String {
    let seconds = at.as_i64().unwrap_or_default();
    let time = OffsetDateTime::from_unix_timestamp(seconds).ok();
    let text = time.and_then(|time| time.format(&Rfc3339).ok());
    text.unwrap_or_else(|| seconds.to_string())
}

/// Replaces the control characters of foreign text, so that a terminal does not obey them.
pub fn replace_control_chars(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Formats rows below their titles, each column as wide as its widest text. Lines have no blanks at their ends.
pub fn render_columns<const N: usize>(titles: [&str; N], rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let texts = rows.iter().filter_map(|row| row.get(column));
        let lengths = texts.map(|text| text.chars().count());
        lengths.chain([titles[column].len()]).max().unwrap_or(0)
    });
    let render_line = |texts: &[String; N]| {
        let cells = texts.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(text, width)| format!("{text:width$}"))
            .collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    let titles = titles.map(str::to_owned);
    std::iter::once(&titles)
        .chain(rows)
        .map(render_line)
        .collect()
}

/// Returns the numbers of a JSON array. An element that is no number counts as 0, and a value that is no array is
/// empty.
pub fn parse_numbers(value: &Value) -> Vec<f64> {
    let elements = value.as_array().into_iter().flatten();
    elements
        .map(|element| element.as_f64().unwrap_or(0.0))
        .collect()
}

/// Draws rates as a sparkline, with a blank where nothing was recorded. The highest rate has the highest bar, unless
/// all rates are 0.
pub fn sparkline(rates: &[Option<f64>]) -> String {
    let peak = rates.iter().flatten().copied().fold(0.0, f64::max);
    // The height of a rate, given as a share of the peak: from 1 to the number of bars.
    let bar_height = |share: f64| {
        let bar_count = SPARKLINE_BARS.len();
        ((share * bar_count as f64).ceil() as usize).clamp(1, bar_count)
    };
    let bar = |rate: &Option<f64>| match rate {
        None => ' ',
        Some(_) if peak == 0.0 => SPARKLINE_BARS[0],
        Some(rate) => SPARKLINE_BARS[bar_height(rate / peak) - 1],
    };
    rates.iter().map(bar).collect()
}

/// Returns the rate of a series in each step, per recorded second; `None` for a step without recorded seconds.
/// `covered_seconds` has the recorded seconds of each step.
pub fn rates_per_second(series: &Value, covered_seconds: &[f64]) -> Vec<Option<f64>> {
    let steps = parse_numbers(&series["sum"])
        .into_iter()
        .zip(covered_seconds);
    steps
        .map(|(sum, seconds)| (*seconds > 0.0).then(|| sum / seconds))
        .collect()
}

/// Formats a number of seconds, at least one, by its largest unit, and the next one if that is not zero.
pub fn format_seconds(seconds: f64) -> String {
    let mut rest = seconds.round() as u64;
    let mut parts = Vec::new();
    for (unit_seconds, unit) in [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")] {
        let count = rest / unit_seconds;
        rest %= unit_seconds;
        if count > 0 {
            parts.push(format!("{count}{unit}"));
        } else if !parts.is_empty() {
            break;
        }
    }
    parts.truncate(2);
    match parts.is_empty() {
        true => "1s".into(),
        false => parts.join(" "),
    }
}

/// Formats a number with few digits: no decimals if it is whole or at least 100, one if it is at least 1, and otherwise
/// three.
pub fn format_short(number: f64) -> String {
    match number {
        number if number >= 100.0 || number.fract() == 0.0 => format!("{number:.0}"),
        number if number >= 1.0 => format!("{number:.1}"),
        number => format!("{number:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        for (seconds, expected) in [
            (0.2, "1s"),
            (59.0, "59s"),
            (60.0, "1m"),
            (3_599.5, "1h"),
            (3_725.0, "1h 2m"),
            (86_400.0 * 7.0 + 5.0, "7d"),
        ] {
            assert_eq!(format_seconds(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn curves_in_a_line() {
        #[track_caller]
        fn check(rates: &[Option<f64>], expected: &str) {
            assert_eq!(sparkline(rates), expected);
        }
        check(&[], "");
        check(&[Some(0.0), None, Some(0.0)], "▁ ▁");
        check(&[Some(0.0), Some(1.0), Some(4.0), Some(8.0)], "▁▁▄█");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(
            replace_control_chars("a\u{1b}[2Jb\n"),
            "a\u{fffd}[2Jb\u{fffd}"
        );
    }
}
