//! A request as limits see it: the client, the rules, the time, the upstream's pressure and the units to take. It has no
//! method, path or header fields.

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
    /// Hashes the client's identities to keys, finds the overrides of keys, and knows the multiplier of the client's plan.
    pub identifier: &'a Identifier,
    /// The time of the decision.
    pub now: Nanos,
    /// The pressure on the upstream, by which elastic limits lend. Without it they lend nothing.
    pub pressure: Option<&'a Pressure>,
    /// The units to take at admission, as (index among `rules`, units): those to reserve until the cost is known, or
    /// the cost. Limits that are not listed take what their rule says.
    pub reserved_units: &'a [(usize, u32)],
}
