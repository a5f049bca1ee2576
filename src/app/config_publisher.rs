//! [`ConfigPublisher`]: replaces the running configuration at all workers: for a reload, for new keys, and for grants.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use crate::serve::worker::generation::RunningConfig;
use crate::serve::worker::run::{WorkerHandle, WorkerOrder};
use crate::store;

/// Replaces the running configuration. Clones replace the same one.
#[derive(Clone)]
pub struct ConfigPublisher {
    /// The configuration that workers run.
    running: Arc<RwLock<RunningConfig>>,
    /// Held while the configuration is replaced, so that one change after another is made.
    pub lock: Arc<Mutex<()>>,
    /// The threads of the workers; empty before the start and after the end.
    pub workers: Arc<Mutex<Vec<WorkerHandle>>>,
}

/// Is done once one worker runs a configuration, or has ended.
pub type Acknowledgement = oneshot::Receiver<()>;

impl ConfigPublisher {
    /// A publisher without workers.
    pub fn new(running: Arc<RwLock<RunningConfig>>) -> ConfigPublisher {
        ConfigPublisher {
            running,
            lock: Arc::default(),
            workers: Arc::default(),
        }
    }

    /// The running configuration.
    pub fn running(&self) -> RunningConfig {
        self.running.read().clone()
    }

    /// Replaces the running configuration. The caller holds [`ConfigPublisher::lock`].
    pub fn publish(&self, running: &RunningConfig) -> Vec<Acknowledgement> {
        *self.running.write() = running.clone();
        let mut acknowledgements = Vec::new();
        for worker in &*self.workers.lock() {
            let (acknowledge, acknowledgement) = oneshot::channel();
            let order = WorkerOrder::Run(Box::new(running.clone()), acknowledge);
            if worker.orders.send(order).is_ok() {
                acknowledgements.push(acknowledgement);
            }
        }
        acknowledgements
    }

    /// Lets workers decide by the grants that hold now. The caller holds [`ConfigPublisher::lock`].
    ///
    /// # Errors
    ///
    /// The store has no slot left for a limit with a grant. Then the former grants hold.
    pub fn publish_grants(&self) -> Result<Vec<Acknowledgement>, store::Error> {
        let former = self.running();
        let running = former.clone().with_current_grants()?;
        match Arc::ptr_eq(&running.ruleset, &former.ruleset) {
            true => Ok(Vec::new()),
            false => Ok(self.publish(&running)),
        }
    }
}
