//! A certificate that the gateway orders and renews by itself.

use std::sync::Arc;

use super::settings::Settings;
use crate::net::Issued;

/// A certificate that is ordered and renewed, and the one that is shown now.
#[derive(Debug)]
pub struct ManagedCertificate {
    /// What it is ordered with.
    pub settings: Settings,
    /// The certificate that was issued last.
    pub issued: Arc<Issued>,
}
