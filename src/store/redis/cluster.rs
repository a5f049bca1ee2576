//! [`Cluster`]: a cluster as one worker sees it. It knows which server has which partition, and has a link to each
//! server. It follows redirections, and reads the slot map again when it is out of date. A slow server never slows down
//! calls to other servers; while one is down, all calls fail. No call waits while the map is read.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_ok;
use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::time::{sleep, timeout};

use super::connect::{self, RedisTarget};
use super::link::{RedisFault, RedisLink};
use super::settings::Settings;
use crate::base::clock::{Clock, Nanos};
use crate::store::shared::call::StoreError;

/// The number of partitions. Each partition is in one slot of the cluster, and no two are in the same.
pub(super) const PARTITION_COUNT: usize = 256;
/// The most redirections of one call.
const MAX_REDIRECTIONS: usize = 8;
/// The pause before a call is sent again, while a connection is made or a slot is moved.
const RETRY_DELAY: Duration = Duration::from_millis(1);
/// The most times that a call looks whether a connection is made, once in each [`RETRY_DELAY`].
const MAX_CONNECT_POLLS: usize = 20;
/// Time limit of the call that reads the map from one server.
const MAP_READ_TIMEOUT: Duration = Duration::from_millis(300);
/// Shortest time between two reads of the map; twice as long after a failure.
const MAP_READ_INTERVAL: Nanos = Nanos::from_millis(200);

/// The server of each partition; `None` for a partition without one.
type PartitionOwners = Vec<Option<RedisTarget>>;

/// Which server has which partition.
struct SlotMap {
    /// The links to the map's servers, and to those that redirections have named since the map was read.
    links: Vec<RedisLink>,
    /// The index in `links` of each partition's server, if a server has it; empty before there was a map.
    owner_links: Vec<Option<u16>>,
    /// The indices in `owner_links`, sorted, each once.
    used_links: Vec<u16>,
    /// Whether the map is known to be out of date.
    is_stale: bool,
    /// Whether a task reads the map.
    is_being_read: bool,
    /// When the map may be read again; zero before the first read.
    next_read_at: Nanos,
    /// Why the map could not be read; `None` before the first read, and after one that succeeded.
    missing_map_cause: Option<String>,
}

/// A handle to a cluster. Clones share the map and the links.
#[derive(Clone)]
pub(super) struct Cluster {
    map: Arc<Mutex<SlotMap>>,
    /// The longest pause between two attempts to connect to a server.
    max_reconnect_delay: Nanos,
}

impl Cluster {
    /// A cluster without a map yet. `max_reconnect_delay` bounds the pause between attempts to connect.
    pub(super) fn new(max_reconnect_delay: Nanos) -> Cluster {
        Cluster {
            map: Arc::new(Mutex::new(SlotMap {
                links: Vec::new(),
                owner_links: Vec::new(),
                used_links: Vec::new(),
                is_stale: true,
                is_being_read: false,
                next_read_at: Nanos::ZERO,
                missing_map_cause: None,
            })),
            max_reconnect_delay,
        }
    }

    /// Whether all partitions can be reached, or none was ever needed.
    pub(super) fn is_ready(&self) -> bool {
        let map = self.map.lock();
        let was_never_needed = map.next_read_at == Nanos::ZERO && !map.is_being_read;
        was_never_needed
            || (!map.owner_links.is_empty()
                && map.owner_links.iter().all(|owner| map.is_up(*owner)))
    }

    /// One partition of each server; none before the first map.
    pub(super) fn one_partition_per_server(&self) -> Vec<usize> {
        let map = self.map.lock();
        let first_partition = |link| {
            map.owner_links
                .iter()
                .position(|owner| *owner == Some(link))
        };
        let links = map.used_links.iter().copied();
        links.filter_map(first_partition).collect()
    }

    /// Ends the pauses before the next attempts to connect. Shortens that before the next read of the map to
    /// [`MAP_READ_INTERVAL`].
    pub(super) fn skip_delay(&self, clock: &Clock) {
        let mut map = self.map.lock();
        map.next_read_at = map.next_read_at.min(clock.now().after(MAP_READ_INTERVAL));
        map.links.iter().for_each(|link| link.skip_delay(clock));
    }

    /// Gives up all connections for this cause. The map counts as out of date then.
    pub(super) fn disconnect(&self, cause: &str, clock: &Clock) {
        let mut map = self.map.lock();
        map.is_stale = true;
        let links = map.links.iter();
        links.for_each(|link| link.disconnect(cause, clock));
    }

    /// Connects where there is no connection, and reads the map where it is out of date.
    pub(super) fn keep_connected(&self, settings: &Settings, clock: &Clock) {
        let mut map = self.map.lock();
        let links = map.links.iter();
        links.for_each(|link| link.keep_connected(settings, clock));
        // A server that is down may have been replaced.
        map.is_stale |= !map.owner_links.iter().all(|owner| map.is_up(*owner));
        if !map.is_stale || map.is_being_read || clock.now() < map.next_read_at {
            return;
        }
        map.is_being_read = true;
        map.is_stale = false;
        let connected = map.links.iter().filter(|link| link.is_up());
        let connected: Vec<RedisLink> = connected.cloned().collect();
        drop(map);
        let (cluster, settings, clock) = (self.clone(), settings.clone(), clock.clone());
        tokio::spawn(async move {
            let owners = read_map(&connected, &settings, &clock).await;
            cluster.update_map(owners, &settings, &clock);
        });
    }

    /// Replaces the map where it could be read, and connects to new servers.
    fn update_map(
        &self,
        owners: Result<PartitionOwners, String>,
        settings: &Settings,
        clock: &Clock,
    ) {
        let mut map = self.map.lock();
        map.is_being_read = false;
        map.next_read_at = clock.now().after(MAP_READ_INTERVAL);
        match owners {
            Ok(owners) => map.replace_owners(owners, self.max_reconnect_delay),
            Err(cause) => {
                tracing::debug!(store = %settings.address, cause, "cannot read the cluster's slots");
                map.is_stale = true;
                map.next_read_at = clock.now().after(Nanos(MAP_READ_INTERVAL.0 * 2));
                map.missing_map_cause = Some(cause);
            }
        }
        let links = map.links.iter();
        links.for_each(|link| link.keep_connected(settings, clock));
    }

    /// Sends a command to the server that has the partition, and follows redirections. Fails with the last fault. A fault
    /// that is neither a redirection nor `NOSCRIPT` marks the map as out of date.
    pub(super) async fn send(
        &self,
        partition: usize,
        command: &Cmd,
        settings: &Settings,
        clock: &Clock,
    ) -> Result<Value, RedisFault> {
        // The server to which the partition is moving, after an ASK redirection.
        let mut importing_link: Option<RedisLink> = None;
        let mut redirections = 0;
        loop {
            let reply = match importing_link.take() {
                Some(link) => {
                    let asking = redis::cmd("ASKING");
                    link.send(Some(&asking), command, clock).await
                }
                None => self.owner_link(partition)?.send(None, command, clock).await,
            };
            let fault = match reply {
                Ok(value) => return Ok(value),
                Err(fault) => fault,
            };
            redirections += 1;
            let node = match &fault {
                RedisFault::Failed(error) => error.redirect_node().map(|(node, _)| node.to_owned()),
                RedisFault::NotConnected(_) => None,
            };
            match (fault.code(), node) {
                _ if redirections > MAX_REDIRECTIONS => return Err(fault),
                (Some("MOVED"), Some(node)) => {
                    let link = self.record_move(partition, &node);
                    wait_until_up(link, settings, clock).await;
                }
                (Some("ASK"), Some(node)) => {
                    let link = self.link_at(partition, &node);
                    wait_until_up(link.clone(), settings, clock).await;
                    importing_link = link;
                }
                (Some("TRYAGAIN"), _) => sleep(RETRY_DELAY).await,
                (Some("NOSCRIPT"), _) => return Err(fault),
                _ => {
                    self.map.lock().is_stale = true;
                    return Err(fault);
                }
            }
        }
    }

    /// The link to the server that has a partition. Where one server is away the whole store counts as away: gateways that
    /// use other keys must come to the same view, at the same time.
    fn owner_link(&self, partition: usize) -> Result<RedisLink, RedisFault> {
        let mut map = self.map.lock();
        let link = |index: &u16| &map.links[usize::from(*index)];
        let mut links = map.used_links.iter().map(link);
        if let Some(down) = links.find(|link| link.is_down()) {
            return Err(down.disconnected_fault());
        }
        if let Some(owner) = map.owner_links.get(partition).copied().flatten() {
            return Ok(link(&owner).clone());
        }
        map.is_stale = true;
        let has_map = !map.owner_links.is_empty();
        Err(match has_map {
            true => RedisFault::NotConnected(StoreError::Other(Cow::Borrowed(
                "some of the cluster's slots have no server",
            ))),
            false => RedisFault::not_connected(map.missing_map_cause.as_deref()),
        })
    }

    /// Records that a partition is on another server, and returns the link to it; `None` if `node` names no server.
    fn record_move(&self, partition: usize, node: &str) -> Option<RedisLink> {
        let link = self.link_at(partition, node)?;
        let mut map = self.map.lock();
        map.is_stale = true;
        let index = map
            .links
            .iter()
            .position(|candidate| candidate.target() == link.target())?;
        if let Some(owner) = map.owner_links.get_mut(partition) {
            *owner = Some(index as u16);
        }
        map.update_used_links();
        Some(link)
    }

    /// The link to the server that a redirection names as `HOST:PORT`. An empty host stands for the host of the server that
    /// sent the redirection. `None` if the text has another form.
    fn link_at(&self, partition: usize, node: &str) -> Option<RedisLink> {
        let (host, port) = node.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let mut map = self.map.lock();
        let host = match host {
            "" | "?" => {
                let owner = map.owner_links.get(partition).copied().flatten()?;
                match map.links[usize::from(owner)].target() {
                    RedisTarget::Server(host, _) => host.clone(),
                    RedisTarget::Master(_) => return None,
                }
            }
            host => host.trim_matches(['[', ']']).to_owned(),
        };
        let index = map.link_index(RedisTarget::Server(host, port), self.max_reconnect_delay);
        Some(map.links[index].clone())
    }
}

impl SlotMap {
    /// Whether there is an owner, and a connection to it.
    fn is_up(&self, owner: Option<u16>) -> bool {
        owner.is_some_and(|index| self.links[usize::from(index)].is_up())
    }

    /// The index of the link to a server, which is added if it is missing.
    fn link_index(&mut self, target: RedisTarget, max_reconnect_delay: Nanos) -> usize {
        let existing = self.links.iter().position(|link| *link.target() == target);
        existing.unwrap_or_else(|| {
            self.links.push(RedisLink::new(target, max_reconnect_delay));
            self.links.len() - 1
        })
    }

    fn update_used_links(&mut self) {
        self.used_links = self.owner_links.iter().flatten().copied().collect();
        self.used_links.sort_unstable();
        self.used_links.dedup();
    }

    /// Replaces the owners of all partitions, and drops the links to servers without a partition.
    fn replace_owners(&mut self, owners: PartitionOwners, max_reconnect_delay: Nanos) {
        let is_owner =
            |link: &RedisLink| owners.iter().flatten().any(|owner| owner == link.target());
        self.links.retain(is_owner);
        let owners = owners.into_iter();
        let indices = owners.map(|owner| {
            let target = owner?;
            Some(self.link_index(target, max_reconnect_delay) as u16)
        });
        self.owner_links = indices.collect();
        self.update_used_links();
        self.is_stale = self.owner_links.contains(&None);
        self.missing_map_cause = None;
    }
}

/// Connects if there is no connection, and waits for it up to 20 ms.
async fn wait_until_up(link: Option<RedisLink>, settings: &Settings, clock: &Clock) {
    let Some(link) = link else { return };
    link.keep_connected(settings, clock);
    for _ in 0..MAX_CONNECT_POLLS {
        if link.is_up() {
            return;
        }
        sleep(RETRY_DELAY).await;
    }
}

/// Reads the server of each partition; the first reply counts. Calls the servers that are `connected`. If none of them
/// replies, calls the servers in the address.
///
/// # Errors
///
/// The last cause, as text for logs.
async fn read_map(
    connected: &[RedisLink],
    settings: &Settings,
    clock: &Clock,
) -> Result<PartitionOwners, String> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let command = &command;
    let reads = connected
        .iter()
        .map(|link| read_map_over(link, command, clock).boxed());
    let reads: Vec<_> = reads.collect();
    if !reads.is_empty()
        && let Ok((owners, _)) = select_ok(reads).await
    {
        return Ok(owners);
    }
    let hosts = settings.address.hosts.iter();
    let reads = hosts.map(|(host, port)| read_map_from(host, *port, command, settings).boxed());
    select_ok(reads).await.map(|(owners, _)| owners)
}

/// Reads the map over a connection.
async fn read_map_over(
    link: &RedisLink,
    command: &Cmd,
    clock: &Clock,
) -> Result<PartitionOwners, String> {
    let reply = timeout(MAP_READ_TIMEOUT, link.send(None, command, clock)).await;
    let reply = reply.map_err(|_| String::from("no reply in time"))?;
    let reply = reply.map_err(|fault| StoreError::from(fault).to_string())?;
    match link.target() {
        RedisTarget::Server(host, _) => parse_slots(&reply, host),
        RedisTarget::Master(_) => Err(String::from("no server of a cluster")),
    }
}

/// Reads the map over a new connection to a server.
async fn read_map_from(
    host: &str,
    port: u16,
    command: &Cmd,
    settings: &Settings,
) -> Result<PartitionOwners, String> {
    let connecting = connect::connect_to_server(settings, host, port);
    let connected = timeout(connect::CONNECT_TIMEOUT, connecting).await;
    let connected = connected.map_err(|_| String::from("no reply within a second"))?;
    let mut connection = connected.map_err(|error| connect::describe_error(&error))?;
    let reply = command.query_async(&mut connection.commands);
    let reply = timeout(MAP_READ_TIMEOUT, reply).await;
    let reply = reply.map_err(|_| String::from("no reply in time"))?;
    parse_slots(
        &reply.map_err(|error| connect::describe_error(&error))?,
        host,
    )
}

/// Parses the server of each partition from the reply to `CLUSTER SLOTS`. A server without a host is on `replying_host`.
///
/// # Errors
///
/// If the reply has another form, or no partition has a server; as text for logs.
fn parse_slots(reply: &Value, replying_host: &str) -> Result<PartitionOwners, String> {
    let malformed = || String::from("the reply to CLUSTER SLOTS is malformed");
    let Value::Array(ranges) = reply else {
        return Err(malformed());
    };
    let mut owners = vec![None; PARTITION_COUNT];
    let slots: Vec<u16> = (0..PARTITION_COUNT).map(slot_of).collect();
    for range in ranges {
        let Value::Array(range) = range else {
            return Err(malformed());
        };
        let [
            Value::Int(first),
            Value::Int(last),
            Value::Array(master),
            ..,
        ] = &range[..]
        else {
            return Err(malformed());
        };
        let [host, Value::Int(port), ..] = &master[..] else {
            return Err(malformed());
        };
        let host = match host {
            Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
            Value::SimpleString(host) => host.clone(),
            _ => String::new(),
        };
        let host = match host.as_str() {
            "" | "?" => replying_host.to_owned(),
            _ => host,
        };
        let port = u16::try_from(*port).map_err(|_| malformed())?;
        for (owner, slot) in owners.iter_mut().zip(&slots) {
            if (*first..=*last).contains(&i64::from(*slot)) {
                *owner = Some(RedisTarget::Server(host.clone(), port));
            }
        }
    }
    match owners.iter().all(Option::is_none) {
        true => Err(String::from("the cluster has no slots")),
        false => Ok(owners),
    }
}

/// The polynomial of CRC-16/XMODEM.
const CRC_POLYNOMIAL: u16 = 0x1021;
/// The number of slots of every cluster.
const SLOT_COUNT: u16 = 16_384;

/// The slot of a partition's keys: the CRC-16/XMODEM of the part in braces, modulo [`SLOT_COUNT`].
fn slot_of(partition: usize) -> u16 {
    let tag = format!("{partition:02x}");
    let crc = tag.bytes().fold(0_u16, |crc, byte| {
        let mixed = crc ^ (u16::from(byte) << 8);
        (0..8).fold(mixed, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ CRC_POLYNOMIAL,
        })
    });
    crc % SLOT_COUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers() {
        // By CLUSTER KEYSLOT.
        assert_eq!([0x00, 0x7f, 0xff].map(slot_of), [13_254, 4_194, 11_756]);
        let mut slots: Vec<u16> = (0..PARTITION_COUNT).map(slot_of).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(
            slots.len(),
            PARTITION_COUNT,
            "no two partitions share a slot"
        );
    }

    #[test]
    fn what_servers_say_of_slots() {
        let text = |text: &str| Value::BulkString(text.into());
        let range = |first, last, host: Value| {
            let master = Value::Array(vec![host, Value::Int(7_000), text("id")]);
            Value::Array(vec![Value::Int(first), Value::Int(last), master])
        };
        let here = Some(RedisTarget::Server("here".into(), 7_000));
        let there = Some(RedisTarget::Server("there".into(), 7_000));
        let reply = Value::Array(vec![
            range(0, 8_000, Value::Nil),
            range(8_001, 16_383, text("there")),
        ]);
        let owners = parse_slots(&reply, "here").unwrap();
        assert!(owners.iter().enumerate().all(|(partition, owner)| {
            *owner
                == if slot_of(partition) <= 8_000 {
                    here.clone()
                } else {
                    there.clone()
                }
        }));
        let half = Value::Array(vec![range(0, 8_000, text(""))]);
        assert!(parse_slots(&half, "here").unwrap().contains(&None));
        assert!(parse_slots(&Value::Array(vec![]), "here").is_err());
        assert!(parse_slots(&Value::Int(1), "here").is_err());
        assert!(parse_slots(&Value::Array(vec![Value::Nil]), "here").is_err());
    }
}
