//! What the layer needs to know of a request, of a refusal and of an error.

use std::sync::Arc;

use super::admission::{Admission, Ahead, Ask, Stake, Verdict};
use crate::base::clock::Clock;
use crate::limit::Rules;
use crate::limit::pressure::{Permit, Shed};
use crate::route::HeaderStyle;

/// A request that limits can be asked about.
pub trait Candidate: Sized {
    /// What the inner service gets.
    type Admitted;

    /// What is needed of it until its answer is there.
    type Basis: Basis;

    /// What limits need to know.
    fn ask(&self) -> Ask<'_>;

    /// What is known of it from others that asked the same.
    fn ahead(&self) -> Option<&Ahead> {
        None
    }

    /// Who decides.
    fn admission(&self) -> &Admission;

    /// What limits go by once the request itself is gone.
    fn basis(&self) -> Self::Basis;

    /// Which rate-limit headers the answer carries.
    fn header_style(&self) -> HeaderStyle {
        HeaderStyle::default()
    }

    /// Sees what was decided, admitted or not: for the record.
    fn note(&self, _verdict: &Verdict) {}

    /// Sees what hangs on its end, where something does.
    fn stakes(&self, _stake: Stake) {}

    /// Takes a place among the open requests of its upstream, where those are bounded by what it bears.
    fn enter(&self) -> Result<Option<Permit>, Shed> {
        Ok(None)
    }

    /// Its limits admit it, and it is shed.
    fn gives_way(&self, _shed: &Shed) {}

    /// The request as the inner service gets it, told which limits it exceeds, with its place.
    fn admitted(self, verdict: &Verdict, permit: Option<Permit>) -> Self::Admitted;
}

/// What limits go by; cheap to make, for every admitted request has one until its answer is there.
pub trait Basis {
    /// The limits that were asked.
    fn rules(&self) -> &Rules;

    /// The clock that they were asked by.
    fn clock(&self) -> &Clock;
}

impl<B: Basis> Basis for Arc<B> {
    fn rules(&self) -> &Rules {
        (**self).rules()
    }

    fn clock(&self) -> &Clock {
        (**self).clock()
    }
}

/// A request that a limit refused, or that its upstream has no room for.
#[derive(Debug)]
pub struct Denied<'v, R> {
    /// The request.
    pub request: R,
    /// What limits say.
    pub verdict: &'v Verdict,
    /// All limits admit it, but other requests matter more.
    pub shed: Option<Shed>,
}

/// What an error of the inner service means for what a request has reserved.
pub trait Failed {
    /// How the request ended; when nothing is known, the client's doing, the reservation counts.
    fn ended(&self) -> Ended {
        Ended::Unknown
    }
}

/// How a request without an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It never reached whom it was meant for.
    Unsent,
    /// The client gets this status in place of an answer.
    Answered(u16),
    /// Nobody can say.
    Unknown,
}
