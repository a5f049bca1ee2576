//! Groups of Redis servers: a cluster of three masters with a replica each, and a master with two replicas that three
//! sentinels watch.

use std::process::Command;

use super::redis::{Redis, ask, free_port, free_ports_of_two};
use super::wait_until;

/// A cluster. Its nodes are three masters, then their three replicas.
pub struct Cluster {
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts a cluster with more arguments for each server, and waits until it serves all slots.
    pub fn start(arguments: &[&str]) -> Cluster {
        let node = |_| {
            let mut all = vec!["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
            // With these settings failovers begin sooner.
            all.extend([
                "--cluster-replica-validity-factor",
                "0",
                "--repl-ping-replica-period",
                "1",
            ]);
            all.extend(["--repl-diskless-sync-delay", "0"]);
            all.extend(arguments);
            // The cluster bus is on the port that is higher by ten thousand.
            Redis::on(free_ports_of_two(), &all)
        };
        let cluster = Cluster {
            nodes: (0..6).map(node).collect(),
        };
        let first = cluster.nodes[0].port;
        for (place, range) in [(0, "0 5460"), (1, "5461 10922"), (2, "10923 16383")] {
            let answer = cluster.nodes[place].ask(&format!("CLUSTER ADDSLOTSRANGE {range}"));
            assert_eq!(answer, "+OK\r\n");
        }
        for node in &cluster.nodes[1..] {
            node.ask(&format!("CLUSTER MEET 127.0.0.1 {first}"));
        }
        wait_until("all servers know each other", || {
            let all = |node: &Redis| node.ask("CLUSTER INFO").contains("cluster_known_nodes:6");
            cluster.nodes.iter().all(all)
        });
        for (master, replica) in cluster.nodes[..3].iter().zip(&cluster.nodes[3..]) {
            let id = id(master.port);
            wait_until("a replica follows", || {
                replica
                    .ask(&format!("CLUSTER REPLICATE {id}"))
                    .contains("+OK")
            });
        }
        cluster.until_whole();
        cluster
    }

    /// As configurations write it.
    pub fn url(&self) -> String {
        let each = self.nodes.iter();
        let each: Vec<String> = each
            .map(|node| format!("127.0.0.1:{}", node.port))
            .collect();
        format!("redis+cluster://{}", each.join(","))
    }

    /// Waits until all servers report that all slots are served, and all replicas follow their masters.
    pub fn until_whole(&self) {
        wait_until("the cluster is whole", || {
            self.nodes.iter().all(|node| {
                let said = ask(node.port, "CLUSTER INFO").unwrap_or_default();
                let role = ask(node.port, "INFO replication").unwrap_or_default();
                said.contains("cluster_state:ok")
                    && (role.contains("role:master") || role.contains("master_link_status:up"))
            })
        });
    }

    /// Whether this node is a master.
    pub fn leads(&self, node: usize) -> bool {
        ask(self.nodes[node].port, "ROLE").is_ok_and(|role| role.contains("master"))
    }

    /// Moves slots from one node to another while they are in use.
    pub fn reshard(&self, from: usize, to: usize, slots: u32) {
        let (from, to) = (id(self.nodes[from].port), id(self.nodes[to].port));
        let at = format!("127.0.0.1:{}", self.nodes[0].port);
        let slots = slots.to_string();
        // The command fails while the nodes do not agree on the slots.
        wait_until("slots are moved", || {
            let mut command = Command::new("redis-cli");
            command
                .args(["--cluster", "reshard", &at, "--cluster-from", &from])
                .args([
                    "--cluster-to",
                    &to,
                    "--cluster-slots",
                    &slots,
                    "--cluster-yes",
                ]);
            command.output().unwrap().status.success()
        });
    }
}

fn id(port: u16) -> String {
    let answer = ask(port, "CLUSTER MYID").unwrap();
    answer.lines().nth(1).unwrap().trim().to_owned()
}

/// A master and two replicas that sentinels watch.
pub struct Watched {
    /// The first master, then its replicas.
    pub nodes: Vec<Redis>,
    pub sentinels: Vec<Redis>,
}

impl Watched {
    pub fn start() -> Watched {
        let quick = [
            "--repl-diskless-sync-delay",
            "0",
            "--repl-ping-replica-period",
            "1",
        ];
        let master = Redis::with(&quick);
        let port = master.port.to_string();
        let mut nodes = vec![master];
        for _ in 0..2 {
            let mut all = quick.to_vec();
            all.extend(["--replicaof", "127.0.0.1", &port]);
            nodes.push(Redis::with(&all));
        }
        let text = format!(
            "sentinel monitor limits 127.0.0.1 {port} 2\nsentinel down-after-milliseconds limits 700\n\
             sentinel failover-timeout limits 2000\nsentinel parallel-syncs limits 2\n"
        );
        let sentinel = |_| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("sentinel.conf"), &text).unwrap();
            let port = free_port();
            Redis::in_folder(folder, port, vec!["--sentinel".to_owned()])
        };
        let watched = Watched {
            nodes,
            sentinels: (0..3).map(sentinel).collect(),
        };
        watched.until_settled();
        watched
    }

    /// As configurations write it.
    pub fn url(&self) -> String {
        let each = self.sentinels.iter();
        let each: Vec<String> = each.map(|one| format!("127.0.0.1:{}", one.port)).collect();
        format!("redis+sentinel://{}/limits", each.join(","))
    }

    /// Waits until sentinels see a master, its two replicas and each other.
    pub fn until_settled(&self) {
        wait_until("sentinels see all", || {
            self.sentinels.iter().all(|sentinel| {
                let said = sentinel.ask("INFO sentinel");
                said.contains("status=ok") && said.contains("slaves=2,sentinels=3")
            })
        });
    }

    /// The index of the node that sentinels name as the master.
    pub fn leader(&self) -> usize {
        let said = self.sentinels[2].ask("SENTINEL GET-MASTER-ADDR-BY-NAME limits");
        let place = |node: &Redis| said.contains(&format!("\r\n{}\r\n", node.port));
        self.nodes.iter().position(place).unwrap()
    }
}
