//! What came of all requests, and figures of it.

use crate::client::Sample;
use crate::traffic::Kind;

/// From a moment to another, in seconds from the beginning.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub from: f64,
    pub to: f64,
}

impl Span {
    pub fn seconds(self) -> f64 {
        self.to - self.from
    }

    /// The half of it that comes later.
    pub fn later_half(self) -> Span {
        Span {
            from: self.from.midpoint(self.to),
            ..self
        }
    }

    pub fn has(self, at: f64) -> bool {
        (self.from..self.to).contains(&at)
    }
}

/// What the gateway and the server showed; the gateway shows nothing where nothing is steered.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Seconds from the beginning.
    pub at: f64,
    pub factor: Option<f64>,
    pub load: Option<f64>,
    pub level: Option<f64>,
    /// Requests at the server, smoothed over a second.
    pub open: f64,
}

/// All that was seen of a run.
pub struct Record {
    pub samples: Vec<Sample>,
    pub moments: Vec<Moment>,
    /// When the machine stood still, and for how many seconds.
    pub pauses: Vec<(f64, f64)>,
}

/// Seconds before and after a pause in which requests suffer from it.
const BEFORE: f64 = 0.15;
const AFTER: f64 = 0.3;

impl Record {
    /// What became of the requests that were due in the span.
    pub fn part(&self, span: Span) -> Part<'_> {
        let due = self.samples.iter().filter(|sample| span.has(sample.at));
        Part {
            samples: due.collect(),
            seconds: span.seconds(),
        }
    }

    /// The same of those that did not suffer from a pause of the machine, and the share of all that these are.
    pub fn undisturbed(&self, span: Span) -> (Part<'_>, f64) {
        let all = self.part(span);
        let suffers = |sample: &Sample| {
            let near =
                |(at, took): &(f64, f64)| (at - BEFORE..at + took + AFTER).contains(&sample.at);
            self.pauses.iter().any(near)
        };
        let part = all.only(|sample| !suffers(sample));
        let share = part.samples.len() as f64 / all.samples.len() as f64;
        (part, share)
    }

    /// What was seen in the span.
    pub fn moments(&self, span: Span) -> impl Iterator<Item = &Moment> + Clone {
        self.moments
            .iter()
            .filter(move |moment| span.has(moment.at))
    }

    /// The whole seconds of the run counted from `zero` on, with the requests that were due in them.
    pub fn seconds(&self, zero: f64) -> impl Iterator<Item = (f64, Part<'_>)> {
        self.each(zero, |sample| sample.at)
    }

    /// The same with those that ended in them.
    pub fn answers(&self, zero: f64) -> impl Iterator<Item = (f64, Part<'_>)> {
        self.each(zero, |sample| sample.at + sample.took / 1_000.0)
    }

    fn each(&self, zero: f64, when: fn(&Sample) -> f64) -> impl Iterator<Item = (f64, Part<'_>)> {
        let end = self.moments.last().map_or(0.0, |moment| moment.at) - zero;
        // Seconds that are cut are left out.
        let first = (-zero).ceil() as i64;
        (first..end.floor() as i64).map(move |second| {
            let from = second as f64 + zero;
            let span = Span {
                from,
                to: from + 1.0,
            };
            let within = self.samples.iter().filter(|sample| span.has(when(sample)));
            let part = Part {
                samples: within.collect(),
                seconds: 1.0,
            };
            (second as f64, part)
        })
    }
}

/// The mean of what is known.
pub fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let known: Vec<f64> = values.flatten().collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

/// Requests of a span, or some of them.
pub struct Part<'r> {
    samples: Vec<&'r Sample>,
    seconds: f64,
}

impl<'r> Part<'r> {
    pub fn of(&self, kind: Kind) -> Part<'r> {
        self.only(|sample| sample.kind == kind)
    }

    /// Of an elastic limit's user.
    pub fn of_user(&self, user: usize) -> Part<'r> {
        self.only(|sample| sample.kind == Kind::Elastic && sample.user == user)
    }

    fn only(&self, wanted: impl Fn(&Sample) -> bool) -> Part<'r> {
        Part {
            samples: self
                .samples
                .iter()
                .filter(|sample| wanted(sample))
                .copied()
                .collect(),
            seconds: self.seconds,
        }
    }

    /// Requests with this answer.
    pub fn with(&self, status: u16) -> f64 {
        let with = |sample: &&&Sample| sample.status == Some(status);
        self.samples.iter().filter(with).count() as f64
    }

    /// Requests a second that were served.
    pub fn rate(&self) -> f64 {
        self.with(200) / self.seconds
    }

    /// Per cent of all that were served.
    pub fn served(&self) -> f64 {
        100.0 * self.with(200) / (self.samples.len() as f64).max(1.0)
    }

    /// The milliseconds that this share of those that were let through did not exceed. One whose client has
    /// given up took as long as that.
    pub fn latency(&self, share: f64) -> Option<f64> {
        let through = |sample: &&&Sample| matches!(sample.status, Some(200) | None);
        let through = self.samples.iter().filter(through);
        let mut all: Vec<f64> = through.map(|sample| sample.took).collect();
        all.sort_by(f64::total_cmp);
        let last = all.len().checked_sub(1)?;
        Some(all[(last as f64 * share).round() as usize])
    }
}
