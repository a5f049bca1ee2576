//! Ends the gateway: announces the end, drains open requests, and stops workers and threads. No open request is dropped
//! before the time to drain is over.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::gateway::Gateway;
use crate::serve::worker::run::WorkerOrder;

impl Gateway {
    /// Makes `/readyz` fail, and returns how long the caller should wait before [`Gateway::shut_down`], so that load
    /// balancers notice. Meanwhile the gateway accepts requests.
    pub fn announce_end(&self) -> Duration {
        self.is_end_announced.store(true, Ordering::Relaxed);
        self.running.read().ruleset.timeouts.drain_delay
    }

    /// Drains as [`Gateway::drain`] does. Then it waits until the last snapshot, the record and the access log are written.
    /// The last spans and pushes are sent or given up. A second call finds nothing to end.
    ///
    /// What operators order later is not recorded, so they must be served before.
    pub fn shut_down(&self) {
        self.drain();
        self.end_threads();
    }

    /// Stops accepting, lets open requests finish for at most `timeouts.drain`, and ends the workers. A second call finds
    /// nothing to end.
    pub fn drain(&self) {
        let drain_timeout = self.running.read().ruleset.timeouts.drain;
        self.drain_within(drain_timeout);
    }

    /// Ends the gateway as [`Gateway::shut_down`] does, but does not wait for open requests.
    pub(super) fn shut_down_at_once(&self) {
        self.drain_within(Duration::ZERO);
        self.end_threads();
    }

    /// Drains as [`Gateway::drain`] does, for at most `drain_timeout`.
    fn drain_within(&self, drain_timeout: Duration) {
        // New connections must fail or reach another process, so these sockets are closed first. Workers close their
        // own copies when they drain.
        for file in self.socket_files.lock().drain(..) {
            file.remove();
        }
        self.listening_sockets.lock().clear();
        if self.publisher.workers.lock().is_empty() {
            return;
        }
        self.record_event("stopped", "the gateway was told to end", Vec::new());
        // Draining may take long, and a process that takes over waits for the record.
        if let Some(recorder) = &*self.recorder.lock() {
            recorder.stop_soon();
        }
        let workers = std::mem::take(&mut *self.publisher.workers.lock());
        for worker in &workers {
            let _ = worker.orders.send(WorkerOrder::Drain(drain_timeout));
        }
        for worker in workers {
            if worker.thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
    }

    /// Ends the threads beside the workers, once these have ended.
    fn end_threads(&self) {
        if let Some(order_keeper) = self.order_keeper.lock().take() {
            order_keeper.finish();
        }
        if let Some((shared_store, keeper)) = &self.shared_store
            && let Some(keeper) = keeper.lock().take()
        {
            shared_store.stop_keeper();
            keeper.join();
        }
        // No worker adds spans any more.
        if let Some(exporter) = self.exporter.lock().take() {
            exporter.finish();
        }
        // No worker counts any more, so the last snapshot has all counts.
        if let Some(writer) = self.snapshot_writer.lock().take() {
            writer.write_and_end();
        }
        let recorder = self.recorder.lock().take();
        if let Some(recorder) = recorder {
            recorder.finish();
        }
        // The recorder has ended, so the pusher sends the last second too.
        if let Some(pusher) = self.pusher.lock().take() {
            pusher.finish();
        }
        let access_log = self.access_log.lock().take();
        // The log writer ends when the last worker has dropped its handle.
        let writer_end = access_log.map(|(_, end)| end);
        if writer_end.is_some_and(|end| !end.wait()) {
            tracing::warn!("writing the access log took too long; its last lines are lost");
        }
    }
}
