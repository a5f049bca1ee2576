//! The traits by which the layer reads a request's limits, reports its decision, and learns from an error how the request
//! ended. The gateway implements them in `serve/stack/`.

use std::sync::Arc;

use super::admission::{Admission, AdmissionRequest, Holdings, PreparedDecision, Verdict};
use crate::base::clock::Clock;
use crate::limit::pressure::{Shed, UpstreamSlot};
use crate::limit::{HeaderStyle, Rules};

/// A request that the layer can decide about.
pub trait ThrottledRequest: DecisionObserver + Sized {
    /// The request as the inner service gets it.
    type Admitted;

    /// The limits of the request, kept for its settlement.
    type Limits: AppliedLimits;

    /// The request as its limits see it.
    fn admission_request(&self) -> AdmissionRequest<'_>;

    /// The decision that earlier requests of the same client have prepared for this one. `None` by default, and where
    /// nothing is prepared.
    fn prepared(&self) -> Option<&PreparedDecision> {
        None
    }

    /// The admission that decides.
    fn admission(&self) -> &Admission;

    /// The limits of the request, for its settlement.
    fn limits(&self) -> Self::Limits;

    /// Which rate-limit headers the response carries; those of [`HeaderStyle::default`] by default.
    fn header_style(&self) -> HeaderStyle {
        HeaderStyle::default()
    }

    /// Takes a slot of the upstream. `None` by default, and where no pressure bounds the upstream's open requests.
    ///
    /// # Errors
    ///
    /// The upstream has no room for a request of this priority.
    fn take_slot(&self) -> Result<Option<UpstreamSlot>, Shed> {
        Ok(None)
    }

    /// Turns the request into what the inner service gets. `verdict` names the limits that the request exceeds. The
    /// result must hold `slot` for as long as the request is open.
    fn into_admitted(self, verdict: &Verdict, slot: Option<UpstreamSlot>) -> Self::Admitted;
}

/// Observes what the layer decides about a request, for logs and metrics. Each method does nothing by default.
pub trait DecisionObserver {
    /// Called when the limits have decided, whether they admit the request or not. If the upstream has no room for the
    /// request, this is called only if the limits refuse it too.
    fn on_verdict(&self, _verdict: &Verdict) {}

    /// Called for an admitted request that holds permits or reservations until its end.
    fn on_holdings(&self, _holdings: Holdings) {}

    /// Called when the limits would admit the request, but its upstream has no room for it.
    fn on_shed(&self, _shed: &Shed) {}
}

/// The limits that were applied to a request. Every admitted request keeps a value of this until its response is there,
/// so it must be cheap to make.
pub trait AppliedLimits {
    /// The rules that the verdict is about.
    fn rules(&self) -> &Rules;

    /// The clock that gives the time of the settlement.
    fn clock(&self) -> &Clock;
}

impl<L: AppliedLimits> AppliedLimits for Arc<L> {
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
    /// The request, as the layer got it.
    pub request: R,
    /// What the limits of the request say.
    pub verdict: &'v Verdict,
    /// Set if all limits admit the request, but its upstream has no room for it.
    pub shed: Option<Shed>,
}

/// An error of the inner service. It decides how many of the reserved units count.
pub trait FailedRequest {
    /// How the request ended. [`RequestEnd::Unknown`] by default, for instance where the client has left. Then
    /// reservations count in full, but limits on bytes count those that have passed.
    fn end(&self) -> RequestEnd {
        RequestEnd::Unknown
    }
}

/// How a request ended for which the inner service returned an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// The request never reached the upstream, so it uses nothing.
    Unsent,
    /// The client gets a response with this status from the gateway.
    Status(u16),
    /// The request may have used all that it has reserved.
    Unknown,
}
