//! Counts the open connections of clients, in all and from each address, and holds them within their bounds.
//!
//! All workers share one [`Occupancy`]. Addresses are counted only where the configuration bounds their connections; those
//! of trusted proxies never are. Only addresses with an open connection have an entry, so connections bound the entries.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How often the maximum is read again while no connection closes. A reload may raise the maximum, and notifies nobody.
const MAXIMUM_RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The open connections of all workers.
#[derive(Debug, Default)]
pub struct Occupancy {
    /// The number of open connections; for a moment also of those that must wait. Nothing else depends on the order in
    /// which threads see it, so relaxed order suffices.
    open_count: AtomicUsize,
    /// Notified when a connection closes.
    connection_closed: Notify,
    /// The number of open connections by network address, grouped as limits by `ip` group their clients. Never 0.
    counts_by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// Counts an open connection until this value is dropped.
#[derive(Debug)]
pub struct CountedConnection {
    occupancy: Arc<Occupancy>,
    /// The network address that the connection counts for; `None` before [`CountedConnection::admit_address`].
    address: Option<IpAddr>,
}

impl Occupancy {
    /// The number of open connections.
    pub fn open_count(&self) -> usize {
        self.open_count.load(Ordering::Relaxed)
    }

    /// Waits until fewer than `maximum()` connections are open, then counts one more.
    pub async fn admit_connection(
        self: &Arc<Self>,
        maximum: impl Fn() -> usize,
    ) -> CountedConnection {
        loop {
            // Waits from before the check, so that no connection that closes meanwhile is missed.
            let next_close = self.connection_closed.notified();
            if let Some(counted) = self.try_admit_connection(maximum()) {
                return counted;
            }
            let _ = timeout(MAXIMUM_RECHECK_INTERVAL, next_close).await;
        }
    }

    /// Counts one more connection; `None` if `maximum` connections are open.
    pub fn try_admit_connection(self: &Arc<Self>, maximum: usize) -> Option<CountedConnection> {
        if self.open_count.fetch_add(1, Ordering::Relaxed) < maximum {
            return Some(CountedConnection {
                occupancy: self.clone(),
                address: None,
            });
        }
        self.open_count.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl CountedConnection {
    /// Counts the connection for `address` too, unless `maximum` connections of that address are open already: then
    /// returns false. `maximum` is at least 1.
    pub fn admit_address(&mut self, address: IpAddr, maximum: usize) -> bool {
        let mut counts_by_address = self.occupancy.counts_by_address.lock();
        let open_count = counts_by_address.entry(address).or_default();
        if *open_count >= maximum {
            return false;
        }
        *open_count += 1;
        self.address = Some(address);
        true
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.occupancy.open_count.fetch_sub(1, Ordering::Relaxed);
        self.occupancy.connection_closed.notify_waiters();
        let Some(address) = self.address else { return };
        let mut counts_by_address = self.occupancy.counts_by_address.lock();
        if let Some(open_count) = counts_by_address.get_mut(&address) {
            *open_count -= 1;
            if *open_count == 0 {
                counts_by_address.remove(&address);
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
        let address = |last_octet| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last_octet));
        let connect = |last_octet| {
            let counted = occupancy.admit_connection(|| 10);
            let mut counted = counted.now_or_never().expect("there is room");
            let is_admitted = counted.admit_address(address(last_octet), 2);
            is_admitted.then_some(counted)
        };
        let first_connection = connect(1);
        let later_connections = [connect(1), connect(2)];
        assert!(first_connection.is_some() && later_connections.iter().all(Option::is_some));
        assert!(connect(1).is_none());
        drop(first_connection);
        assert!(connect(1).is_some());
        drop(later_connections);
        assert!(occupancy.counts_by_address.lock().is_empty());
        assert_eq!(occupancy.open_count(), 0);
    }
}
