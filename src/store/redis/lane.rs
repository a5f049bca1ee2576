//! What one worker uses to reach the store: a link to one server, or to all servers of a cluster.

use redis::{Cmd, Value};

use super::address::Topology;
use super::cluster::{Cluster, SHELVES};
use super::link::{RedisFault, RedisLink};
use super::reach::{HostPort, RedisTarget};
use super::settings::Settings;
use crate::base::clock::{Clock, Nanos};

/// See the module.
pub(super) enum Lane {
    One(RedisLink),
    All(Cluster),
}

impl Lane {
    /// Pauses between attempts to connect are no longer than `longest`.
    pub(super) fn new(settings: &Settings, longest: Nanos) -> Lane {
        let address = &settings.address;
        let target = match (&address.topology, address.hosts.first()) {
            (Topology::Cluster, _) => return Lane::All(Cluster::new(longest)),
            (Topology::Sentinel(name), _) => RedisTarget::Led(name.clone()),
            (Topology::Alone, Some((host, port))) => RedisTarget::Server(host.clone(), *port),
            // Every address has a host.
            (Topology::Alone, None) => RedisTarget::Server(String::new(), 0),
        };
        Lane::One(RedisLink::new(target, longest))
    }

    /// The number of shelves.
    pub(super) fn shelves(&self) -> usize {
        match self {
            Lane::One(_) => 1,
            Lane::All(_) => SHELVES,
        }
    }

    /// One shelf of each server.
    pub(super) fn heads(&self) -> Vec<usize> {
        match self {
            Lane::One(_) => vec![0],
            Lane::All(cluster) => cluster.heads(),
        }
    }

    pub(super) fn tend(&self, settings: &Settings, clock: &Clock) {
        match self {
            Lane::One(link) => link.tend(settings, clock),
            Lane::All(cluster) => cluster.tend(settings, clock),
        }
    }

    pub(super) fn broken(&self, cause: &str, clock: &Clock) {
        match self {
            Lane::One(link) => link.broken(cause, clock),
            Lane::All(cluster) => cluster.broken(cause, clock),
        }
    }

    pub(super) fn hurry(&self, clock: &Clock) {
        match self {
            Lane::One(link) => link.hurry(clock),
            Lane::All(cluster) => cluster.hurry(clock),
        }
    }

    pub(super) fn ready(&self) -> bool {
        match self {
            Lane::One(link) => link.ready(),
            Lane::All(cluster) => cluster.ready(),
        }
    }

    /// With sentinels: the server that the connection leads to.
    pub(super) fn place(&self) -> Option<HostPort> {
        match self {
            Lane::One(link) => link.place(),
            Lane::All(_) => None,
        }
    }

    /// Whether the connection leads to this server.
    pub(super) fn leads_to(&self, place: &Option<HostPort>) -> bool {
        match self {
            Lane::One(link) => link.leads_to(place),
            Lane::All(_) => true,
        }
    }

    /// Connections so far; 0 for a cluster.
    pub(super) fn made(&self) -> u32 {
        match self {
            Lane::One(link) => link.made(),
            Lane::All(_) => 0,
        }
    }

    /// Sends a command to the server that has the shelf.
    pub(super) async fn ask(
        &self,
        shelf: usize,
        command: &Cmd,
        settings: &Settings,
        clock: &Clock,
    ) -> Result<Value, RedisFault> {
        match self {
            Lane::One(link) => link.ask(None, command, clock).await,
            Lane::All(cluster) => cluster.ask(shelf, command, settings, clock).await,
        }
    }
}
