//! Ends the gateway: announces the end, drains open requests, and stops workers and threads. It drops no open request
//! before the drain deadline.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::gateway::Gateway;
use crate::serve::worker::run::WorkerOrder;

impl Gateway {
    /// Makes `/readyz` fail, and returns how long the gateway still accepts requests.
    pub fn announce_end(&self) -> Duration {
        self.is_end_announced.store(true, Ordering::Relaxed);
        self.running.read().ruleset.timeouts.drain_delay
    }

    /// Stops accepting, lets open requests finish within the drain deadline, and ends the workers. Then it waits until
    /// the record and the access log are written.
    pub fn shut_down(&self) {
        let drain_timeout = self.running.read().ruleset.timeouts.drain;
        self.shut_down_within(drain_timeout);
    }

    /// Ends the gateway like [`Gateway::shut_down`], and lets open requests finish for at most `drain_timeout`.
    pub(super) fn shut_down_within(&self, drain_timeout: Duration) {
        // New connections must fail or reach another process, so the sockets are closed first.
        for file in self.socket_files.lock().drain(..) {
            file.remove();
        }
        self.listening_sockets.lock().clear();
        self.record_event("stopped", "the gateway was told to end", Vec::new());
        if let Some(recorder) = &*self.recorder.lock() {
            recorder.stop_soon();
        }
        let workers = std::mem::take(&mut *self.workers.lock());
        for worker in &workers {
            let _ = worker.orders.send(WorkerOrder::Drain(drain_timeout));
        }
        for worker in workers {
            if worker.thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
        if let Some((shared, keeper)) = &self.shared_store
            && let Some(keeper) = keeper.lock().take()
        {
            shared.stop_keeper();
            keeper.join();
        }
        if let Some(writer) = self.snapshot_writer.lock().take() {
            writer.finish();
        }
        let recorder = self.recorder.lock().take();
        if let Some(recorder) = recorder {
            recorder.finish();
        }
        if let Some(pusher) = self.pusher.lock().take() {
            pusher.finish();
        }
        let log = self.access_log.lock().take();
        // The log writer ends when the last worker has dropped its handle.
        let writer_end = log.map(|(_, end)| end);
        if writer_end.is_some_and(|end| !end.wait()) {
            tracing::warn!("writing the access log took too long; its last lines are lost");
        }
    }
}
