//! The connections of one worker: a link to one server, or to all servers of a cluster. A shelf number chooses among the
//! servers of a cluster; one server has the single shelf 0.

use redis::{Cmd, Value};

use super::address::Topology;
use super::cluster::{Cluster, SHELF_COUNT};
use super::link::{RedisFault, RedisLink};
use super::reach::{HostPort, RedisTarget};
use super::settings::Settings;
use crate::base::clock::{Clock, Nanos};

/// The connections of one worker.
pub(super) enum Lane {
    Single(RedisLink),
    Cluster(Cluster),
}

impl Lane {
    /// A lane whose pauses between attempts to connect are at most `max_delay`.
    pub(super) fn new(settings: &Settings, max_delay: Nanos) -> Lane {
        let address = &settings.address;
        let target = match (&address.topology, address.hosts.first()) {
            (Topology::Cluster, _) => return Lane::Cluster(Cluster::new(max_delay)),
            (Topology::Sentinel(name), _) => RedisTarget::Master(name.clone()),
            (Topology::Alone, Some((host, port))) => RedisTarget::Server(host.clone(), *port),
            // Every address has a host.
            (Topology::Alone, None) => RedisTarget::Server(String::new(), 0),
        };
        Lane::Single(RedisLink::new(target, max_delay))
    }

    /// The number of shelves.
    pub(super) fn shelf_count(&self) -> usize {
        match self {
            Lane::Single(_) => 1,
            Lane::Cluster(_) => SHELF_COUNT,
        }
    }

    /// One shelf of each server.
    pub(super) fn one_shelf_per_server(&self) -> Vec<usize> {
        match self {
            Lane::Single(_) => vec![0],
            Lane::Cluster(cluster) => cluster.one_shelf_per_server(),
        }
    }

    /// Connects where there is no connection.
    pub(super) fn keep_connected(&self, settings: &Settings, clock: &Clock) {
        match self {
            Lane::Single(link) => link.keep_connected(settings, clock),
            Lane::Cluster(cluster) => cluster.keep_connected(settings, clock),
        }
    }

    /// Gives up all connections for this cause.
    pub(super) fn disconnect(&self, cause: &str, clock: &Clock) {
        match self {
            Lane::Single(link) => link.disconnect(cause, clock),
            Lane::Cluster(cluster) => cluster.disconnect(cause, clock),
        }
    }

    /// Ends the pause before the next attempt to connect.
    pub(super) fn skip_delay(&self, clock: &Clock) {
        match self {
            Lane::Single(link) => link.skip_delay(clock),
            Lane::Cluster(cluster) => cluster.skip_delay(clock),
        }
    }

    /// Whether all servers can be reached, or none was ever needed.
    pub(super) fn is_ready(&self) -> bool {
        match self {
            Lane::Single(link) => link.is_ready(),
            Lane::Cluster(cluster) => cluster.is_ready(),
        }
    }

    /// With sentinels: the server that the connection leads to.
    pub(super) fn server(&self) -> Option<HostPort> {
        match self {
            Lane::Single(link) => link.server(),
            Lane::Cluster(_) => None,
        }
    }

    /// Whether the connection leads to this server.
    pub(super) fn leads_to(&self, server: &Option<HostPort>) -> bool {
        match self {
            Lane::Single(link) => link.leads_to(server),
            Lane::Cluster(_) => true,
        }
    }

    /// How often it has connected; 0 for a cluster.
    pub(super) fn connection_count(&self) -> u32 {
        match self {
            Lane::Single(link) => link.connection_count(),
            Lane::Cluster(_) => 0,
        }
    }

    /// Sends a command to the server that has the shelf.
    pub(super) async fn send(
        &self,
        shelf: usize,
        command: &Cmd,
        settings: &Settings,
        clock: &Clock,
    ) -> Result<Value, RedisFault> {
        match self {
            Lane::Single(link) => link.send(None, command, clock).await,
            Lane::Cluster(cluster) => cluster.send(shelf, command, settings, clock).await,
        }
    }
}
