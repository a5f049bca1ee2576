//! The thread that orders and renews certificates, and the set of certificates that a reload gives it. When an order is
//! due is decided in `renewal.rs`.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

use super::challenge_tokens::ChallengeTokens;
use super::managed_certificate::ManagedCertificate;
use super::renewal::Renewals;
use super::settings::Settings;
use super::storage;
use crate::base::clock::Clock;
use crate::base::random::Jitter;
use crate::base::telemetry::Registry;
use crate::net::IssuedCertificate;

/// Orders and renews the certificates of the process, on a thread of its own. The thread ends when the renewer is dropped.
pub struct CertificateRenewer {
    /// The certificates of the running configuration, and those that a reload is about to use.
    all_managed: Mutex<Vec<Arc<ManagedCertificate>>>,
    /// The thread that renews; `None` until there is a certificate to renew.
    thread: Mutex<Option<RenewalThread>>,
    clock: Clock,
    registry: Registry,
    tokens: ChallengeTokens,
    /// The seed of the renewals' [`Jitter`].
    seed: u64,
}

struct RenewalThread {
    /// Sends the thread all certificates that it renews from now on. Dropping the sender ends the thread.
    managed_sender: UnboundedSender<Vec<Arc<ManagedCertificate>>>,
    handle: JoinHandle<()>,
}

impl CertificateRenewer {
    /// Makes a renewer without certificates. `seed` spreads the renewals of several gateways over time.
    pub fn new(clock: Clock, registry: Registry, seed: u64) -> CertificateRenewer {
        CertificateRenewer {
            all_managed: Mutex::new(Vec::new()),
            thread: Mutex::new(None),
            clock,
            registry,
            tokens: ChallengeTokens::default(),
            seed,
        }
    }

    /// The open http-01 challenges, which listeners serve on connections without TLS.
    pub fn challenge_tokens(&self) -> ChallengeTokens {
        self.tokens.clone()
    }

    /// Returns the certificate with these settings: the one that is managed already, or else a stored one, or else one
    /// that is not issued yet. Logs a warning if handshakes fail until the directory has issued one. Call
    /// [`CertificateRenewer::renew_only`] afterwards.
    pub fn certificate(&self, settings: &Settings) -> Arc<ManagedCertificate> {
        let mut all_managed = self.all_managed.lock();
        let has_settings = |managed: &&Arc<ManagedCertificate>| managed.settings == *settings;
        if let Some(managed) = all_managed.iter().find(has_settings) {
            return managed.clone();
        }
        let issued = Arc::new(IssuedCertificate::new(settings.names.clone()));
        match storage::load_certificate(settings, self.clock.wall()) {
            Ok(Some(certificate)) => issued.set_certificate(certificate),
            Ok(None) => tracing::warn!(
                names = settings.names.join(", "),
                "no certificate yet; handshakes fail until the directory has issued one"
            ),
            Err(error) => tracing::warn!(
                names = settings.names.join(", "),
                why = %error,
                "the stored certificate cannot be used; handshakes fail until another is issued"
            ),
        }
        let settings = settings.clone();
        let managed = Arc::new(ManagedCertificate { settings, issued });
        all_managed.push(managed.clone());
        managed
    }

    /// Orders and renews these certificates from now on, and no others. They must come from
    /// [`CertificateRenewer::certificate`].
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started. If its runtime cannot be built, this is only logged, and nothing is renewed.
    pub fn renew_only(&self, wanted: Vec<Arc<ManagedCertificate>>) -> io::Result<()> {
        let mut all_managed = self.all_managed.lock();
        all_managed.retain(|old| wanted.iter().any(|new| Arc::ptr_eq(old, new)));
        let mut thread = self.thread.lock();
        if thread.is_none() && !all_managed.is_empty() {
            *thread = Some(self.spawn_thread()?);
        }
        if let Some(thread) = &*thread {
            // This fails only if the thread has ended: its runtime could not be built, or it panicked.
            let _ = thread.managed_sender.send(all_managed.clone());
        }
        Ok(())
    }

    /// Starts the thread, which renews nothing before it receives certificates.
    fn spawn_thread(&self) -> io::Result<RenewalThread> {
        let (managed_sender, managed_receiver) = unbounded_channel();
        let (clock, registry) = (self.clock.clone(), self.registry.clone());
        let (tokens, seed) = (self.tokens.clone(), self.seed);
        let runtime = || {
            Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
        };
        let run = move || match runtime() {
            Ok(runtime) => {
                let renewals = Renewals {
                    clock,
                    registry,
                    tokens,
                    jitter: Jitter::new(seed),
                    order_lock: tokio::sync::Mutex::new(()),
                };
                runtime.block_on(run_renewals(managed_receiver, Rc::new(renewals)));
                // A DNS lookup that still runs must not delay the end of the process.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "certificates cannot be renewed"),
        };
        let handle = thread::Builder::new().name("acme".into()).spawn(run)?;
        Ok(RenewalThread {
            managed_sender,
            handle,
        })
    }
}

impl Drop for CertificateRenewer {
    fn drop(&mut self) {
        if let Some(RenewalThread {
            managed_sender,
            handle,
        }) = self.thread.lock().take()
        {
            drop(managed_sender);
            if handle.join().is_err() {
                tracing::error!("the thread that renews certificates panicked");
            }
        }
    }
}

/// Runs a task for each of the certificates that were received last, until the sender is dropped.
async fn run_renewals(
    mut managed_receiver: UnboundedReceiver<Vec<Arc<ManagedCertificate>>>,
    renewals: Rc<Renewals>,
) {
    let mut tasks: Vec<(Arc<ManagedCertificate>, AbortHandle)> = Vec::new();
    while let Some(all_managed) = managed_receiver.recv().await {
        tasks.retain(|(renewed, task)| {
            let is_wanted = all_managed.iter().any(|other| Arc::ptr_eq(renewed, other));
            if !is_wanted {
                task.abort();
            }
            is_wanted
        });
        for managed in all_managed {
            if !tasks
                .iter()
                .any(|(renewed, _)| Arc::ptr_eq(renewed, &managed))
            {
                let task = renewals.clone().keep_renewed(managed.clone());
                let task = tokio::task::spawn_local(task).abort_handle();
                tasks.push((managed, task));
            }
        }
    }
}
