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

/// A renewal is early by at most a certificate's lifetime divided by this.
const MAX_EARLY_DIVISOR: u32 = 20;

const SECONDS_PER_DAY: u64 = 86_400;

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
                    let days = remaining.as_secs() / SECONDS_PER_DAY;
                    tracing::info!(names, days, "certificate issued");
                    failure_count = 0;
                    continue;
                }
                Err(error) => {
                    let delay = retry_delay(failure_count, error.is_refusal());
                    let delay = self.jitter.around(delay);
                    let seconds = delay.as_secs();
                    tracing::error!(names, why = %error, retry_in_seconds = seconds, "no new certificate");
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
        let result = tokio::time::timeout(ORDER_TIMEOUT, order).await;
        let pem = result.map_err(|_| Error::TimedOut)??;
        let certificate = storage::parse_certificate(&pem, self.clock.wall())?;
        if !storage::covers_names(&managed.settings, &certificate) {
            return Err(Error::OtherNames);
        }
        // The certificate would be due for renewal at once, and orders would follow each other without a pause.
        if renewal_due_at(&certificate) <= self.clock.wall() {
            return Err(Error::Expired);
        }
        if let Err(error) = storage::save_certificate(&managed.settings, &pem) {
            let names = managed.settings.names.join(", ");
            tracing::error!(names, why = %error, "new certificate in use but not saved; it will be lost at exit");
        }
        managed.issued.set_certificate(certificate.clone());
        Ok(certificate)
    }

    /// The time at which to renew a certificate, since the Unix epoch: after two thirds of its lifetime, or up to a
    /// twentieth of its lifetime earlier. The random part keeps gateways from renewing at the same time.
    fn renewal_time(&self, certificate: &Certificate) -> Duration {
        let max_early = lifetime(certificate) / MAX_EARLY_DIVISOR;
        renewal_due_at(certificate).saturating_sub(self.jitter.up_to(max_early))
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
    certificate.valid_from + lifetime(certificate) / 3 * 2
}

/// How long a certificate is valid in all.
fn lifetime(certificate: &Certificate) -> Duration {
    certificate
        .valid_until
        .saturating_sub(certificate.valid_from)
}

/// The delays between orders that fail in a row.
struct OrderBackoff {
    first_seconds: u64,
    /// Each delay is this many times the one before it.
    factor: u64,
    max_seconds: u64,
}

/// Five orders in the first hour, then fewer, up to one in six hours.
const REFUSED_BACKOFF: OrderBackoff = OrderBackoff {
    first_seconds: 60,
    factor: 3,
    max_seconds: 6 * 3600,
};

/// The first retry follows after a second. In a long outage there is an order every ten minutes.
const UNREACHABLE_BACKOFF: OrderBackoff = OrderBackoff {
    first_seconds: 1,
    factor: 2,
    max_seconds: 600,
};

/// The delay before the next order, after a failure and `earlier_failures` failures in a row before it.
///
/// A directory counts orders that it refuses, and often allows five an hour. A directory that could not be reached counts
/// none, so the next order may follow soon.
fn retry_delay(earlier_failures: u32, was_refused: bool) -> Duration {
    let backoff = if was_refused {
        REFUSED_BACKOFF
    } else {
        UNREACHABLE_BACKOFF
    };
    let factor = backoff.factor.saturating_pow(earlier_failures);
    let seconds = backoff.first_seconds.saturating_mul(factor);
    Duration::from_secs(seconds.min(backoff.max_seconds))
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
