//! Ends the gateway: announces it, drains requests, stops workers and threads.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::gateway::App;
use crate::serve::worker::run::WorkerOrder;

impl App {
    /// Makes `/readyz` fail, and returns how long the gateway still accepts requests.
    pub fn announce_end(&self) -> Duration {
        self.end_announced.store(true, Ordering::Relaxed);
        self.running.read().ruleset.timeouts.drain_delay
    }

    /// Stops accepting, lets open requests finish within the drain deadline, ends the workers, and waits until the access
    /// log is written.
    pub fn shut_down(&self) {
        let drain = self.running.read().ruleset.timeouts.drain;
        self.shut_down_within(drain);
    }

    pub(super) fn shut_down_within(&self, drain: Duration) {
        for file in self.socket_files.lock().drain(..) {
            file.remove();
        }
        self.sockets.lock().clear();
        self.record_event("stopped", "the gateway was told to end", Vec::new());
        if let Some(recorder) = &*self.recorder.lock() {
            recorder.stop_soon();
        }
        let workers = std::mem::take(&mut *self.workers.lock());
        for worker in &workers {
            let _ = worker.orders.send(WorkerOrder::Drain(drain));
        }
        for worker in workers {
            if worker.thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
        if let Some((shared, keeper)) = &self.shared
            && let Some(keeper) = keeper.lock().take()
        {
            shared.close();
            keeper.ended();
        }
        if let Some(writer) = self.snapshots.lock().take() {
            writer.finish();
        }
        let recorder = self.recorder.lock().take();
        if let Some(recorder) = recorder {
            recorder.finish();
        }
        if let Some(push) = self.push.lock().take() {
            push.finish();
        }
        let log = self.log.lock().take();
        // The writer ends when the last worker has dropped its handle.
        let written = log.map(|(_, written)| written);
        if written.is_some_and(|written| !written.wait()) {
            tracing::warn!("writing the access log took too long; its last lines are lost");
        }
    }
}
