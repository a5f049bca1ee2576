//! Counts the open connections of clients, in all and from each address, and holds them within their bounds.
//!
//! All workers share it. It keeps one entry for each address with an open connection, and none for any other.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How often the maximum is read again while no connection closes: a reload may have raised it, and notifies nobody.
const MAXIMUM_RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The open connections of all workers.
#[derive(Debug, Default)]
pub struct Occupancy {
    open: AtomicUsize,
    /// Notified when a connection closes.
    closed: Notify,
    /// Open connections by network address, grouped as limits by `ip` group their clients.
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// Counts an open connection until it is dropped.
#[derive(Debug)]
pub struct CountedConnection {
    occupancy: Arc<Occupancy>,
    address: Option<IpAddr>,
}

impl Occupancy {
    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Waits until fewer than `maximum` connections are open, then counts one more.
    pub async fn admit(self: &Arc<Self>, maximum: impl Fn() -> usize) -> CountedConnection {
        loop {
            let closed = self.closed.notified();
            if self.open.fetch_add(1, Ordering::Relaxed) < maximum() {
                return CountedConnection {
                    occupancy: self.clone(),
                    address: None,
                };
            }
            self.open.fetch_sub(1, Ordering::Relaxed);
            let _ = timeout(MAXIMUM_RECHECK_INTERVAL, closed).await;
        }
    }
}

impl CountedConnection {
    /// Counts the connection for `address` too. False if `maximum` connections of that address are open already.
    pub fn admit_address(&mut self, address: IpAddr, maximum: usize) -> bool {
        let mut by_address = self.occupancy.by_address.lock();
        let open = by_address.entry(address).or_default();
        if *open >= maximum {
            return false;
        }
        *open += 1;
        self.address = Some(address);
        true
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.occupancy.open.fetch_sub(1, Ordering::Relaxed);
        self.occupancy.closed.notify_waiters();
        let Some(address) = self.address else { return };
        let mut by_address = self.occupancy.by_address.lock();
        if let Some(open) = by_address.get_mut(&address) {
            *open -= 1;
            if *open == 0 {
                by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn each_address_has_its_own_maximum() {
        let occupancy = Arc::new(Occupancy::default());
        let address = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        let enter = |last| {
            let counted = occupancy.admit(|| 10);
            let mut counted = counted.now_or_never().expect("there is room");
            counted.admit_address(address(last), 2).then_some(counted)
        };
        let first = enter(1);
        let all = [enter(1), enter(2)];
        assert!(first.is_some() && all.iter().all(Option::is_some));
        assert!(enter(1).is_none());
        drop(first);
        assert!(enter(1).is_some());
        drop(all);
        assert!(occupancy.by_address.lock().is_empty());
        assert_eq!(occupancy.open.load(Ordering::Relaxed), 0);
    }
}
