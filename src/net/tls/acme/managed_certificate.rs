//! A certificate that the gateway orders and renews by itself, shared by handshakes and by the thread that renews it.

use std::sync::Arc;

use super::settings::Settings;
use crate::net::IssuedCertificate;

/// One such certificate. Its settings never change: a reload with other settings makes another one.
#[derive(Debug)]
pub struct ManagedCertificate {
    /// The settings of its orders.
    pub settings: Settings,
    /// The certificate that was issued last, if any. The gateway presents it in handshakes.
    pub issued: Arc<IssuedCertificate>,
}
