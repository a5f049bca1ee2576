//! Several gateways, each in a process of its own.

use std::fs;
use std::net::SocketAddr;

use tempfile::TempDir;

use crate::common::child::Server;
use crate::common::wait_until;

pub struct Fleet {
    pub gateways: Vec<Server>,
    folder: TempDir,
}

impl Fleet {
    /// So many, with one upstream and these limits, and these lines about the store and, if there shall be
    /// more than one, workers; returns when they share it.
    pub fn start(count: usize, upstream: SocketAddr, store: &str, limits: &str) -> Fleet {
        let fleet = Fleet::alone(count, upstream, store, limits);
        fleet.until_shared();
        fleet
    }

    /// As [`Fleet::start`], with files beside the gateway file.
    pub fn with_files(
        count: usize,
        upstream: SocketAddr,
        store: &str,
        limits: &str,
        files: &[(&str, &str)],
    ) -> Fleet {
        let fleet = Fleet::launch(count, upstream, store, limits, files);
        fleet.until_shared();
        fleet
    }

    /// The same, whether they share it or not.
    pub fn alone(count: usize, upstream: SocketAddr, store: &str, limits: &str) -> Fleet {
        Fleet::launch(count, upstream, store, limits, &[])
    }

    fn launch(
        count: usize,
        upstream: SocketAddr,
        store: &str,
        limits: &str,
        files: &[(&str, &str)],
    ) -> Fleet {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("policies")).unwrap();
        let workers = if store.contains("workers:") {
            ""
        } else {
            "workers: 1\n"
        };
        let identity = match store.contains("identity:") {
            true => "",
            false => "identity: { user: { header: x-user, from: [127.0.0.0/8] } }\n",
        };
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let gateway = format!(
            "version: 1\n{workers}listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\npolicies: policies\n\
             access_log: {{ requests: off }}\nupstreams: {{ shop: http://{upstream} }}\n\
             {identity}{store}\nlimits:\n{limits}"
        );
        fs::write(folder.path().join("tollgate.yaml"), gateway).unwrap();
        fs::write(
            folder.path().join("policies/all.yaml"),
            "match: /**\nupstream: shop\n",
        )
        .unwrap();
        let gateways = (0..count).map(|_| Server::start(folder.path(), true));
        Fleet {
            gateways: gateways.collect(),
            folder,
        }
    }

    /// Writes other limits; what runs does not know of them.
    pub fn rewrite(&self, limits: &str) {
        let path = self.folder.path().join("tollgate.yaml");
        let text = fs::read_to_string(&path).unwrap();
        let (before, _) = text.split_once("limits:\n").unwrap();
        fs::write(&path, format!("{before}limits:\n{limits}")).unwrap();
    }

    /// The folder of the files.
    pub fn path(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// One more, which takes part when it shares the store.
    pub fn another(&self) -> Server {
        let gateway = Server::start(self.folder.path(), true);
        wait_until("it shares the store", || {
            let said = gateway.ask("GET", "/readyz", "").text();
            said.contains("store shared")
        });
        gateway
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

    /// Whether all know of each other and use the store.
    pub fn shares(&self) -> bool {
        let word = format!("store shared ({} gateways)", self.gateways.len());
        self.ready().iter().all(|said| said.contains(&word))
    }

    /// Waits until they do.
    pub fn until_shared(&self) {
        wait_until("all gateways share the store", || self.shares());
        for gateway in &self.gateways {
            let metrics = gateway.ask("GET", "/metrics", "").text();
            crate::common::assert_contains(&metrics, &["tollgate_shared_store_up 1\n"]);
        }
    }

    /// What each has counted of the store.
    pub fn counts(&self) -> Vec<Counts> {
        self.gateways.iter().map(Counts::of).collect()
    }
}

/// What a gateway has counted of the store since it started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Decisions without the store that should have been asked.
    pub alone: usize,
    /// Calls without an answer in time.
    pub late: usize,
    /// Calls that failed otherwise.
    pub failed: usize,
}

impl Counts {
    pub fn since(&self, then: &Counts) -> Counts {
        Counts {
            alone: self.alone - then.alone,
            late: self.late - then.late,
            failed: self.failed - then.failed,
        }
    }

    pub fn of(gateway: &Server) -> Counts {
        let text = gateway.ask("GET", "/metrics", "").text();
        let read = |what: &str, outcome: &str| {
            let name = format!("tollgate_shared_store_{what}_total{{outcome=\"{outcome}\"}} ");
            let value = text.lines().find_map(|line| line.strip_prefix(&name));
            value.expect(&name).parse::<f64>().unwrap() as usize
        };
        Counts {
            alone: read("decisions", "alone"),
            late: read("calls", "late"),
            failed: read("calls", "failed"),
        }
    }
}
