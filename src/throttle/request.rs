//! The traits by which the layer asks a request for its limits, and an error of the inner service for its cause. Any
//! service can implement them; the gateway does so in `serve/stack/`.

use std::sync::Arc;

use super::admission::{Admission, AdmissionRequest, Holdings, PreparedDecision, Verdict};
use crate::base::clock::Clock;
use crate::limit::Rules;
use crate::limit::pressure::{Shed, UpstreamSlot};
use crate::route::HeaderStyle;

/// A request that the layer can decide about.
pub trait ThrottledRequest: DecisionObserver + Sized {
    /// The request as the inner service gets it.
    type Admitted;

    /// The limits of the request, kept for its settlement.
    type Limits: AppliedLimits;

    /// The request as its limits see it.
    fn admission_request(&self) -> AdmissionRequest<'_>;

    /// The decision that earlier requests of the same client have prepared for this one, if any.
    fn prepared(&self) -> Option<&PreparedDecision> {
        None
    }

    /// The admission that decides.
    fn admission(&self) -> &Admission;

    /// The limits of the request, for its settlement.
    fn limits(&self) -> Self::Limits;

    /// Which rate-limit headers the response carries.
    fn header_style(&self) -> HeaderStyle {
        HeaderStyle::default()
    }

    /// Takes a slot of the upstream, where the upstream's pressure bounds its open requests.
    ///
    /// # Errors
    ///
    /// The upstream has no room for a request of this class.
    fn take_slot(&self) -> Result<Option<UpstreamSlot>, Shed> {
        Ok(None)
    }

    /// Turns the request into what the inner service gets. `verdict` names the limits that the request exceeds. The
    /// result must hold `slot` for as long as the request is open.
    fn into_admitted(self, verdict: &Verdict, slot: Option<UpstreamSlot>) -> Self::Admitted;
}

/// Observes what the layer decides about a request, for logs and metrics. Each method does nothing by default.
pub trait DecisionObserver {
    /// Called when the limits have decided, whether they admit the request or not.
    fn on_verdict(&self, _verdict: &Verdict) {}

    /// Called for an admitted request that holds permits or reservations until its end.
    fn on_holdings(&self, _holdings: Holdings) {}

    /// Called when the limits admit the request, but it is shed.
    fn on_shed(&self, _shed: &Shed) {}
}

/// The limits that were applied to a request. Every admitted request keeps a value of this until its response is there,
/// so it must be cheap to make.
pub trait AppliedLimits {
    /// The rules that the verdict is about.
    fn rules(&self) -> &Rules;

    /// The clock that the decision was made by.
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
    /// The request.
    pub request: R,
    /// What the limits of the request say.
    pub verdict: &'v Verdict,
    /// Set if all limits admit the request, but its upstream has no room for it.
    pub shed: Option<Shed>,
}

/// An error of the inner service. It decides how many of the reserved units count.
pub trait FailedRequest {
    /// How the request ended. [`RequestEnd::Unknown`] by default, for instance where the client has left: then
    /// reservations count in full.
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
