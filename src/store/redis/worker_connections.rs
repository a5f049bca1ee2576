//! [`WorkerConnections`]: the connections of one worker, to one server or to all servers of a cluster. A partition number
//! chooses among the servers of a cluster; one server has the single partition 0.

use redis::{Cmd, Value};

use super::address::Topology;
use super::cluster::{Cluster, PARTITION_COUNT};
use super::connect::{HostPort, RedisTarget};
use super::link::{RedisFault, RedisLink};
use super::settings::Settings;
use crate::base::clock::{Clock, Nanos};

/// The connections of one worker.
pub(super) enum WorkerConnections {
    /// A link to one server, or to the master that sentinels name.
    Single(RedisLink),
    /// A link to each server of a cluster.
    Cluster(Cluster),
}

impl WorkerConnections {
    /// Connections whose pauses between attempts to connect are at most `max_reconnect_delay`.
    pub(super) fn new(settings: &Settings, max_reconnect_delay: Nanos) -> WorkerConnections {
        let address = &settings.address;
        let target = match (&address.topology, address.hosts.first()) {
            (Topology::Cluster, _) => {
                return WorkerConnections::Cluster(Cluster::new(max_reconnect_delay));
            }
            (Topology::Sentinel(name), _) => RedisTarget::Master(name.clone()),
            (Topology::Single, Some((host, port))) => RedisTarget::Server(host.clone(), *port),
            // Every address has a host.
            (Topology::Single, None) => RedisTarget::Server(String::new(), 0),
        };
        WorkerConnections::Single(RedisLink::new(target, max_reconnect_delay))
    }

    /// The number of partitions.
    pub(super) fn partition_count(&self) -> usize {
        match self {
            WorkerConnections::Single(_) => 1,
            WorkerConnections::Cluster(_) => PARTITION_COUNT,
        }
    }

    /// One partition of each server; none before the first map of a cluster is read.
    pub(super) fn one_partition_per_server(&self) -> Vec<usize> {
        match self {
            WorkerConnections::Single(_) => vec![0],
            WorkerConnections::Cluster(cluster) => cluster.one_partition_per_server(),
        }
    }

    /// Connects where there is no connection, by tasks on the caller's runtime. Reads the map of a cluster if it is out of
    /// date.
    pub(super) fn keep_connected(&self, settings: &Settings, clock: &Clock) {
        match self {
            WorkerConnections::Single(link) => link.keep_connected(settings, clock),
            WorkerConnections::Cluster(cluster) => cluster.keep_connected(settings, clock),
        }
    }

    /// Gives up all connections for this cause.
    pub(super) fn disconnect(&self, cause: &str, clock: &Clock) {
        match self {
            WorkerConnections::Single(link) => link.disconnect(cause, clock),
            WorkerConnections::Cluster(cluster) => cluster.disconnect(cause, clock),
        }
    }

    /// Ends the pauses before the next attempts to connect. See [`Cluster::skip_delay`] for the map of a cluster.
    pub(super) fn skip_delay(&self, clock: &Clock) {
        match self {
            WorkerConnections::Single(link) => link.skip_delay(clock),
            WorkerConnections::Cluster(cluster) => cluster.skip_delay(clock),
        }
    }

    /// Whether all servers can be reached, or none was ever needed.
    pub(super) fn is_ready(&self) -> bool {
        match self {
            WorkerConnections::Single(link) => link.is_ready(),
            WorkerConnections::Cluster(cluster) => cluster.is_ready(),
        }
    }

    /// The server that the last connection leads to. `None` before the first one, without sentinels, and for a cluster.
    pub(super) fn server(&self) -> Option<HostPort> {
        match self {
            WorkerConnections::Single(link) => link.server(),
            WorkerConnections::Cluster(_) => None,
        }
    }

    /// Whether the connection leads to this server. Also true while there is no connection, and always for a cluster.
    pub(super) fn leads_to(&self, server: &Option<HostPort>) -> bool {
        match self {
            WorkerConnections::Single(link) => link.leads_to(server),
            WorkerConnections::Cluster(_) => true,
        }
    }

    /// How often the connection was made; 0 for a cluster, whose connections are not counted.
    pub(super) fn connection_count(&self) -> u32 {
        match self {
            WorkerConnections::Single(link) => link.connection_count(),
            WorkerConnections::Cluster(_) => 0,
        }
    }

    /// Sends a command to the server that has the partition, and waits for its reply as [`RedisLink::send`] does.
    pub(super) async fn send(
        &self,
        partition: usize,
        command: &Cmd,
        settings: &Settings,
        clock: &Clock,
    ) -> Result<Value, RedisFault> {
        match self {
            WorkerConnections::Single(link) => link.send(None, command, clock).await,
            WorkerConnections::Cluster(cluster) => {
                cluster.send(partition, command, settings, clock).await
            }
        }
    }
}
