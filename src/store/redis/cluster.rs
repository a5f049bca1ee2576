//! A cluster as one worker sees it: which server has which shelf, and a link to each. A slow server does not slow down
//! calls to the others, and no call waits while the map is read again.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_ok;
use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::time::{sleep, timeout};

use super::link::{RedisFault, RedisLink};
use super::reach::{self, RedisTarget};
use super::settings::Settings;
use crate::base::clock::{Clock, Nanos};
use crate::store::shared::call::StoreError;

/// The number of shelves. Each lies in one slot, and no two in the same.
pub(super) const SHELVES: usize = 256;
/// Most redirections of one call.
const MOST_REDIRECTIONS: usize = 8;
/// The pause before a call is tried again, while a connection is made or a slot is moved.
const RETRY_PAUSE: Duration = Duration::from_millis(1);
/// Time limit of the call that reads the map.
const MAP_PATIENCE: Duration = Duration::from_millis(300);
/// Shortest time between two reads of the map.
const MAP_PAUSE: Nanos = Nanos::from_millis(200);

struct SlotMap {
    links: Vec<RedisLink>,
    /// The index in `links` of each shelf's server, if a server has it; empty before there was a map.
    owners: Vec<Option<u16>>,
    /// The same indices, each once.
    leading: Vec<u16>,
    /// Whether the map is known to be out of date.
    stale: bool,
    reading: bool,
    next: Nanos,
    /// Why there is no map.
    cause: Option<String>,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Cluster {
    map: Arc<Mutex<SlotMap>>,
    longest: Nanos,
}

impl Cluster {
    /// A cluster without a map yet; `longest` bounds the pause between attempts to connect.
    pub(super) fn new(longest: Nanos) -> Cluster {
        Cluster {
            map: Arc::new(Mutex::new(SlotMap {
                links: Vec::new(),
                owners: Vec::new(),
                leading: Vec::new(),
                stale: true,
                reading: false,
                next: Nanos::ZERO,
                cause: None,
            })),
            longest,
        }
    }

    /// Whether all shelves can be reached, or none was ever needed.
    pub(super) fn ready(&self) -> bool {
        let map = self.map.lock();
        let idle = map.next == Nanos::ZERO && !map.reading;
        idle || (!map.owners.is_empty() && map.owners.iter().all(|owner| map.is_up(*owner)))
    }

    /// One shelf of each server.
    pub(super) fn heads(&self) -> Vec<usize> {
        let map = self.map.lock();
        let first = |place| map.owners.iter().position(|owner| *owner == Some(place));
        map.leading.iter().copied().filter_map(first).collect()
    }

    pub(super) fn hurry(&self, clock: &Clock) {
        let mut map = self.map.lock();
        map.next = map.next.min(clock.now().after(MAP_PAUSE));
        map.links.iter().for_each(|link| link.hurry(clock));
    }

    /// Gives up all connections.
    pub(super) fn broken(&self, cause: &str, clock: &Clock) {
        let mut map = self.map.lock();
        map.stale = true;
        map.links.iter().for_each(|link| link.broken(cause, clock));
    }

    /// Connects where there is no connection, and reads the map where it is out of date.
    pub(super) fn tend(&self, settings: &Settings, clock: &Clock) {
        let mut map = self.map.lock();
        map.links.iter().for_each(|link| link.tend(settings, clock));
        // A server that is down may have been replaced.
        map.stale |= !map.owners.iter().all(|owner| map.is_up(*owner));
        if !map.stale || map.reading || clock.now() < map.next {
            return;
        }
        map.reading = true;
        map.stale = false;
        let up = map.links.iter().filter(|link| link.is_up());
        let up: Vec<RedisLink> = up.cloned().collect();
        drop(map);
        let (cluster, settings, clock) = (self.clone(), settings.clone(), clock.clone());
        tokio::spawn(async move {
            let read = read_map(&up, &settings, &clock).await;
            let mut map = cluster.map.lock();
            map.reading = false;
            map.next = clock.now().after(MAP_PAUSE);
            match read {
                Ok(owners) => map.replace(owners, cluster.longest),
                Err(cause) => {
                    tracing::debug!(store = %settings.address, cause, "cannot read the cluster's slots");
                    map.stale = true;
                    map.next = clock.now().after(Nanos(MAP_PAUSE.0 * 2));
                    map.cause = Some(cause);
                }
            }
            map.links
                .iter()
                .for_each(|link| link.tend(&settings, &clock));
        });
    }

    /// Sends a command to the server that has the shelf, and follows redirections.
    pub(super) async fn ask(
        &self,
        shelf: usize,
        command: &Cmd,
        settings: &Settings,
        clock: &Clock,
    ) -> Result<Value, RedisFault> {
        let mut importing: Option<RedisLink> = None;
        let mut redirections = 0;
        loop {
            let fault = match importing.take() {
                Some(link) => {
                    let asking = redis::cmd("ASKING");
                    link.ask(Some(&asking), command, clock).await
                }
                None => self.owner(shelf)?.ask(None, command, clock).await,
            };
            let fault = match fault {
                Ok(value) => return Ok(value),
                Err(fault) => fault,
            };
            redirections += 1;
            let node = match &fault {
                RedisFault::Failed(error) => error.redirect_node().map(|(node, _)| node.to_owned()),
                RedisFault::NotConnected(_) => None,
            };
            match (fault.code(), node) {
                _ if redirections > MOST_REDIRECTIONS => return Err(fault),
                (Some("MOVED"), Some(node)) => {
                    let link = self.record_move(shelf, &node);
                    until_up(link, settings, clock).await;
                }
                (Some("ASK"), Some(node)) => {
                    let link = self.link_at(shelf, &node);
                    until_up(link.clone(), settings, clock).await;
                    importing = link;
                }
                (Some("TRYAGAIN"), _) => sleep(RETRY_PAUSE).await,
                (Some("NOSCRIPT"), _) => return Err(fault),
                _ => {
                    self.map.lock().stale = true;
                    return Err(fault);
                }
            }
        }
    }

    /// The link to the server that has a shelf. Where one server is away the whole store counts as away: gateways that
    /// use other keys must come to the same view, at the same time.
    fn owner(&self, shelf: usize) -> Result<RedisLink, RedisFault> {
        let mut map = self.map.lock();
        let link = |place: &u16| &map.links[usize::from(*place)];
        if let Some(down) = map.leading.iter().map(link).find(|link| link.is_down()) {
            return Err(down.fault());
        }
        if let Some(owner) = map.owners.get(shelf).copied().flatten() {
            return Ok(link(&owner).clone());
        }
        map.stale = true;
        let known = !map.owners.is_empty();
        Err(match known {
            true => RedisFault::NotConnected(StoreError::Other(Cow::Borrowed(
                "some of the cluster's slots have no server",
            ))),
            false => RedisFault::away(map.cause.as_deref()),
        })
    }

    /// Records that a shelf is on another server.
    fn record_move(&self, shelf: usize, node: &str) -> Option<RedisLink> {
        let link = self.link_at(shelf, node)?;
        let mut map = self.map.lock();
        map.stale = true;
        let place = map
            .links
            .iter()
            .position(|known| known.target() == link.target())?;
        if let Some(owner) = map.owners.get_mut(shelf) {
            *owner = Some(place as u16);
        }
        map.update_leading();
        Some(link)
    }

    /// The link to a server. An empty host stands for the host of the server that sent the redirection.
    fn link_at(&self, shelf: usize, node: &str) -> Option<RedisLink> {
        let (host, port) = node.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let mut map = self.map.lock();
        let host = match host {
            "" | "?" => {
                let owner = map.owners.get(shelf).copied().flatten()?;
                match map.links[usize::from(owner)].target() {
                    RedisTarget::Server(host, _) => host.clone(),
                    RedisTarget::Led(_) => return None,
                }
            }
            host => host.trim_matches(['[', ']']).to_owned(),
        };
        let place = map.place(RedisTarget::Server(host, port), self.longest);
        Some(map.links[place].clone())
    }
}

impl SlotMap {
    fn is_up(&self, owner: Option<u16>) -> bool {
        owner.is_some_and(|place| self.links[usize::from(place)].is_up())
    }

    fn place(&mut self, target: RedisTarget, longest: Nanos) -> usize {
        let known = self.links.iter().position(|link| *link.target() == target);
        known.unwrap_or_else(|| {
            self.links.push(RedisLink::new(target, longest));
            self.links.len() - 1
        })
    }

    fn update_leading(&mut self) {
        self.leading = self.owners.iter().flatten().copied().collect();
        self.leading.sort_unstable();
        self.leading.dedup();
    }

    fn replace(&mut self, owners: Vec<Option<RedisTarget>>, longest: Nanos) {
        let used = |link: &RedisLink| owners.iter().flatten().any(|owner| owner == link.target());
        self.links.retain(used);
        let each = owners.into_iter();
        let places = each.map(|owner| owner.map(|target| self.place(target, longest) as u16));
        self.owners = places.collect();
        self.update_leading();
        self.stale = self.owners.contains(&None);
        self.cause = None;
    }
}

/// Waits up to 20 ms for a connection that is being made.
async fn until_up(link: Option<RedisLink>, settings: &Settings, clock: &Clock) {
    let Some(link) = link else { return };
    link.tend(settings, clock);
    for _ in 0..20 {
        if link.is_up() {
            return;
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Reads the server of each shelf: the first reply counts, of servers that are connected, or else of those in the
/// address.
async fn read_map(
    up: &[RedisLink],
    settings: &Settings,
    clock: &Clock,
) -> Result<Vec<Option<RedisTarget>>, String> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let command = &command;
    let known = up.iter().map(|link| {
        let answer = async move {
            let answer = timeout(MAP_PATIENCE, link.ask(None, command, clock)).await;
            let answer = answer.map_err(|_| String::from("no reply in time"))?;
            let answer = answer.map_err(|fault| StoreError::from(fault).to_string())?;
            match link.target() {
                RedisTarget::Server(host, _) => parse_slots(&answer, host),
                RedisTarget::Led(_) => Err(String::from("no server of a cluster")),
            }
        };
        answer.boxed()
    });
    let known: Vec<_> = known.collect();
    if !known.is_empty()
        && let Ok((owners, _)) = select_ok(known).await
    {
        return Ok(owners);
    }
    let named = settings.address.hosts.iter().map(|(host, port)| {
        let answer = async move {
            let made = timeout(
                reach::PATIENCE,
                reach::connect_to_server(settings, host, *port),
            )
            .await;
            let made = made.map_err(|_| String::from("no reply within a second"))?;
            let mut connection = made.map_err(|error| reach::describe(&error))?;
            let answer = timeout(MAP_PATIENCE, command.query_async(&mut connection.commands)).await;
            let answer = answer.map_err(|_| String::from("no reply in time"))?;
            parse_slots(&answer.map_err(|error| reach::describe(&error))?, host)
        };
        answer.boxed()
    });
    select_ok(named).await.map(|(owners, _)| owners)
}

/// Reads the server of each shelf from the reply to `CLUSTER SLOTS`.
fn parse_slots(answer: &Value, asked: &str) -> Result<Vec<Option<RedisTarget>>, String> {
    let odd = || String::from("the reply to CLUSTER SLOTS is malformed");
    let Value::Array(ranges) = answer else {
        return Err(odd());
    };
    let mut owners = vec![None; SHELVES];
    let slots: Vec<u16> = (0..SHELVES).map(slot).collect();
    for range in ranges {
        let Value::Array(range) = range else {
            return Err(odd());
        };
        let [
            Value::Int(first),
            Value::Int(last),
            Value::Array(master),
            ..,
        ] = &range[..]
        else {
            return Err(odd());
        };
        let [host, Value::Int(port), ..] = &master[..] else {
            return Err(odd());
        };
        let host = match host {
            Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
            Value::SimpleString(host) => host.clone(),
            _ => String::new(),
        };
        let host = match host.as_str() {
            "" | "?" => asked.to_owned(),
            _ => host,
        };
        let port = u16::try_from(*port).map_err(|_| odd())?;
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

/// The slot of a shelf's keys: the CRC-16/XMODEM of the part in braces, modulo 16,384.
fn slot(shelf: usize) -> u16 {
    let tag = format!("{shelf:02x}");
    let crc = tag.bytes().fold(0_u16, |crc, byte| {
        let mixed = crc ^ (u16::from(byte) << 8);
        (0..8).fold(mixed, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    });
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers() {
        // By CLUSTER KEYSLOT.
        assert_eq!([0x00, 0x7f, 0xff].map(slot), [13_254, 4_194, 11_756]);
        let mut slots: Vec<u16> = (0..SHELVES).map(slot).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), SHELVES, "no two shelves share a slot");
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
        let answer = Value::Array(vec![
            range(0, 8_000, Value::Nil),
            range(8_001, 16_383, text("there")),
        ]);
        let owners = parse_slots(&answer, "here").unwrap();
        assert!(owners.iter().enumerate().all(|(shelf, owner)| {
            *owner
                == if slot(shelf) <= 8_000 {
                    here.clone()
                } else {
                    there.clone()
                }
        }));
        let part = Value::Array(vec![range(0, 8_000, text(""))]);
        assert!(parse_slots(&part, "here").unwrap().contains(&None));
        assert!(parse_slots(&Value::Array(vec![]), "here").is_err());
        assert!(parse_slots(&Value::Int(1), "here").is_err());
        assert!(parse_slots(&Value::Array(vec![Value::Nil]), "here").is_err());
    }
}
