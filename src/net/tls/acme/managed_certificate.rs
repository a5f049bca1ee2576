//! A certificate that the gateway orders and renews by itself, shared by handshakes and by the thread that renews it.

use std::sync::Arc;

use super::settings::Settings;
use crate::net::IssuedCertificate;

/// A certificate that the gateway orders and renews, with its settings.
#[derive(Debug)]
pub struct ManagedCertificate {
    /// The settings of its orders.
    pub settings: Settings,
    /// The certificate that was issued last, which handshakes show.
    pub issued: Arc<IssuedCertificate>,
}
