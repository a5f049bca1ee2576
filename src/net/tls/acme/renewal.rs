//! Renews each certificate at two thirds of its life. After a failure it waits, longer each time.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::error::Error;
use super::managed::ManagedCertificate;
use super::tokens::ChallengeTokens;
use super::{order, storage};
use crate::base::clock::Clock;
use crate::base::random::Jitter;
use crate::base::telemetry::{Label, Metric, Registry};
use crate::net::Certificate;

/// The longest time for one order.
const ORDER_TIMEOUT: Duration = Duration::from_secs(600);

/// The time between two readings of the clock while no renewal is due. A machine may sleep meanwhile, or its clock be
/// set.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(600);

/// What the renewal of all certificates shares.
pub struct Renewals {
    pub clock: Clock,
    pub registry: Registry,
    pub tokens: ChallengeTokens,
    pub jitter: Jitter,
    /// Held during an order, so that there is one at a time.
    pub order_lock: tokio::sync::Mutex<()>,
}

impl Renewals {
    /// Orders and renews a certificate. Never returns; the caller aborts the task to stop.
    pub async fn keep_renewed(self: Rc<Renewals>, managed: Arc<ManagedCertificate>) {
        let names = managed.settings.names.join(", ");
        let mut failures = 0;
        loop {
            if let Some(certificate) = managed.issued.certificate()
                && storage::covers_names(&managed.settings, &certificate)
            {
                self.wait_until(self.renewal_time(&certificate)).await;
            }
            let outcome = self.renew(&managed).await;
            self.count_order(&managed, outcome.is_ok());
            let delay = match outcome {
                Ok(certificate) => {
                    let (wall, until) = (self.clock.wall(), certificate.until);
                    let days = until.saturating_sub(wall).as_secs() / 86_400;
                    tracing::info!(names, days, "certificate issued");
                    failures = 0;
                    continue;
                }
                Err(why) => {
                    let delay = retry_delay(failures, why.is_refusal());
                    let delay = self.jitter.around(delay);
                    let seconds = delay.as_secs();
                    tracing::error!(names, %why, retry_in_seconds = seconds, "no new certificate");
                    delay
                }
            };
            failures += 1;
            tokio::time::sleep(delay).await;
        }
    }

    /// Orders a certificate, checks and saves it, and shows it in handshakes.
    async fn renew(&self, managed: &ManagedCertificate) -> Result<Certificate, Error> {
        let _lock = self.order_lock.lock().await;
        let order = order::order_certificate(&managed.settings, &managed.issued, &self.tokens);
        let text = tokio::time::timeout(ORDER_TIMEOUT, order).await;
        let text = text.map_err(|_| Error::TimedOut)??;
        let certificate = storage::parse_certificate(&text, self.clock.wall())?;
        if !storage::covers_names(&managed.settings, &certificate) {
            return Err(Error::OtherNames);
        }
        // It would be due for renewal at once, and orders would follow each other without a pause.
        if two_thirds(&certificate) <= self.clock.wall() {
            return Err(Error::Expired);
        }
        if let Err(why) = storage::save_certificate(&managed.settings, &text) {
            let names = managed.settings.names.join(", ");
            tracing::error!(names, %why, "new certificate in use but not saved; it will be lost at exit");
        }
        managed.issued.set_certificate(certificate.clone());
        Ok(certificate)
    }

    /// When to renew a certificate: at two thirds of its life, or up to a twentieth earlier to spread the load of
    /// directories.
    fn renewal_time(&self, certificate: &Certificate) -> Duration {
        let life = certificate.until.saturating_sub(certificate.from);
        let early = self.jitter.up_to(life / 20);
        two_thirds(certificate).saturating_sub(early)
    }

    async fn wait_until(&self, wall: Duration) {
        loop {
            let remaining = wall.saturating_sub(self.clock.wall());
            if remaining.is_zero() {
                return;
            }
            tokio::time::sleep(remaining.min(CLOCK_CHECK_INTERVAL)).await;
        }
    }

    fn count_order(&self, managed: &ManagedCertificate, succeeded: bool) {
        let name = managed.settings.names.first().map_or("", String::as_str);
        let outcome = if succeeded { "ok" } else { "failed" };
        let labels = [(Label::Certificate, name), (Label::Outcome, outcome)];
        let counter = self.registry.counter(Metric::CertificateOrders, &labels);
        counter.increment(1);
    }
}

/// The time at which two thirds of a certificate's life are over.
fn two_thirds(certificate: &Certificate) -> Duration {
    let life = certificate.until.saturating_sub(certificate.from);
    certificate.from + life / 3 * 2
}

/// The delay before the next order, after a failure and `failures` ones before it.
///
/// A directory counts orders that it refuses, and often allows five an hour. One that could not be reached counts none,
/// so the next order may follow soon.
fn retry_delay(failures: u32, was_refused: bool) -> Duration {
    let (first, factor, max): (u64, u64, u64) = if was_refused {
        (60, 3, 6 * 3600)
    } else {
        (1, 2, 600)
    };
    let seconds = first.saturating_mul(factor.saturating_pow(failures));
    Duration::from_secs(seconds.min(max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let seconds = |was_refused| {
            [0, 1, 2, 3, 9, 64, u32::MAX].map(|n| retry_delay(n, was_refused).as_secs())
        };
        assert_eq!(seconds(false), [1, 2, 4, 8, 512, 600, 600]);
        assert_eq!(seconds(true), [60, 180, 540, 1620, 21600, 21600, 21600]);
    }
}
