//! How many connections clients have open, in all and from each address; shared by all workers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How often `most` is read again while nothing ends.
const AGAIN: Duration = Duration::from_secs(1);

/// See the module. It holds one entry for each address with an open connection.
#[derive(Debug, Default)]
pub struct Occupancy {
    open: AtomicUsize,
    /// Told when a connection ends.
    ended: Notify,
    /// By address, as clients are grouped.
    addresses: Mutex<HashMap<IpAddr, usize>>,
}

/// Counts an open connection until it is dropped.
#[derive(Debug)]
pub struct CountedConnection {
    occupancy: Arc<Occupancy>,
    address: Option<IpAddr>,
}

impl Occupancy {
    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Waits until fewer than `most` connections are open, then counts one more. A reload may change `most` meanwhile.
    pub async fn count(self: &Arc<Self>, most: impl Fn() -> usize) -> CountedConnection {
        loop {
            let ended = self.ended.notified();
            if self.open.fetch_add(1, Ordering::Relaxed) < most() {
                return CountedConnection {
                    occupancy: self.clone(),
                    address: None,
                };
            }
            self.open.fetch_sub(1, Ordering::Relaxed);
            // A reload notifies nobody.
            let _ = timeout(AGAIN, ended).await;
        }
    }
}

impl CountedConnection {
    /// Counts it for `address` too. False if that has `most` already.
    pub fn count_for(&mut self, address: IpAddr, most: usize) -> bool {
        let mut addresses = self.occupancy.addresses.lock();
        let open = addresses.entry(address).or_default();
        if *open >= most {
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
        self.occupancy.ended.notify_waiters();
        if let Some(address) = self.address {
            let mut addresses = self.occupancy.addresses.lock();
            if let Some(open) = addresses.get_mut(&address) {
                *open -= 1;
                if *open == 0 {
                    addresses.remove(&address);
                }
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
    fn addresses_have_so_many_each() {
        let occupancy = Arc::new(Occupancy::default());
        let address = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        let enter = |last| {
            let counted = occupancy.count(|| 10);
            let mut counted = counted.now_or_never().expect("there is room");
            counted.count_for(address(last), 2).then_some(counted)
        };
        let first = enter(1);
        let all = [enter(1), enter(2)];
        assert!(first.is_some() && all.iter().all(Option::is_some));
        assert!(enter(1).is_none());
        drop(first);
        assert!(enter(1).is_some());
        drop(all);
        assert!(occupancy.addresses.lock().is_empty());
        assert_eq!(occupancy.open.load(Ordering::Relaxed), 0);
    }
}
