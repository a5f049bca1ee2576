//! Watches the files of a configuration. It watches folders and not files, so that it sees editors that rename and
//! the swapped links of Kubernetes. A hash of all contents decides: touching a file is no change.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::load::traces;

/// How long all must be quiet before the files are looked at.
const QUIET: Duration = Duration::from_millis(200);
/// How often quiet is waited for while events keep coming.
const PATIENCE: usize = 20;
/// How often the files are looked at without any event: some file systems tell nothing.
const LOOK: Duration = Duration::from_secs(30);

/// Ends the watching when it is dropped.
#[derive(Debug)]
pub struct ConfigWatch {
    stop: Sender<Signal>,
}

enum Signal {
    Event,
    Stop,
}

impl Drop for ConfigWatch {
    fn drop(&mut self) {
        // The thread may be gone; it is not waited for, for it may be the one that drops this.
        let _ = self.stop.send(Signal::Stop);
    }
}

/// Calls `changed`, from a thread of its own, whenever the files of the configuration at `path` are
/// no more what they were: at first what [`super::LoadedConfig::fingerprint`] says, then what they were at
/// the last call, be they right or wrong.
///
/// # Errors
///
/// The thread cannot be started.
pub fn watch(
    path: PathBuf,
    fingerprint: u64,
    changed: impl FnMut() + Send + 'static,
) -> io::Result<ConfigWatch> {
    let (signals, inbox) = channel();
    let events = signals.clone();
    std::thread::Builder::new()
        .name("policy-watch".into())
        .spawn(move || run(path, fingerprint, &events, &inbox, changed))?;
    Ok(ConfigWatch { stop: signals })
}

fn run(
    path: PathBuf,
    mut last: u64,
    events: &Sender<Signal>,
    inbox: &Receiver<Signal>,
    mut changed: impl FnMut(),
) {
    let mut folders = Folders::new(events.clone());
    loop {
        let (now, seen) = traces(&path);
        let fresh = folders.follow(seen);
        if now != last {
            // A file may be half written: a change is one when it is still there after a while.
            if !quiet(inbox) {
                return;
            }
            if traces(&path).0 == now {
                last = now;
                changed();
            }
            continue;
        }
        // A change between the reading of a folder and its first watch sent no event.
        if !fresh && !wait(inbox) {
            return;
        }
    }
}

/// Waits until something happened and all is quiet again; false when it is time to stop.
fn wait(inbox: &Receiver<Signal>) -> bool {
    match inbox.recv_timeout(LOOK) {
        Ok(Signal::Event) => {}
        Err(RecvTimeoutError::Timeout) => return true,
        Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
    }
    quiet(inbox)
}

/// Waits until nothing happens; false when it is time to stop.
fn quiet(inbox: &Receiver<Signal>) -> bool {
    for _ in 0..PATIENCE {
        match inbox.recv_timeout(QUIET) {
            Err(RecvTimeoutError::Timeout) => return true,
            Ok(Signal::Event) => {}
            Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
        }
        // Events that came together are one.
        while let Ok(signal) = inbox.try_recv() {
            if matches!(signal, Signal::Stop) {
                return false;
            }
        }
    }
    true
}

/// The folders that are watched.
struct Folders {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
}

impl Folders {
    fn new(events: Sender<Signal>) -> Folders {
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| matters(&event.kind)) {
                let _ = events.send(Signal::Event);
            }
        });
        // Without a watcher the files are still looked at from time to time.
        Folders {
            watcher: watcher.ok(),
            watched: BTreeSet::new(),
        }
    }

    /// Watches exactly these folders, and says whether it began to watch one. One that cannot be
    /// watched now is tried again the next time.
    fn follow(&mut self, folders: BTreeSet<PathBuf>) -> bool {
        let Some(watcher) = &mut self.watcher else {
            return false;
        };
        for gone in self.watched.difference(&folders) {
            let _ = watcher.unwatch(gone);
        }
        let mut fresh = false;
        let mut watched = BTreeSet::new();
        for folder in folders {
            // Also those that are watched already: one that was made anew needs it.
            if watcher.watch(&folder, RecursiveMode::NonRecursive).is_ok() {
                fresh |= !self.watched.contains(&folder);
                watched.insert(folder);
            }
        }
        self.watched = watched;
        fresh
    }
}

/// Reading is no change; else the looking would see itself. On Linux a change of what a file says counts when its writer
/// closes it, for a log may lie beside the policies; one that is never closed is seen by the next [`LOOK`].
fn matters(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        EventKind::Modify(ModifyKind::Data(_)) => !cfg!(target_os = "linux"),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
