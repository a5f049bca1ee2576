//! Who asks, and when: Poisson arrivals of several sources, the same for the same seed.

use std::time::Duration;

use crate::draw::Draw;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Critical,
    Normal,
    Low,
    /// Under an elastic limit, or what stands in its place.
    Elastic,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Critical, Kind::Normal, Kind::Low, Kind::Elastic];

    /// The first part of its paths.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Critical => "critical",
            Kind::Normal => "normal",
            Kind::Low => "low",
            Kind::Elastic => "elastic",
        }
    }
}

/// Users that a source stands for.
#[derive(Clone, Copy, Debug)]
pub enum Users {
    /// Each request is from one of a thousand, each of these in a cohort of its own.
    Many,
    /// All are from the one with this number, who is on this plan.
    One(usize, &'static str),
}

/// Requests that arrive independently of each other and of all answers.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub kind: Kind,
    pub users: Users,
    /// Requests a second.
    pub rate: f64,
    /// Seconds before the first.
    pub from: f64,
}

impl Source {
    pub fn many(kind: Kind, rate: f64) -> Source {
        Source {
            kind,
            users: Users::Many,
            rate,
            from: 0.0,
        }
    }

    /// A user of an elastic limit.
    pub fn greedy(user: usize, plan: &'static str, rate: f64) -> Source {
        Source {
            kind: Kind::Elastic,
            users: Users::One(user, plan),
            rate,
            from: 0.0,
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// After the beginning.
    pub at: Duration,
    pub kind: Kind,
    pub user: usize,
    plan: Option<&'static str>,
}

impl Request {
    /// As it is sent.
    pub fn text(&self) -> String {
        let Request { kind, user, .. } = self;
        let plan = self.plan.map(|plan| format!("x-plan: {plan}\r\n"));
        format!(
            "GET /{0}/ HTTP/1.1\r\nhost: test\r\nx-user: {0}-{user}\r\n{1}\r\n",
            kind.as_str(),
            plan.unwrap_or_default()
        )
    }
}

/// What all sources ask in so many seconds, in the order of time.
pub fn requests(sources: &[Source], seconds: f64, seed: u64) -> Vec<Request> {
    let mut all = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        // A source's requests do not change with the number of others.
        let mut draw = Draw::new(seed << 16 | number as u64);
        let gap = 1.0 / source.rate;
        let mut at = source.from + draw.gap(gap);
        while at < seconds {
            let (user, plan) = match source.users {
                Users::Many => (draw.below(1_000) as usize, None),
                Users::One(user, plan) => (user, Some(plan)),
            };
            all.push(Request {
                at: Duration::from_secs_f64(at),
                kind: source.kind,
                user,
                plan,
            });
            at += draw.gap(gap);
        }
    }
    all.sort_by_key(|request| request.at);
    all
}
