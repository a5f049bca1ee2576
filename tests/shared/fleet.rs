//! Several gateways, each in a process of its own.

use std::fs;
use std::net::SocketAddr;

use tempfile::TempDir;

use crate::common::child::{Server, command};
use crate::common::soon;

pub struct Fleet {
    pub gateways: Vec<Server>,
    _folder: TempDir,
}

impl Fleet {
    /// So many, with one upstream and these limits, and these lines about the store; returns when they share it.
    pub fn start(count: usize, upstream: SocketAddr, store: &str, limits: &str) -> Fleet {
        let fleet = Fleet::alone(count, upstream, store, limits);
        fleet.until_shared();
        fleet
    }

    /// The same, whether they share it or not.
    pub fn alone(count: usize, upstream: SocketAddr, store: &str, limits: &str) -> Fleet {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("policies")).unwrap();
        let gateway = format!(
            "version: 1\nworkers: 1\nlisten: 127.0.0.1:0\nadmin: 127.0.0.1:0\npolicies: policies\n\
             access_log: {{ requests: off }}\nupstreams: {{ shop: http://{upstream} }}\n\
             identity: {{ user: {{ header: x-user, from: [127.0.0.0/8] }} }}\n\
             {store}\nlimits:\n{limits}"
        );
        fs::write(folder.path().join("tollgate.yaml"), gateway).unwrap();
        fs::write(
            folder.path().join("policies/all.yaml"),
            "match: /**\nupstream: shop\n",
        )
        .unwrap();
        let start = |_| {
            Server::of(
                &mut command(folder.path(), &["run", "--config", "tollgate.yaml"]),
                true,
            )
        };
        let gateways = (0..count).map(start).collect();
        Fleet {
            gateways,
            _folder: folder,
        }
    }

    /// What each says of the store.
    pub fn ready(&self) -> Vec<String> {
        let each = self.gateways.iter();
        each.map(|gateway| gateway.ask("GET", "/readyz", "").text())
            .collect()
    }

    /// Where clients connect.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let each = self.gateways.iter();
        each.map(|gateway| gateway.address).collect()
    }

    /// Waits until all know of each other.
    pub fn until_shared(&self) {
        let word = format!("store shared ({} gateways)", self.gateways.len());
        soon("all gateways share the store", || {
            self.ready().iter().all(|said| said.contains(&word))
        });
    }

    /// The sum of a metric over all gateways.
    pub fn sum(&self, metric: &str) -> f64 {
        let each = self.gateways.iter().map(|gateway| {
            let text = gateway.ask("GET", "/metrics", "").text();
            let lines = text.lines().filter_map(|line| line.strip_prefix(metric));
            lines
                .map(|value| value.trim().parse::<f64>().unwrap_or(0.0))
                .sum::<f64>()
        });
        each.sum()
    }
}
