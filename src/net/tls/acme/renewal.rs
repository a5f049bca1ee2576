//! Renewal of certificates, at two thirds of their lives. Failures are retried with growing pauses.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::error::Error;
use super::managed::ManagedCertificate;
use super::tokens::ChallengeTokens;
use super::{order, storage};
use crate::base::clock::Clock;
use crate::base::random::Chance;
use crate::base::telemetry::{Label, Metric, Registry};
use crate::net::Certificate;

/// How long one order may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// How often the clock is read while nothing is due: machines sleep, and clocks are set.
const CLOCK_CHECK: Duration = Duration::from_secs(600);

/// Renews certificates. All tasks share one.
pub struct Renewals {
    pub clock: Clock,
    pub registry: Registry,
    pub tokens: ChallengeTokens,
    pub chance: Chance,
    /// One order at a time.
    pub turn: tokio::sync::Mutex<()>,
}

impl Renewals {
    /// Orders and renews a certificate for as long as it is polled.
    pub async fn keep_renewed(self: Rc<Renewals>, managed: Arc<ManagedCertificate>) {
        let names = managed.settings.names.join(", ");
        let mut failures = 0;
        loop {
            if let Some(certificate) = managed.issued.certificate()
                && storage::covers(&managed.settings, &certificate)
            {
                self.wait_until(self.due(&certificate)).await;
            }
            let outcome = self.renew(&managed).await;
            self.count(&managed, outcome.is_ok());
            let pause = match outcome {
                Ok(certificate) => {
                    let (wall, until) = (self.clock.wall(), certificate.until);
                    let days = until.saturating_sub(wall).as_secs() / 86_400;
                    tracing::info!(names, days, "certificate issued");
                    failures = 0;
                    continue;
                }
                Err(why) => {
                    let pause = self.chance.around(pause(failures, why.is_refusal()));
                    let seconds = pause.as_secs();
                    tracing::error!(names, %why, retry_in_seconds = seconds, "no new certificate");
                    pause
                }
            };
            failures += 1;
            tokio::time::sleep(pause).await;
        }
    }

    async fn renew(&self, managed: &ManagedCertificate) -> Result<Certificate, Error> {
        let _turn = self.turn.lock().await;
        let order = order::order(&managed.settings, &managed.issued, &self.tokens);
        let text = tokio::time::timeout(PATIENCE, order).await;
        let text = text.map_err(|_| Error::Late)??;
        let certificate = storage::read(&text, self.clock.wall())?;
        if !storage::covers(&managed.settings, &certificate) {
            return Err(Error::OtherNames);
        }
        if two_thirds(&certificate) <= self.clock.wall() {
            return Err(Error::Expired);
        }
        if let Err(why) = storage::save(&managed.settings, &text) {
            let names = managed.settings.names.join(", ");
            tracing::error!(names, %why, "new certificate in use but not saved; it will be lost at exit");
        }
        // Handshakes show it from now on.
        managed.issued.put(certificate.clone());
        Ok(certificate)
    }

    fn due(&self, certificate: &Certificate) -> Duration {
        let life = certificate.until.saturating_sub(certificate.from);
        let early = self.chance.up_to(life / 20);
        two_thirds(certificate).saturating_sub(early)
    }

    async fn wait_until(&self, due: Duration) {
        loop {
            let left = due.saturating_sub(self.clock.wall());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(CLOCK_CHECK)).await;
        }
    }

    fn count(&self, managed: &ManagedCertificate, succeeded: bool) {
        let name = managed.settings.names.first().map_or("", String::as_str);
        let outcome = if succeeded { "ok" } else { "failed" };
        let labels = [(Label::Certificate, name), (Label::Outcome, outcome)];
        let counter = self.registry.counter(Metric::CertificateOrders, &labels);
        counter.increment(1);
    }
}

fn two_thirds(certificate: &Certificate) -> Duration {
    let life = certificate.until.saturating_sub(certificate.from);
    certificate.from + life / 3 * 2
}

/// How long to wait before the next order, after `failures` earlier ones. A directory that has refused allows five failures
/// an hour; one that cannot be reached is asked again soon.
fn pause(failures: u32, refused: bool) -> Duration {
    let (first, factor, most): (u64, u64, u64) = if refused {
        (60, 3, 6 * 3600)
    } else {
        (1, 2, 600)
    };
    let seconds = first.saturating_mul(factor.saturating_pow(failures));
    Duration::from_secs(seconds.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let seconds = |refused| [0, 1, 2, 3, 9, 64, u32::MAX].map(|n| pause(n, refused).as_secs());
        assert_eq!(seconds(false), [1, 2, 4, 8, 512, 600, 600]);
        assert_eq!(seconds(true), [60, 180, 540, 1620, 21600, 21600, 21600]);
    }
}
