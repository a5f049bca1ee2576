//! The settings of the collector, as the policy compiler builds them. The compiler has checked them; nothing is checked
//! here.

use std::fmt;

use http::Uri;

use super::sample_rate::SampleRate;
use crate::net::Roots;

/// Where spans are sent, and which requests have some.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// The address: `http` or `https`, with a host and a path.
    pub url: Uri,
    /// The address for people, in which placeholders are not replaced by secrets.
    pub display_url: String,
    /// The share of requests that are sampled, unless a trusted proxy has decided.
    pub sample: SampleRate,
    /// The attribute `service.name` of all spans.
    pub service: String,
    /// The bearer token of each request; `None` if requests carry none.
    pub token: Option<String>,
    /// The roots that the certificate of the collector must chain to; `None` for those of the system.
    pub roots: Option<Roots>,
}

impl Settings {
    /// The name of the service if the gateway file gives none.
    pub const DEFAULT_SERVICE: &str = "tollgate";

    /// Whether `other` differs only in what a reload may change: the share of requests, the token and the roots.
    pub fn is_same_destination(&self, other: &Settings) -> bool {
        (&self.url, &self.service) == (&other.url, &other.service)
    }
}

// The token is left out because it is secret.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of requests to {}", self.sample, self.display_url)
    }
}
