//! The thread that pushes. It locks the folder of the cursors, so that one process pushes at a time, and runs a task
//! for each destination.
//!
//! A task that panics is started again. `sender.rs` decides what is sent.

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
use super::sender::DestinationSender;
use super::settings::Settings;
use crate::base::telemetry::OutageLog;

/// The longest time that a stopping process sends the last seconds, to all destinations at once.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);
/// The time between two checks whether the record is open and the lock is free.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The time before a sender that panicked is started again.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// A handle to the thread that pushes.
pub struct Pusher {
    /// Sending `true` stops the thread.
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
    destinations: Vec<Arc<Destination>>,
}

impl Pusher {
    /// Starts the thread. It begins to push once `context.record` is set and the lock of the cursors is free. If its
    /// runtime cannot be built, that is logged, and nothing is pushed.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot start a thread.
    pub fn start(context: PushContext) -> io::Result<Pusher> {
        let (stop, stopped) = watch::channel(false);
        let settings = context.settings.iter().cloned();
        let destinations: Vec<_> = settings.map(Destination::new).collect();
        let thread_destinations = destinations.clone();
        let build_runtime = || {
            Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
        };
        let run_thread = move || match build_runtime() {
            Ok(runtime) => {
                runtime.block_on(push_until_stopped(
                    Rc::new(context),
                    thread_destinations,
                    stopped,
                ));
                // A DNS lookup that still runs must not delay the end of the process.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "nothing can be pushed"),
        };
        let thread = thread::Builder::new()
            .name("push".into())
            .spawn(run_thread)?;
        Ok(Pusher {
            stop,
            thread,
            destinations,
        })
    }

    /// Takes over the tokens and the roots from reloaded settings. Destinations that are new or differ in anything else
    /// are ignored until a restart.
    pub fn update_settings(&self, settings: &[Settings]) {
        for destination in &self.destinations {
            let mut current = destination.settings.lock();
            if let Some(reloaded) = settings
                .iter()
                .find(|settings| settings.is_same_destination(&current))
            {
                current.clone_from(reloaded);
            }
        }
    }

    /// Returns the state of each destination, in the order of the settings.
    pub fn statuses(&self) -> Vec<DestinationStatus> {
        let destinations = self.destinations.iter();
        destinations
            .map(|destination| destination.status.lock().clone())
            .collect()
    }

    /// Stops the thread, and waits until it has ended. Before that, each sender that runs sends what was recorded so
    /// far, for at most [`FINISH_TIMEOUT`]. Nothing is sent if the thread still waits for the record or the lock.
    pub fn finish(self) {
        let _ = self.stop.send(true);
        if self.thread.join().is_err() {
            tracing::error!("the thread that pushes panicked");
        }
    }
}

/// Waits for the record and for the lock, and runs the tasks until the thread is to stop.
async fn push_until_stopped(
    context: Rc<PushContext>,
    destinations: Vec<Arc<Destination>>,
    mut stopped: watch::Receiver<bool>,
) {
    // Two processes that pushed the same seconds would each take the other's samples for their own.
    let mut logged_error = String::new();
    let _lock = loop {
        if context.record.get().is_some() {
            let lock = context.cursor_folder().as_deref().map(try_lock).transpose();
            match lock {
                // A record in memory has no cursor files to lock.
                Ok(None) => break None,
                Ok(Some(Some(lock))) => break Some(lock),
                Ok(Some(None)) => {}
                Err(error) if error.to_string() == logged_error => {}
                Err(error) => {
                    logged_error = error.to_string();
                    tracing::error!(
                        trouble = logged_error,
                        "nothing is pushed: cursors cannot be saved"
                    );
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOCK_RETRY_INTERVAL) => {}
            _ = stopped.changed() => return,
        }
    };
    let tasks = destinations
        .into_iter()
        .zip(0..)
        .map(|(destination, index)| {
            let seed = context.seed ^ index;
            let task = send_until_stopped(context.clone(), destination, seed, stopped.clone());
            tokio::task::spawn_local(task)
        });
    for task in tasks.collect::<Vec<_>>() {
        let _ = task.await;
    }
}

/// Sends to one destination. A sender that panics is replaced by a new one, which continues at the cursor.
async fn send_until_stopped(
    context: Rc<PushContext>,
    destination: Arc<Destination>,
    seed: u64,
    mut stopped: watch::Receiver<bool>,
) {
    let mut panic_log = OutageLog::default();
    loop {
        let mut sender = DestinationSender::new(&context, destination.clone(), seed);
        let mut sender_stopped = stopped.clone();
        let task = tokio::task::spawn_local(async move {
            tokio::select! {
                () = sender.run() => {}
                _ = sender_stopped.changed() => {}
            }
            // With a folder, the next process sends what remains.
            let _ = tokio::time::timeout(FINISH_TIMEOUT, sender.finish()).await;
        });
        if task.await.is_ok() {
            return;
        }
        let name = destination.settings.lock().name.clone();
        if panic_log.record_failure("it panicked", context.clock.now()) {
            tracing::error!(
                name,
                "the sender of a destination panicked and is started again"
            );
        }
        destination.status.lock().last_error =
            "the sender panicked and is started again".to_owned();
        tokio::select! {
            () = tokio::time::sleep(RESTART_DELAY) => {}
            _ = stopped.changed() => return,
        }
    }
}

/// Creates and locks the folder of the cursors. The lock lasts until the file is closed. Returns `None` while another
/// process holds the lock.
fn try_lock(folder: &Path) -> io::Result<Option<File>> {
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
