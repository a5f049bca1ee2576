//! What a decision leaves to its caller: a verdict and a ticket, at once or once the shared store has replied. Nothing
//! here decides.

use std::pin::Pin;

use super::ticket::Ticket;
use super::verdict::Verdict;

/// The decision about a request. The caller makes an empty one and admission fills it in, because a returned value
/// would be copied.
#[derive(Debug, Default)]
pub struct AdmissionOutcome {
    /// What all limits say.
    pub verdict: Verdict,
    /// What the request holds of its limits.
    pub ticket: Ticket,
}

/// A decision that waits for a shared store, at most for as long as the store's budget.
pub type PendingDecision = Pin<Box<dyn Future<Output = (Verdict, Ticket)> + Send>>;
