//! The thread that pushes, with a task for each destination.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;

use super::destination::{Destination, DestinationStatus, PushContext};
use super::outage_log::OutageLog;
use super::sender::Sender;
use super::settings::Settings;

/// How long a process that ends goes on sending.
const LAST: Duration = Duration::from_secs(2);
/// How often the thread looks whether another process has released the lock.
const LOOK: Duration = Duration::from_millis(500);
/// How long to wait before a sender that panicked is started again.
const RESTART: Duration = Duration::from_secs(1);

/// The thread that pushes.
pub struct Pusher {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
    destinations: Vec<Arc<Destination>>,
}

impl Pusher {
    /// Starts the thread.
    pub fn start(context: PushContext) -> io::Result<Pusher> {
        let (stop, stopped) = watch::channel(false);
        let settings = context.settings.iter().cloned();
        let destinations: Vec<_> = settings.map(Destination::new).collect();
        let all = destinations.clone();
        let runtime = || {
            Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
        };
        let work = move || match runtime() {
            Ok(runtime) => {
                runtime.block_on(run(Rc::new(context), all, stopped));
                // A name that is still being looked up must not delay the end of the process.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "nothing can be pushed"),
        };
        let thread = thread::Builder::new().name("push".into()).spawn(work)?;
        Ok(Pusher {
            stop,
            thread,
            destinations,
        })
    }

    /// Takes over the tokens and the roots of these settings, after a reload. Settings of other destinations are ignored.
    pub fn renew(&self, settings: &[Settings]) {
        for destination in &self.destinations {
            let mut own = destination.settings.lock();
            if let Some(renewed) = settings
                .iter()
                .find(|settings| settings.is_same_destination(&own))
            {
                own.clone_from(renewed);
            }
        }
    }

    /// The state of each destination.
    pub fn status(&self) -> Vec<DestinationStatus> {
        let all = self.destinations.iter();
        all.map(|one| one.status.lock().clone()).collect()
    }

    /// Sends what is recorded by now, for at most two seconds.
    pub fn finish(self) {
        let _ = self.stop.send(true);
        if self.thread.join().is_err() {
            tracing::error!("the thread that pushes panicked");
        }
    }
}

async fn run(
    context: Rc<PushContext>,
    destinations: Vec<Arc<Destination>>,
    mut stopped: watch::Receiver<bool>,
) {
    // One process at a time: if two pushed the same seconds, each would take the other's samples for its own.
    let mut trouble = String::new();
    let _lock = loop {
        if context.record.get().is_some() {
            match context.cursors().as_deref().map(lock).transpose() {
                Ok(None) => break None,
                Ok(Some(Some(lock))) => break Some(lock),
                Ok(Some(None)) => {}
                Err(error) if error.to_string() == trouble => {}
                Err(error) => {
                    trouble = error.to_string();
                    tracing::error!(trouble, "nothing is pushed: cursors cannot be saved");
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = stopped.changed() => return,
        }
    };
    let tasks = destinations.into_iter().zip(0..).map(|(one, place)| {
        let seed = context.seed ^ place;
        tokio::task::spawn_local(keep_sending(context.clone(), one, seed, stopped.clone()))
    });
    for task in tasks.collect::<Vec<_>>() {
        let _ = task.await;
    }
}

/// Sends to a destination until the end. A sender that panics is replaced by one that goes on from the cursor.
async fn keep_sending(
    context: Rc<PushContext>,
    destination: Arc<Destination>,
    seed: u64,
    mut stopped: watch::Receiver<bool>,
) {
    let mut panics = OutageLog::default();
    loop {
        let mut sender = Sender::new(&context, destination.clone(), seed);
        let mut ended = stopped.clone();
        let task = tokio::task::spawn_local(async move {
            tokio::select! {
                () = sender.run() => {}
                _ = ended.changed() => {}
            }
            // Where there is a folder, the next process sends what is left.
            let _ = tokio::time::timeout(LAST, sender.finish()).await;
        });
        if task.await.is_ok() {
            return;
        }
        let name = destination.settings.lock().name.clone();
        if panics.fails("it panicked", context.clock.now()) {
            tracing::error!(
                name,
                "the sender of a destination panicked and is started again"
            );
        }
        destination.status.lock().trouble = "the sender panicked and is started again".to_owned();
        tokio::select! {
            () = tokio::time::sleep(RESTART) => {}
            _ = stopped.changed() => return,
        }
    }
}

/// Locks the cursors; none while another process holds the lock.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(folder.join(".lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
