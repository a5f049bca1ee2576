//! Watches the files of a configuration and reports changes. It watches folders instead of files, so that it notices
//! editors that rename files and the swapped links of Kubernetes. Only a changed fingerprint of all contents counts as
//! a change: touching a file does not.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::load::fingerprint_files;

/// The time without events before the files are read, so that an editor can finish writing.
const QUIET_TIME: Duration = Duration::from_millis(200);
/// Maximum number of waits for a quiet time while events keep coming: together about 4 s.
const MAX_QUIET_WAITS: usize = 20;
/// The time after which the files are read without an event, because some file systems report none.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// A running watch, which ends when this value is dropped.
#[derive(Debug)]
pub struct ConfigWatch {
    signals: Sender<WatchSignal>,
}

/// A message to the thread that watches.
enum WatchSignal {
    /// Something changed in a watched folder.
    FolderEvent,
    /// The thread is to end.
    Stop,
}

impl Drop for ConfigWatch {
    fn drop(&mut self) {
        // The thread may have ended. It is not joined, because it may be the thread that drops this value.
        let _ = self.signals.send(WatchSignal::Stop);
    }
}

/// Calls `on_change` from a new thread whenever the files of the configuration at `path` change, even if they then have
/// mistakes. The first change is the first difference to `fingerprint`, the [`super::LoadedConfig::fingerprint`].
///
/// # Errors
///
/// The thread cannot be started.
pub fn watch(
    path: PathBuf,
    fingerprint: u64,
    on_change: impl FnMut() + Send + 'static,
) -> io::Result<ConfigWatch> {
    let (signals, inbox) = channel();
    let events = signals.clone();
    std::thread::Builder::new()
        .name("policy-watch".into())
        .spawn(move || watch_files(path, fingerprint, &events, &inbox, on_change))?;
    Ok(ConfigWatch { signals })
}

/// Watches until the other side sends [`WatchSignal::Stop`].
fn watch_files(
    path: PathBuf,
    mut reported_fingerprint: u64,
    events: &Sender<WatchSignal>,
    inbox: &Receiver<WatchSignal>,
    mut on_change: impl FnMut(),
) {
    let mut watched_folders = WatchedFolders::new(events.clone());
    loop {
        let (fingerprint, folders) = fingerprint_files(&path);
        let has_new_folders = watched_folders.replace_by(folders);
        if fingerprint != reported_fingerprint {
            // A file may be half written, so a change counts only if the files are the same after a quiet time.
            if wait_until_quiet(inbox) == WatchState::Stopped {
                return;
            }
            if fingerprint_files(&path).0 == fingerprint {
                reported_fingerprint = fingerprint;
                on_change();
            }
            continue;
        }
        // A change between the reading of a new folder and its first watch sent no event, so the files are read again.
        if !has_new_folders && wait_for_events(inbox) == WatchState::Stopped {
            return;
        }
    }
}

/// Whether the watch goes on.
#[derive(PartialEq, Eq)]
enum WatchState {
    Running,
    Stopped,
}

/// Waits for an event and a quiet time after it, but for at most [`POLL_INTERVAL`] for the event.
fn wait_for_events(inbox: &Receiver<WatchSignal>) -> WatchState {
    match inbox.recv_timeout(POLL_INTERVAL) {
        Ok(WatchSignal::FolderEvent) => wait_until_quiet(inbox),
        Err(RecvTimeoutError::Timeout) => WatchState::Running,
        Ok(WatchSignal::Stop) | Err(RecvTimeoutError::Disconnected) => WatchState::Stopped,
    }
}

/// Waits until no event has come for [`QUIET_TIME`], but at most [`MAX_QUIET_WAITS`] times.
fn wait_until_quiet(inbox: &Receiver<WatchSignal>) -> WatchState {
    for _ in 0..MAX_QUIET_WAITS {
        match inbox.recv_timeout(QUIET_TIME) {
            Err(RecvTimeoutError::Timeout) => return WatchState::Running,
            Ok(WatchSignal::FolderEvent) => {}
            Ok(WatchSignal::Stop) | Err(RecvTimeoutError::Disconnected) => {
                return WatchState::Stopped;
            }
        }
        // Events that came together count as one.
        while let Ok(signal) = inbox.try_recv() {
            if matches!(signal, WatchSignal::Stop) {
                return WatchState::Stopped;
            }
        }
    }
    WatchState::Running
}

/// The folders from which the operating system reports events.
struct WatchedFolders {
    /// `None` if the operating system offers no events. Changes are then noticed after [`POLL_INTERVAL`].
    watcher: Option<RecommendedWatcher>,
    /// The folders that are watched now.
    folders: BTreeSet<PathBuf>,
}

impl WatchedFolders {
    fn new(events: Sender<WatchSignal>) -> WatchedFolders {
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| may_change_files(&event.kind)) {
                let _ = events.send(WatchSignal::FolderEvent);
            }
        });
        WatchedFolders {
            watcher: watcher.ok(),
            folders: BTreeSet::new(),
        }
    }

    /// Watches exactly these folders, and returns whether one of them is new. A folder that cannot be watched now is
    /// tried again at the next call.
    fn replace_by(&mut self, folders: BTreeSet<PathBuf>) -> bool {
        let Some(watcher) = &mut self.watcher else {
            return false;
        };
        for removed in self.folders.difference(&folders) {
            let _ = watcher.unwatch(removed);
        }
        let mut has_new_folders = false;
        let mut watched = BTreeSet::new();
        for folder in folders {
            // Watched folders are watched again, because one may have been deleted and created anew.
            if watcher.watch(&folder, RecursiveMode::NonRecursive).is_ok() {
                has_new_folders |= !self.folders.contains(&folder);
                watched.insert(folder);
            }
        }
        self.folders = watched;
        has_new_folders
    }
}

/// Whether an event may mean that a file has other contents. Reading does not, or the watch would notice itself.
///
/// On Linux a write counts when the file is closed, because a log may be in the same folder. A file that is never
/// closed is noticed after [`POLL_INTERVAL`].
fn may_change_files(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        EventKind::Modify(ModifyKind::Data(_)) => !cfg!(target_os = "linux"),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
