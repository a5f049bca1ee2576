//! The state of one upstream's servers, shared by all workers. A reload that changes the upstream makes a new one and
//! keeps the state of servers that stay. Reads no clock.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::endpoint::Endpoint;
use super::gate::Gate;
use super::health::{EJECTED, FAILING, FULL, LEAST, STARTING, TRIAL};
use super::{Location, Server, Settings};
use crate::base::clock::Nanos;
use crate::limit::pressure::{Controller, Pressure, StepContext};
use crate::net::Address;

/// Most addresses of one name that are used.
const MOST: usize = 64;

/// See the module. Bound: [`MOST`] endpoints for each name.
#[derive(Debug)]
pub struct Servers {
    /// What it was made from.
    pub settings: Settings,
    configured: Vec<ConfiguredServer>,
    endpoints: RwLock<Arc<[Endpoint]>>,
    /// Notified when `endpoints` is replaced.
    changed: Notify,
    /// Which flags count here.
    mask: u8,
    /// Requests that count for the bounds.
    open: AtomicU32,
    pending: AtomicU32,
    steering: Option<Arc<Steering>>,
    /// Outlives reloads.
    core: Arc<PersistentState>,
}

/// A server as it is configured.
#[derive(Debug)]
struct ConfiguredServer {
    /// Its location.
    name: Arc<str>,
    /// The `Host` of requests that have none.
    host: String,
    /// Counts of addresses that the name no longer resolves to.
    removed: FailureCounts<AtomicU64>,
    lookups: Lookups,
}

/// Lookups of one name, one at a time.
#[derive(Debug)]
struct Lookups {
    /// The result of the last one; held while there is one.
    last: Arc<tokio::sync::Mutex<Result<(), String>>>,
    finished: AtomicU64,
}

impl ConfiguredServer {
    fn removed_counts(&self) -> FailureCounts<u64> {
        FailureCounts {
            ejections: self.removed.ejections.load(Relaxed),
            failed_checks: self.removed.failed_checks.load(Relaxed),
        }
    }
}

/// Counters of a server's failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureCounts<N> {
    /// How often it was ejected.
    pub ejections: N,
    /// Checks of it that failed.
    pub failed_checks: N,
}

/// How much the upstream bears, where something gives way to it.
#[derive(Debug)]
struct Steering {
    pressure: Arc<Pressure>,
    controller: Mutex<Controller>,
}

#[derive(Debug, Default)]
struct PersistentState {
    gate: Gate,
    /// Held while servers are counted to eject one, and never across a wait.
    ejecting: Mutex<()>,
}

/// The state of a server, as the admin listener shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// It is asked.
    Up,
    /// It is asked less than its weight says.
    Starting,
    /// It is left alone because requests to it failed.
    Ejected,
    /// It is left alone because its checks fail.
    Failing,
    /// It did not accept the last connection in time.
    Unreachable,
}

impl ServerState {
    /// Whether requests go to it.
    pub fn is_asked(self) -> bool {
        !matches!(self, ServerState::Ejected | ServerState::Failing)
    }

    /// As the admin listener writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            ServerState::Up => "up",
            ServerState::Starting => "starting",
            ServerState::Ejected => "ejected",
            ServerState::Failing => "failing",
            ServerState::Unreachable => "unreachable",
        }
    }
}

/// Which bound an upstream has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBound {
    /// Open requests.
    Open,
    /// Requests that wait for a connection.
    Pending,
}

/// That of before, if there was one: what it has learnt holds, however it is steered from now on.
fn steering(
    settings: &Settings,
    before: Option<&Arc<Servers>>,
    now: Nanos,
) -> Option<Arc<Steering>> {
    let wanted = settings.pressure.clone()?;
    if let Some(kept) = before.and_then(|before| before.steering.clone()) {
        kept.controller.lock().set_settings(wanted);
        return Some(kept);
    }
    let (pressure, controller) = Controller::new(wanted, 1, now);
    let controller = Mutex::new(controller);
    Some(Arc::new(Steering {
        pressure,
        controller,
    }))
}

impl Servers {
    /// Knows what `before` knew of servers that stay.
    pub fn new(settings: Settings, before: Option<&Arc<Servers>>, now: Nanos) -> Arc<Servers> {
        if let Some(before) = before.filter(|before| before.settings == settings) {
            return before.clone();
        }
        let name = |server: &Server| {
            let removed = before.map_or_else(FailureCounts::default, |before| {
                before.removed_counts(server)
            });
            ConfiguredServer {
                name: server.location.to_string().into(),
                host: server.host(),
                removed: FailureCounts {
                    ejections: removed.ejections.into(),
                    failed_checks: removed.failed_checks.into(),
                },
                lookups: Lookups {
                    last: Arc::new(Ok(()).into()),
                    finished: 0.into(),
                },
            }
        };
        let configured: Vec<ConfiguredServer> = settings.servers.iter().map(name).collect();
        let mut all = Vec::new();
        for (place, server) in settings.servers.iter().enumerate() {
            let kept = before.map_or_else(Vec::new, |before| before.endpoints_of(server));
            if kept.is_empty() {
                let address = server.location.address();
                let endpoint = Endpoint::new(place, &configured[place].name, address);
                if before.is_some() {
                    endpoint.health.start_slowly(now);
                }
                all.push(endpoint);
            }
            all.extend(kept.into_iter().map(|kept| Endpoint {
                server: place,
                ..kept
            }));
        }
        let counts = |flag, on| if on { flag } else { 0 };
        Arc::new(Servers {
            configured,
            endpoints: RwLock::new(all.into()),
            changed: Notify::new(),
            mask: counts(EJECTED | TRIAL, settings.eject.is_some())
                | counts(FAILING, settings.check.is_some())
                | counts(STARTING, settings.slow_start.is_some()),
            open: AtomicU32::new(0),
            pending: AtomicU32::new(0),
            steering: steering(&settings, before, now),
            core: before.map_or_else(Arc::default, |before| before.core.clone()),
            settings,
        })
    }

    /// The pressure on it, where something gives way to that.
    pub fn pressure(&self) -> Option<&Arc<Pressure>> {
        self.steering.as_ref().map(|steering| &steering.pressure)
    }

    /// To be called every [`CONTROL_STEP`](crate::limit::pressure::CONTROL_STEP), by one worker.
    pub fn steer(&self, now: Nanos, around: &StepContext) {
        if let Some(steering) = &self.steering {
            steering.controller.lock().step(now, around);
        }
    }

    /// The endpoints of this server, if it is one of these.
    fn endpoints_of(&self, server: &Server) -> Vec<Endpoint> {
        let same = |other: &Server| other.is(server);
        let place = self.settings.servers.iter().position(same);
        let endpoints = self.endpoints();
        let of_it = endpoints.iter().filter(|one| Some(one.server) == place);
        of_it.cloned().collect()
    }

    fn removed_counts(&self, server: &Server) -> FailureCounts<u64> {
        let same = |other: &Server| other.is(server);
        let place = self.settings.servers.iter().position(same);
        place.map_or_else(FailureCounts::default, |place| {
            self.configured[place].removed_counts()
        })
    }

    /// The endpoints that names resolve to now, in the order of the settings.
    pub fn endpoints(&self) -> Arc<[Endpoint]> {
        self.endpoints.read().clone()
    }

    /// Whether [`Servers::endpoints`] would give the same.
    pub fn is_current(&self, endpoints: &Arc<[Endpoint]>) -> bool {
        Arc::ptr_eq(&self.endpoints.read(), endpoints)
    }

    /// Waits until the endpoints change. For one task.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Resolves the name of a server. On an error its endpoints stay. Callers that come meanwhile wait for the same
    /// result, also where the first one has gone: the system's resolver holds a thread for each question, and cannot be
    /// told to give up.
    pub async fn look_up(self: &Arc<Self>, server: usize, now: Nanos) -> io::Result<()> {
        let lookups = &self.configured[server].lookups;
        let before = lookups.finished.load(Relaxed);
        let mut last = lookups.last.clone().lock_owned().await;
        if lookups.finished.load(Relaxed) != before {
            return last.clone().map_err(io::Error::other);
        }
        let servers = self.clone();
        let resolving = tokio::spawn(async move {
            *last = servers.resolve(server, now).await;
            let lookups = &servers.configured[server].lookups;
            lookups.finished.fetch_add(1, Relaxed);
            last.clone()
        });
        resolving.await?.map_err(io::Error::other)
    }

    async fn resolve(&self, server: usize, now: Nanos) -> Result<(), String> {
        let Location::Host(host, port) = &self.settings.servers[server].location else {
            return Ok(());
        };
        let found = tokio::net::lookup_host((host.as_str(), *port)).await;
        let found = found.map_err(|error| error.to_string())?;
        let found: Vec<SocketAddr> = found.take(MOST).collect();
        if found.is_empty() {
            return Err(String::from("the name has no address"));
        }
        self.set_addresses(server, found, now);
        Ok(())
    }

    /// Replaces the endpoints of a server; what is known of addresses that stay is kept.
    pub(super) fn set_addresses(&self, server: usize, mut found: Vec<SocketAddr>, now: Nanos) {
        // DNS servers rotate the order.
        found.sort_unstable();
        found.dedup();
        let found: Vec<Address> = found.into_iter().map(Address::Tcp).collect();
        let mut endpoints = self.endpoints.write();
        let of_name = |one: &&Endpoint| one.server == server;
        let known = || endpoints.iter().filter(of_name);
        if known()
            .map(|one| one.address.as_ref())
            .eq(found.iter().map(Some))
        {
            return;
        }
        let unresolved = |one: &Endpoint| one.address.is_none();
        let at_full_share = known().any(|one| unresolved(one) && one.health.flags(STARTING) == 0);
        let removed = &self.configured[server].removed;
        for one in known().filter(|one| one.address.as_ref().is_none_or(|at| !found.contains(at))) {
            removed.ejections.fetch_add(one.health.ejections(), Relaxed);
            let failed_checks = one.health.failed_checks();
            removed.failed_checks.fetch_add(failed_checks, Relaxed);
        }
        let endpoint = |address: &Address| {
            let kept = known().find(|one| one.address.as_ref() == Some(address));
            kept.cloned().unwrap_or_else(|| {
                let name = &self.configured[server].name;
                let endpoint = Endpoint::new(server, name, Some(address.clone()));
                if !at_full_share {
                    endpoint.health.start_slowly(now);
                }
                endpoint
            })
        };
        let before = endpoints.iter().filter(|one| one.server < server);
        let after = endpoints.iter().filter(|one| one.server > server);
        let all = before.cloned().chain(found.iter().map(endpoint));
        let all: Arc<[Endpoint]> = all.chain(after.cloned()).collect();
        *endpoints = all;
        drop(endpoints);
        self.changed.notify_one();
    }

    /// The `Host` of requests to this server that have none.
    pub fn host(&self, server: usize) -> &str {
        let server = self.configured.get(server);
        server.map_or("", |server| &server.host)
    }

    /// Calls `each` for each configured server, with its endpoints and the counts of removed ones.
    pub fn for_each_server(&self, mut each: impl FnMut(&str, &[Endpoint], FailureCounts<u64>)) {
        let endpoints = self.endpoints();
        let chunks = endpoints.chunk_by(|one, other| one.server == other.server);
        for (server, all) in self.configured.iter().zip(chunks) {
            each(&server.name, all, server.removed_counts());
        }
    }

    /// Whether anybody may be asked for a connection.
    pub fn gate(&self) -> &Gate {
        &self.core.gate
    }

    /// Nothing is wrong with it.
    pub fn is_plain(&self, endpoint: &Endpoint) -> bool {
        endpoint.health.flags(self.mask) == 0
    }

    /// How much of its weight counts now, of [`FULL`]. Ends an ejection whose time is over.
    pub fn share(&self, endpoint: &Endpoint, now: Nanos) -> u32 {
        let health = &endpoint.health;
        self.readmit(endpoint, now);
        let flags = health.flags(self.mask);
        if flags & (EJECTED | FAILING) != 0 {
            return 0;
        }
        match self.settings.slow_start {
            _ if flags & TRIAL != 0 => LEAST,
            Some(span) if flags & STARTING != 0 => health.started(span, now),
            _ => FULL,
        }
    }

    fn readmit(&self, endpoint: &Endpoint, now: Nanos) {
        let health = &endpoint.health;
        let Some(eject) = self.settings.eject.filter(|_| health.is_due(now)) else {
            return;
        };
        let _one = self.core.ejecting.lock();
        if health.is_due(now) {
            health.readmit(eject, now);
            tracing::info!(upstream = %self.settings.name, server = %endpoint, "asked again, on trial");
        }
    }

    /// A request to it failed. Ejects it when that is too often, but never so that less than half of
    /// the servers are left.
    pub fn failed(&self, endpoint: &Endpoint, now: Nanos) {
        let health = &endpoint.health;
        let Some(eject) = self.settings.eject else {
            return;
        };
        if !health.failed(eject.after) {
            return;
        }
        let _one = self.core.ejecting.lock();
        let all = self.endpoints();
        let out = |one: &&Endpoint| one.health.flags(self.mask) & (EJECTED | FAILING) != 0;
        let others = all.iter().filter(out).count();
        if health.flags(EJECTED) != 0 || (others + 1) * 2 > all.len() {
            return;
        }
        let length = health.eject(eject, now);
        tracing::warn!(upstream = %self.settings.name, server = %endpoint, ?length, "ejected");
    }

    /// Its checks have come to a verdict.
    pub fn judged(&self, endpoint: &Endpoint, well: bool, now: Nanos) {
        endpoint.health.judged(well, now);
        let upstream = &self.settings.name;
        if well {
            tracing::info!(%upstream, server = %endpoint, "its checks succeed again");
        } else {
            tracing::warn!(%upstream, server = %endpoint, "its checks fail");
        }
    }

    /// How it stands.
    pub fn state(&self, endpoint: &Endpoint, now: Nanos) -> ServerState {
        let starting = self.share(endpoint, now) < FULL;
        match endpoint.health.flags(self.mask) {
            flags if flags & FAILING != 0 => ServerState::Failing,
            flags if flags & EJECTED != 0 => ServerState::Ejected,
            _ if endpoint.health.is_unreachable() => ServerState::Unreachable,
            _ if starting => ServerState::Starting,
            _ => ServerState::Up,
        }
    }

    /// Counts a request in, or says which bound forbids it. Undone by [`Servers::leave`].
    pub fn enter(&self, bound: RequestBound) -> Result<(), u32> {
        let (count, most) = self.bound(bound);
        let Some(most) = most else { return Ok(()) };
        if count.fetch_add(1, Relaxed) < most {
            return Ok(());
        }
        count.fetch_sub(1, Relaxed);
        Err(most)
    }

    /// Counts a request in, whatever the bound: one that is repeated has its place already, and leaves it when
    /// it has the next. Undone by [`Servers::leave`].
    pub fn enter_again(&self, bound: RequestBound) {
        if let (count, Some(_)) = self.bound(bound) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Counts it out again.
    pub fn leave(&self, bound: RequestBound) {
        if let (count, Some(_)) = self.bound(bound) {
            count.fetch_sub(1, Relaxed);
        }
    }

    fn bound(&self, bound: RequestBound) -> (&AtomicU32, Option<u32>) {
        match bound {
            RequestBound::Open => (&self.open, self.settings.bounds.open),
            RequestBound::Pending => (&self.pending, self.settings.bounds.pending),
        }
    }
}

#[cfg(test)]
mod tests;
