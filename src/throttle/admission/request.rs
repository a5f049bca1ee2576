//! A request as limits see it: the client, the rules, the time and the upstream's pressure. It has no method, path or
//! header fields.

use std::sync::Arc;

use crate::base::clock::Nanos;
use crate::identity::{ClientIdentity, Identifier};
use crate::limit::Rule;
use crate::limit::pressure::Pressure;

/// A request, as far as its limits need to know it.
#[derive(Clone, Copy)]
pub struct AdmissionRequest<'a> {
    /// The rules of the limits that may apply.
    pub rules: &'a [Arc<Rule>],
    /// The identities of the client.
    pub client: &'a ClientIdentity,
    /// Hashes the client's identities to keys, and knows the multiplier of its plan.
    pub identifier: &'a Identifier,
    /// The time of the decision.
    pub now: Nanos,
    /// The pressure on the upstream, by which elastic limits lend. Without it they lend nothing.
    pub pressure: Option<&'a Pressure>,
    /// The units to reserve until the cost is known, as (index among `rules`, units). Limits that are not listed
    /// reserve what their rule says.
    pub reserved_units: &'a [(usize, u32)],
}
