//! Certificates from a directory that speaks ACME (RFC 8555), asked for and renewed on a thread of its own.
//! Nothing that fails here stops the gateway or keeps a request waiting.
//!
//! | file | what it is |
//! |---|---|
//! | `client` | the directory's HTTPS, without anything but what ACME needs |
//! | `order` | one certificate: account, proofs, order |
//! | `renewal` | when the next one is due, and how long a failure waits |
//! | `storage` | what outlives the process |

mod client;
mod order;
mod renewal;
mod storage;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Mutex, RwLock};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

pub use order::Error;

use crate::base::clock::Clock;
use crate::base::random::Chance;
use crate::base::telemetry::Registry;
use crate::net::{Issued, Roots};

/// One certificate that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The URL of the directory.
    pub directory: String,
    /// Whom to believe that the directory is who it says.
    pub roots: Roots,
    /// The host names that the certificate is for, in lower case; at least one.
    pub names: Vec<String>,
    /// Where the directory may write to: an email address.
    pub contact: Option<String>,
    /// The folder of what is kept.
    pub dir: PathBuf,
    /// How the names are proven to be the gateway's.
    pub challenge: Challenge,
}

/// How a name is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// In a handshake at port 443, RFC 8737.
    TlsAlpn01,
    /// By an answer at port 80, RFC 8555 section 8.3.
    Http01,
}

impl Challenge {
    /// As the directory and the files call it.
    pub fn name(self) -> &'static str {
        match self {
            Challenge::TlsAlpn01 => "tls-alpn-01",
            Challenge::Http01 => "http-01",
        }
    }
}

/// A certificate that is wanted, and the one that there is.
#[derive(Debug)]
pub struct Wanted {
    /// What is wanted.
    pub settings: Settings,
    /// What there is.
    pub issued: Arc<Issued>,
}

/// The answers of open http-01 challenges by their token; at most one for each name that is wanted.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Arc<RwLock<HashMap<String, String>>>);

/// Where the answers are found.
const WELL_KNOWN: &str = "/.well-known/acme-challenge/";

impl Tokens {
    /// The answer to a request for this path, while its challenge is open.
    pub fn answer(&self, path: &str) -> Option<String> {
        let token = path.strip_prefix(WELL_KNOWN)?;
        self.0.read().get(token).cloned()
    }

    fn open(&self, token: &str, answer: &str) {
        self.0.write().insert(token.to_owned(), answer.to_owned());
    }

    fn close(&self, token: &str) {
        self.0.write().remove(token);
    }
}

/// Looks after all certificates of the process.
pub struct Acme {
    known: Mutex<Vec<Arc<Wanted>>>,
    thread: Mutex<Option<Thread>>,
    clock: Clock,
    registry: Registry,
    tokens: Tokens,
    seed: u64,
}

struct Thread {
    follow: UnboundedSender<Vec<Arc<Wanted>>>,
    ended: JoinHandle<()>,
}

impl Acme {
    /// Nothing is wanted yet. `seed` spreads what several gateways do over time.
    pub fn new(clock: Clock, registry: Registry, seed: u64) -> Acme {
        Acme {
            known: Mutex::new(Vec::new()),
            thread: Mutex::new(None),
            clock,
            registry,
            tokens: Tokens::default(),
            seed,
        }
    }

    /// The answers of open challenges.
    pub fn tokens(&self) -> Tokens {
        self.tokens.clone()
    }

    /// What there is for `settings`: as before, or from the folder. Call [`Acme::follow`] afterwards.
    pub fn wanted(&self, settings: &Settings) -> Arc<Wanted> {
        let mut known = self.known.lock();
        if let Some(same) = known.iter().find(|known| known.settings == *settings) {
            return same.clone();
        }
        let issued = Arc::new(Issued::new(settings.names.clone()));
        match storage::load(settings, self.clock.wall()) {
            Ok(Some(certificate)) => issued.put(certificate),
            Ok(None) => tracing::warn!(
                names = settings.names.join(", "),
                "there is no certificate yet; handshakes fail until the directory has issued it"
            ),
            Err(why) => tracing::warn!(
                names = settings.names.join(", "),
                %why,
                "the stored certificate is of no use; handshakes fail until there is another"
            ),
        }
        let settings = settings.clone();
        let wanted = Arc::new(Wanted { settings, issued });
        known.push(wanted.clone());
        wanted
    }

    /// From now on looks after these and no others.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn follow(&self, wanted: Vec<Arc<Wanted>>) -> io::Result<()> {
        let mut known = self.known.lock();
        known.retain(|known| wanted.iter().any(|wanted| Arc::ptr_eq(known, wanted)));
        let mut thread = self.thread.lock();
        if thread.is_none() && !known.is_empty() {
            *thread = Some(self.spawn()?);
        }
        if let Some(thread) = &*thread {
            // It ends with this only.
            let _ = thread.follow.send(known.clone());
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
                let keeper = renewal::Keeper {
                    clock,
                    registry,
                    tokens,
                    chance: Chance::new(seed),
                    turn: tokio::sync::Mutex::new(()),
                };
                runtime.block_on(run(inbox, Rc::new(keeper)));
                // A name that is being looked up must not hold the end up.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "certificates cannot be renewed"),
        };
        let ended = thread::Builder::new().name("acme".into()).spawn(work)?;
        Ok(Thread { follow, ended })
    }
}

impl Drop for Acme {
    fn drop(&mut self) {
        if let Some(Thread { follow, ended }) = self.thread.lock().take() {
            drop(follow);
            if ended.join().is_err() {
                tracing::error!("the thread that renews certificates panicked");
            }
        }
    }
}

async fn run(mut inbox: UnboundedReceiver<Vec<Arc<Wanted>>>, keeper: Rc<renewal::Keeper>) {
    let mut tasks: Vec<(Arc<Wanted>, AbortHandle)> = Vec::new();
    while let Some(wanted) = inbox.recv().await {
        tasks.retain(|(kept, task)| {
            let stays = wanted.iter().any(|wanted| Arc::ptr_eq(kept, wanted));
            if !stays {
                task.abort();
            }
            stays
        });
        for wanted in wanted {
            if !tasks.iter().any(|(kept, _)| Arc::ptr_eq(kept, &wanted)) {
                let task = keeper.clone().keep(wanted.clone());
                let task = tokio::task::spawn_local(task).abort_handle();
                tasks.push((wanted, task));
            }
        }
    }
}
