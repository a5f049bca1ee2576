//! The thread that orders and renews certificates, and the certificates that it is to keep.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

use super::managed::ManagedCertificate;
use super::renewal::Renewals;
use super::settings::Settings;
use super::storage;
use super::tokens::ChallengeTokens;
use crate::base::clock::Clock;
use crate::base::random::Chance;
use crate::base::telemetry::Registry;
use crate::net::Issued;

/// Orders and renews all certificates of the process, on a thread of its own.
pub struct CertificateManager {
    managed: Mutex<Vec<Arc<ManagedCertificate>>>,
    thread: Mutex<Option<Thread>>,
    clock: Clock,
    registry: Registry,
    tokens: ChallengeTokens,
    seed: u64,
}

struct Thread {
    follow: UnboundedSender<Vec<Arc<ManagedCertificate>>>,
    ended: JoinHandle<()>,
}

impl CertificateManager {
    /// A manager without certificates. `seed` spreads the renewals of several gateways over time.
    pub fn new(clock: Clock, registry: Registry, seed: u64) -> CertificateManager {
        CertificateManager {
            managed: Mutex::new(Vec::new()),
            thread: Mutex::new(None),
            clock,
            registry,
            tokens: ChallengeTokens::default(),
            seed,
        }
    }

    /// The open http-01 challenges.
    pub fn tokens(&self) -> ChallengeTokens {
        self.tokens.clone()
    }

    /// The certificate for `settings`: one that is managed already, or a stored one. Call [`CertificateManager::follow`]
    /// afterwards.
    pub fn certificate(&self, settings: &Settings) -> Arc<ManagedCertificate> {
        let mut all = self.managed.lock();
        if let Some(same) = all.iter().find(|other| other.settings == *settings) {
            return same.clone();
        }
        let issued = Arc::new(Issued::new(settings.names.clone()));
        match storage::load(settings, self.clock.wall()) {
            Ok(Some(certificate)) => issued.put(certificate),
            Ok(None) => tracing::warn!(
                names = settings.names.join(", "),
                "no certificate yet; handshakes fail until the directory has issued one"
            ),
            Err(why) => tracing::warn!(
                names = settings.names.join(", "),
                %why,
                "the stored certificate cannot be used; handshakes fail until another is issued"
            ),
        }
        let settings = settings.clone();
        let managed = Arc::new(ManagedCertificate { settings, issued });
        all.push(managed.clone());
        managed
    }

    /// Orders and renews these certificates from now on, and no others.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn follow(&self, certificates: Vec<Arc<ManagedCertificate>>) -> io::Result<()> {
        let mut managed = self.managed.lock();
        managed.retain(|own| certificates.iter().any(|other| Arc::ptr_eq(own, other)));
        let mut thread = self.thread.lock();
        if thread.is_none() && !managed.is_empty() {
            *thread = Some(self.spawn()?);
        }
        if let Some(thread) = &*thread {
            // The thread ends only when this sender is dropped.
            let _ = thread.follow.send(managed.clone());
        }
        Ok(())
    }

    fn spawn(&self) -> io::Result<Thread> {
        let (follow, inbox) = unbounded_channel();
        let (clock, registry) = (self.clock.clone(), self.registry.clone());
        let (tokens, seed) = (self.tokens.clone(), self.seed);
        let runtime = || {
            Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
        };
        let work = move || match runtime() {
            Ok(runtime) => {
                let renewals = Renewals {
                    clock,
                    registry,
                    tokens,
                    chance: Chance::new(seed),
                    turn: tokio::sync::Mutex::new(()),
                };
                runtime.block_on(run(inbox, Rc::new(renewals)));
                // A name that is still being looked up must not delay the end of the process.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "certificates cannot be renewed"),
        };
        let ended = thread::Builder::new().name("acme".into()).spawn(work)?;
        Ok(Thread { follow, ended })
    }
}

impl Drop for CertificateManager {
    fn drop(&mut self) {
        if let Some(Thread { follow, ended }) = self.thread.lock().take() {
            drop(follow);
            if ended.join().is_err() {
                tracing::error!("the thread that renews certificates panicked");
            }
        }
    }
}

async fn run(mut inbox: UnboundedReceiver<Vec<Arc<ManagedCertificate>>>, renewals: Rc<Renewals>) {
    let mut tasks: Vec<(Arc<ManagedCertificate>, AbortHandle)> = Vec::new();
    while let Some(certificates) = inbox.recv().await {
        tasks.retain(|(kept, task)| {
            let stays = certificates.iter().any(|other| Arc::ptr_eq(kept, other));
            if !stays {
                task.abort();
            }
            stays
        });
        for certificate in certificates {
            if !tasks
                .iter()
                .any(|(kept, _)| Arc::ptr_eq(kept, &certificate))
            {
                let task = renewals.clone().keep_renewed(certificate.clone());
                let task = tokio::task::spawn_local(task).abort_handle();
                tasks.push((certificate, task));
            }
        }
    }
}
