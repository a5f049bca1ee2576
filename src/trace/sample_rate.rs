//! The share of requests that are sampled.

use std::fmt;
use std::str::FromStr;

/// The whole, in the unit in which shares are kept.
const MILLIONTHS: u32 = 1_000_000;
/// Millionths in one percent.
const PER_CENT: u32 = MILLIONTHS / 100;
/// The most digits after the point of a percentage, as millionths allow.
const MAX_DECIMALS: usize = 4;

/// A share of requests, in millionths from 0 to all. Written as a percentage: `1%`, `0.05%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRate(u32);

/// The error of a text that is no percentage from `0%` to `100%` with at most four decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidSampleRate;

impl SampleRate {
    /// One percent: the rate if the gateway file gives none.
    pub const DEFAULT: SampleRate = SampleRate(PER_CENT);

    /// Whether a request is sampled for which this number was drawn. All 64-bit numbers must be equally likely.
    #[inline]
    pub fn chooses(self, drawn: u64) -> bool {
        let scaled = ((drawn >> 32) * u64::from(MILLIONTHS)) >> 32;
        scaled < u64::from(self.0)
    }
}

impl FromStr for SampleRate {
    type Err = InvalidSampleRate;

    fn from_str(text: &str) -> Result<SampleRate, InvalidSampleRate> {
        let number = text.strip_suffix('%').ok_or(InvalidSampleRate)?.trim_end();
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.len() > MAX_DECIMALS {
            return Err(InvalidSampleRate);
        }
        let whole: u32 = whole.parse().map_err(|_| InvalidSampleRate)?;
        let fraction: u32 = format!("{decimals:0<MAX_DECIMALS$}")
            .parse()
            .map_err(|_| InvalidSampleRate)?;
        let millionths = whole.checked_mul(PER_CENT).ok_or(InvalidSampleRate)?;
        let millionths = millionths.saturating_add(fraction);
        (millionths <= MILLIONTHS)
            .then_some(SampleRate(millionths))
            .ok_or(InvalidSampleRate)
    }
}

/// The percentage, as files write it.
impl fmt::Display for SampleRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / PER_CENT, self.0 % PER_CENT);
        if fraction == 0 {
            return write!(f, "{whole}%");
        }
        let decimals = format!("{fraction:0MAX_DECIMALS$}");
        write!(f, "{whole}.{}%", decimals.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::SplitMix64;

    #[test]
    fn percentages_are_read_and_written() {
        for text in ["0%", "1%", "0.05%", "12.5%", "99.9999%", "100%", "0.0001%"] {
            let rate: SampleRate = text.parse().unwrap();
            assert_eq!(rate.to_string(), text);
        }
        assert_eq!("1".repeat(40).parse::<SampleRate>(), Err(InvalidSampleRate));
        for text in [
            "",
            "%",
            "1",
            "-1%",
            "+1%",
            "100.0001%",
            "101%",
            "1.%",
            ".5%",
            "1.00001%",
            "1e1%",
            "4294967296%",
            "429497%",
            "1%%",
            "one%",
        ] {
            assert_eq!(text.parse::<SampleRate>(), Err(InvalidSampleRate), "{text}");
        }
    }

    #[test]
    fn a_rate_chooses_its_share() {
        let drawn_share = |text: &str| {
            let (rate, random) = (text.parse::<SampleRate>().unwrap(), SplitMix64::new(5));
            (0..100_000).filter(|_| rate.chooses(random.draw())).count()
        };
        assert_eq!(drawn_share("0%"), 0);
        assert_eq!(drawn_share("100%"), 100_000);
        assert!((800..1_200).contains(&drawn_share("1%")));
        assert!(SampleRate(1).chooses(0) && !SampleRate(999_999).chooses(u64::MAX));
    }
}
