//! `while:` of an elastic limit: the condition under which it lends, for instance
//! `upstream.load < 0.7 and upstream.latency.p90 < 200ms`. This file measures
//! how well conditions hold; `condition_text.rs` parses them.
//!
//! A condition has only upper bounds: a limit that lends more as load rises is a mistake. A bound on a signal whose
//! value is not known never holds.

use super::PressureFigures;
use crate::base::clock::Nanos;

/// A parsed condition: it holds while every signal is below its bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The condition as it was written, without blanks around it.
    pub(super) text: Box<str>,
    /// 1 to `condition_text::MAX_BOUNDS` bounds.
    pub(super) bounds: Vec<SignalBound>,
}

/// A signal and the value that it must be below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SignalBound {
    Load(f64),
    P50(Nanos),
    P90(Nanos),
    Cpu(f64),
}

impl Condition {
    /// The condition as it was written, without blanks around it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How well the condition holds: 0 if it does not, 1 if no signal is near its bound. Lending shrinks in between.
    /// With a yes or no, lending would raise the signal, end itself and begin again at every step.
    pub fn headroom(&self, figures: &PressureFigures) -> f64 {
        let headrooms = self.bounds.iter().map(|bound| match *bound {
            SignalBound::Load(bound) => headroom_below(Some(figures.load), bound),
            SignalBound::P50(bound) => {
                headroom_below(figures.p50.map(|span| span.0 as f64), bound.0 as f64)
            }
            SignalBound::P90(bound) => {
                headroom_below(figures.p90.map(|span| span.0 as f64), bound.0 as f64)
            }
            SignalBound::Cpu(bound) => headroom_below(figures.cpu, bound),
        });
        headrooms.fold(1.0, f64::min)
    }
}

/// The share of a bound, just below it, in which the headroom falls from 1 to 0.
const NEAR_SHARE: f64 = 0.2;

/// The headroom of one bound, from 0 to 1; 0 where the value is not known.
fn headroom_below(value: Option<f64>, bound: f64) -> f64 {
    let headroom = value.map_or(0.0, |value| (bound - value) / (NEAR_SHARE * bound));
    // A NaN fails the comparison, so it counts as above any bound.
    if headroom > 0.0 {
        headroom.min(1.0)
    } else {
        0.0
    }
}

#[cfg(feature = "gateway")]
#[cfg(test)]
mod tests {
    use super::super::{ElasticFactor, RequestClass};
    use super::*;

    const IDLE: PressureFigures = PressureFigures {
        factor: ElasticFactor::ONE,
        load: 0.2,
        capacity: 20.0,
        open: 4,
        baseline: None,
        p50: Some(Nanos::from_millis(20)),
        p90: Some(Nanos::from_millis(90)),
        level: 4.0,
        reported: None,
        cpu: Some(0.3),
        lent: 0,
        shed: [0; RequestClass::ALL.len()],
    };

    #[track_caller]
    fn check(text: &str, figures: PressureFigures, expected: bool) {
        let condition = Condition::parse(text).unwrap();
        assert_eq!(condition.headroom(&figures) > 0.0, expected, "{text}");
    }

    #[test]
    fn all_bounds_must_hold() {
        let all = "upstream.load < 0.7 and upstream.latency.p90 < 200ms and gateway.cpu < 80%";
        check(all, IDLE, true);
        check(all, PressureFigures { load: 0.7, ..IDLE }, false);
        check(
            all,
            PressureFigures {
                p90: Some(Nanos::from_millis(200)),
                ..IDLE
            },
            false,
        );
        check(
            all,
            PressureFigures {
                cpu: Some(0.8),
                ..IDLE
            },
            false,
        );
        check(
            all,
            PressureFigures {
                load: f64::NAN,
                ..IDLE
            },
            false,
        );
        check(
            " upstream.load<30%  and\tupstream.latency.p50<0.021s",
            IDLE,
            true,
        );
        check("upstream.latency.p50 < 19999us", IDLE, false);
    }

    #[test]
    fn less_is_left_the_nearer_the_bound() {
        let condition = Condition::parse("upstream.load < 0.5 and gateway.cpu < 100%").unwrap();
        for (load, headroom) in [(0.0, 1.0), (0.4, 1.0), (0.45, 0.5), (0.5, 0.0), (9.0, 0.0)] {
            let now = PressureFigures { load, ..IDLE };
            assert!((condition.headroom(&now) - headroom).abs() < 1e-9, "{load}");
        }
    }

    #[test]
    fn the_unknown_does_not_hold() {
        check(
            "upstream.latency.p90 < 1s",
            PressureFigures { p90: None, ..IDLE },
            false,
        );
        check(
            "upstream.latency.p50 < 1s",
            PressureFigures { p50: None, ..IDLE },
            false,
        );
        check(
            "gateway.cpu < 100%",
            PressureFigures { cpu: None, ..IDLE },
            false,
        );
    }
}
