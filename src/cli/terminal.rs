//! Formats numbers, curves and foreign text for a terminal.

use serde_json::Value;

/// The heights of a sparkline.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Foreign text with control characters replaced, so that a terminal does not obey them.
pub fn printable(text: &str) -> String {
    let plain = |letter: char| {
        if letter.is_control() {
            '\u{fffd}'
        } else {
            letter
        }
    };
    text.chars().map(plain).collect()
}

pub fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().into_iter().flatten();
    list.map(|value| value.as_f64().unwrap_or(0.0)).collect()
}

/// A sparkline, with a gap where nothing was recorded.
pub fn bars(rates: &[Option<f64>]) -> String {
    let most = rates.iter().flatten().copied().fold(0.0, f64::max);
    let bar = |rate: &Option<f64>| match rate {
        None => ' ',
        Some(_) if most == 0.0 => BARS[0],
        Some(rate) => BARS[((rate / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    rates.iter().map(bar).collect()
}

/// The rate of each step, per recorded second.
pub fn rates(series: &Value, covered: &[f64]) -> Vec<Option<f64>> {
    let each = numbers(&series["sum"]).into_iter().zip(covered);
    each.map(|(sum, covered)| (*covered > 0.0).then(|| sum / covered))
        .collect()
}

pub fn short(number: f64) -> String {
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
    fn curves_in_a_line() {
        #[track_caller]
        fn check(rates: &[Option<f64>], expected: &str) {
            assert_eq!(bars(rates), expected);
        }
        check(&[], "");
        check(&[Some(0.0), None, Some(0.0)], "▁ ▁");
        check(&[Some(0.0), Some(1.0), Some(4.0), Some(8.0)], "▁▁▄█");
    }

    #[test]
    fn terminals_are_told_nothing() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }
}
