//! Decides when each certificate is ordered: at two thirds of its life, or a little earlier. After a failure it waits
//! before the next order, longer each time, up to ten minutes or six hours. `renewer.rs` runs this on its thread.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::challenge_tokens::ChallengeTokens;
use super::error::Error;
use super::managed_certificate::ManagedCertificate;
use super::{order, storage};
use crate::base::clock::Clock;
use crate::base::random::Jitter;
use crate::base::telemetry::{Label, Metric, Registry};
use crate::net::Certificate;

/// The longest time that one order may take. Meanwhile the orders of other certificates wait.
const ORDER_TIMEOUT: Duration = Duration::from_secs(600);

/// The time between two readings of the clock while no renewal is due. Timers do not notice if the machine was
/// suspended or its clock was set.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(600);

/// What the renewals of all certificates share. Each certificate has a task of its own, on one thread.
pub struct Renewals {
    /// The clock by which a renewal is due.
    pub clock: Clock,
    /// Counts orders by their outcome.
    pub registry: Registry,
    /// Serves the proofs of http-01 challenges.
    pub tokens: ChallengeTokens,
    /// Spreads renewals and retries over time.
    pub jitter: Jitter,
    /// Held during an order, so that there is one order at a time.
    pub order_lock: tokio::sync::Mutex<()>,
}

impl Renewals {
    /// Orders and renews a certificate. Never returns; the caller aborts the task to stop.
    pub async fn keep_renewed(self: Rc<Renewals>, managed: Arc<ManagedCertificate>) {
        let names = managed.settings.names.join(", ");
        let mut failure_count = 0;
        loop {
            if let Some(certificate) = managed.issued.certificate()
                && storage::covers_names(&managed.settings, &certificate)
            {
                self.wait_until(self.renewal_time(&certificate)).await;
            }
            let outcome = self.renew_once(&managed).await;
            self.count_order(&managed, outcome.is_ok());
            let delay = match outcome {
                Ok(certificate) => {
                    let remaining = certificate.valid_until.saturating_sub(self.clock.wall());
                    let days = remaining.as_secs() / 86_400;
                    tracing::info!(names, days, "certificate issued");
                    failure_count = 0;
                    continue;
                }
                Err(why) => {
                    let delay = retry_delay(failure_count, why.is_refusal());
                    let delay = self.jitter.around(delay);
                    let seconds = delay.as_secs();
                    tracing::error!(names, %why, retry_in_seconds = seconds, "no new certificate");
                    delay
                }
            };
            failure_count += 1;
            tokio::time::sleep(delay).await;
        }
    }

    /// Orders a certificate, checks and saves it, and shows it in handshakes. One that cannot be saved is shown all the
    /// same.
    async fn renew_once(&self, managed: &ManagedCertificate) -> Result<Certificate, Error> {
        let _lock = self.order_lock.lock().await;
        let order = order::order_certificate(&managed.settings, &managed.issued, &self.tokens);
        let pem = tokio::time::timeout(ORDER_TIMEOUT, order).await;
        let pem = pem.map_err(|_| Error::TimedOut)??;
        let certificate = storage::parse_certificate(&pem, self.clock.wall())?;
        if !storage::covers_names(&managed.settings, &certificate) {
            return Err(Error::OtherNames);
        }
        // The certificate would be due for renewal at once, and orders would follow each other without a pause.
        if renewal_due_at(&certificate) <= self.clock.wall() {
            return Err(Error::Expired);
        }
        if let Err(why) = storage::save_certificate(&managed.settings, &pem) {
            let names = managed.settings.names.join(", ");
            tracing::error!(names, %why, "new certificate in use but not saved; it will be lost at exit");
        }
        managed.issued.set_certificate(certificate.clone());
        Ok(certificate)
    }

    /// The time at which to renew a certificate, since the Unix epoch: after two thirds of its lifetime, or up to a
    /// twentieth of its lifetime earlier. The random part keeps gateways from renewing at the same time.
    fn renewal_time(&self, certificate: &Certificate) -> Duration {
        let life = certificate
            .valid_until
            .saturating_sub(certificate.valid_from);
        let early = self.jitter.up_to(life / 20);
        renewal_due_at(certificate).saturating_sub(early)
    }

    /// Waits until a time since the Unix epoch.
    async fn wait_until(&self, time: Duration) {
        loop {
            let remaining = time.saturating_sub(self.clock.wall());
            if remaining.is_zero() {
                return;
            }
            tokio::time::sleep(remaining.min(CLOCK_CHECK_INTERVAL)).await;
        }
    }

    fn count_order(&self, managed: &ManagedCertificate, has_succeeded: bool) {
        let name = managed.settings.names.first().map_or("", String::as_str);
        let outcome = if has_succeeded { "ok" } else { "failed" };
        let labels = [(Label::Certificate, name), (Label::Outcome, outcome)];
        let counter = self.registry.counter(Metric::CertificateOrders, &labels);
        counter.increment(1);
    }
}

/// The time at which two thirds of a certificate's lifetime are over, since the Unix epoch.
fn renewal_due_at(certificate: &Certificate) -> Duration {
    let life = certificate
        .valid_until
        .saturating_sub(certificate.valid_from);
    certificate.valid_from + life / 3 * 2
}

/// The delay before the next order, after a failure and `earlier_failures` failures in a row before it.
///
/// A directory counts orders that it refuses, and often allows five an hour. A directory that could not be reached counts
/// none, so the next order may follow soon.
fn retry_delay(earlier_failures: u32, was_refused: bool) -> Duration {
    let (first_seconds, factor, max_seconds): (u64, u64, u64) = if was_refused {
        (60, 3, 6 * 3600)
    } else {
        (1, 2, 600)
    };
    let seconds = first_seconds.saturating_mul(factor.saturating_pow(earlier_failures));
    Duration::from_secs(seconds.min(max_seconds))
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
