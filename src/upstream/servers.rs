//! The state of one upstream's servers, shared by all workers. A reload that changes the upstream makes a new state, and
//! servers that stay keep their health in it. `balancer` chooses servers; `server_watch` runs checks and lookups.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::endpoint::Endpoint;
use super::gate::Gate;
use super::server_health::{
    EJECTED, FAILING, FULL_FACTOR, MIN_FACTOR, STARTING, ServerHealth, TRIAL,
};
use super::server_state::ServerState;
use super::{Location, Server, Settings};
use crate::base::clock::Nanos;
use crate::limit::pressure::{Controller, Pressure, StepContext};
use crate::net::Address;

/// Maximum number of addresses of one name that are used. A name server may return any number.
const MAX_ADDRESSES: usize = 64;

/// The state of one upstream's servers. Bound: [`MAX_ADDRESSES`] endpoints for each name, one for each other server.
#[derive(Debug)]
pub struct Servers {
    /// The settings of the upstream.
    pub settings: Settings,
    configured: Vec<ConfiguredServer>,
    /// The endpoints in the order of the settings. Each server has at least one.
    endpoints: RwLock<Arc<[Endpoint]>>,
    /// Notified when `endpoints` is replaced.
    endpoints_changed: Notify,
    /// The health flags that count with these settings: those of a feature that is off are ignored.
    flag_mask: u8,
    /// The number of open requests, counted only if they are bounded.
    open_requests: AtomicU32,
    /// The number of requests that wait for a connection, counted only if they are bounded.
    pending_requests: AtomicU32,
    pressure_control: Option<Arc<PressureControl>>,
    persistent: Arc<PersistentState>,
}

/// A server as it is configured.
#[derive(Debug)]
struct ConfiguredServer {
    /// The location, as it is configured.
    name: Arc<str>,
    /// The `Host` of requests that have none.
    host: String,
    /// The counts of endpoints that the name no longer resolves to.
    removed_counts: FailureCounts<AtomicU64>,
    lookups: Lookups,
}

/// The lookups of one name, one at a time.
#[derive(Debug)]
struct Lookups {
    /// The result of the last lookup, with the text of its error. Locked while a lookup is under way.
    last_result: Arc<tokio::sync::Mutex<Result<(), String>>>,
    /// The number of finished lookups.
    finished_count: AtomicU64,
}

impl ConfiguredServer {
    /// Adds the counts of an endpoint that is removed.
    fn add_removed_counts(&self, health: &ServerHealth) {
        let FailureCounts {
            ejections,
            failed_checks,
        } = &self.removed_counts;
        ejections.fetch_add(health.ejections(), Relaxed);
        failed_checks.fetch_add(health.failed_checks(), Relaxed);
    }

    fn removed_counts(&self) -> FailureCounts<u64> {
        FailureCounts {
            ejections: self.removed_counts.ejections.load(Relaxed),
            failed_checks: self.removed_counts.failed_checks.load(Relaxed),
        }
    }
}

/// Counters of a server's failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureCounts<N> {
    /// The number of ejections.
    pub ejections: N,
    /// The number of failed health checks.
    pub failed_checks: N,
}

/// The measured pressure on the upstream, and the controller that computes what follows from it.
#[derive(Debug)]
struct PressureControl {
    pressure: Arc<Pressure>,
    controller: Mutex<Controller>,
}

/// The state of an upstream that outlives reloads.
#[derive(Debug, Default)]
struct PersistentState {
    gate: Gate,
    /// Held while endpoints are counted to eject one, and while one is readmitted. Never held across an await.
    ejection_lock: Mutex<()>,
}

/// A bound on an upstream's concurrent requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBound {
    /// The bound on open requests.
    Open,
    /// The bound on requests that wait for a connection.
    Pending,
}

/// The pressure control for these settings; `None` if they have none. The control of `previous` is kept, with its
/// measurements, and gets the new settings.
fn pressure_control(
    settings: &Settings,
    previous: Option<&Arc<Servers>>,
    now: Nanos,
) -> Option<Arc<PressureControl>> {
    let settings = settings.pressure.clone()?;
    if let Some(control) = previous.and_then(|servers| servers.pressure_control.clone()) {
        control.controller.lock().set_settings(settings);
        return Some(control);
    }
    // One gateway, until the first step states their number.
    let (pressure, controller) = Controller::new(settings, 1, now);
    Some(Arc::new(PressureControl {
        pressure,
        controller: Mutex::new(controller),
    }))
}

/// The configured servers, with the counts of removed endpoints that `previous` has.
fn configured_servers(
    settings: &Settings,
    previous: Option<&Arc<Servers>>,
) -> Vec<ConfiguredServer> {
    let configured = settings.servers.iter().map(|server| {
        let removed_counts = previous.map_or_else(FailureCounts::default, |servers| {
            servers.removed_counts(server)
        });
        ConfiguredServer {
            name: server.location.to_string().into(),
            host: server.host(),
            removed_counts: FailureCounts {
                ejections: removed_counts.ejections.into(),
                failed_checks: removed_counts.failed_checks.into(),
            },
            lookups: Lookups {
                last_result: Arc::new(Ok(()).into()),
                finished_count: 0.into(),
            },
        }
    });
    configured.collect()
}

/// The endpoints of the configured servers. Servers of `previous` keep theirs; beside a `previous`, others start slowly.
fn initial_endpoints(
    settings: &Settings,
    configured: &[ConfiguredServer],
    previous: Option<&Arc<Servers>>,
    now: Nanos,
) -> Arc<[Endpoint]> {
    let mut endpoints = Vec::new();
    for (index, server) in settings.servers.iter().enumerate() {
        let kept_endpoints = previous.map_or_else(Vec::new, |servers| servers.endpoints_of(server));
        if kept_endpoints.is_empty() {
            let address = server.location.address();
            let endpoint = Endpoint::new(index, &configured[index].name, address);
            if previous.is_some() {
                endpoint.health.start_slowly(now);
            }
            endpoints.push(endpoint);
        }
        endpoints.extend(kept_endpoints.into_iter().map(|endpoint| Endpoint {
            server_index: index,
            ..endpoint
        }));
    }
    endpoints.into()
}

impl Servers {
    /// The state for these settings. Servers that `previous` has too keep their endpoints and counts. With the same
    /// settings, `previous` itself is returned.
    pub fn new(settings: Settings, previous: Option<&Arc<Servers>>, now: Nanos) -> Arc<Servers> {
        if let Some(unchanged) = previous.filter(|servers| servers.settings == settings) {
            return unchanged.clone();
        }
        let configured = configured_servers(&settings, previous);
        let endpoints = initial_endpoints(&settings, &configured, previous, now);
        let mask_of = |flag, is_used| if is_used { flag } else { 0 };
        Arc::new(Servers {
            configured,
            endpoints: RwLock::new(endpoints),
            endpoints_changed: Notify::new(),
            flag_mask: mask_of(EJECTED | TRIAL, settings.ejection.is_some())
                | mask_of(FAILING, settings.health_check.is_some())
                | mask_of(STARTING, settings.slow_start.is_some()),
            open_requests: AtomicU32::new(0),
            pending_requests: AtomicU32::new(0),
            pressure_control: pressure_control(&settings, previous, now),
            persistent: previous.map_or_else(Arc::default, |servers| servers.persistent.clone()),
            settings,
        })
    }

    /// The pressure on the upstream; `None` if no elastic limit and no priority depends on it.
    pub fn pressure(&self) -> Option<&Arc<Pressure>> {
        let control = self.pressure_control.as_ref();
        control.map(|control| &control.pressure)
    }

    /// Computes the pressure anew. One worker must call it every
    /// [`CONTROL_STEP`](crate::limit::pressure::CONTROL_STEP).
    pub fn step_pressure(&self, now: Nanos, context: &StepContext) {
        if let Some(control) = &self.pressure_control {
            control.controller.lock().step(now, context);
        }
    }

    /// The index of the server with the same location and TLS settings; `None` if there is none.
    fn index_of(&self, server: &Server) -> Option<usize> {
        let mut servers = self.settings.servers.iter();
        servers.position(|other| other.is_same(server))
    }

    /// The endpoints of this server; empty if the server is not configured here.
    fn endpoints_of(&self, server: &Server) -> Vec<Endpoint> {
        let index = self.index_of(server);
        let endpoints = self.endpoints();
        let is_of_server = |endpoint: &&Endpoint| Some(endpoint.server_index) == index;
        endpoints.iter().filter(is_of_server).cloned().collect()
    }

    fn removed_counts(&self, server: &Server) -> FailureCounts<u64> {
        let configured = self.index_of(server).map(|index| &self.configured[index]);
        configured.map_or_else(FailureCounts::default, ConfiguredServer::removed_counts)
    }

    /// The endpoints that names currently resolve to, in the order of the settings.
    pub fn endpoints(&self) -> Arc<[Endpoint]> {
        self.endpoints.read().clone()
    }

    /// Whether these are the current endpoints.
    pub fn is_current(&self, endpoints: &Arc<[Endpoint]>) -> bool {
        Arc::ptr_eq(&self.endpoints.read(), endpoints)
    }

    /// Waits until the endpoints have changed since the last call. Only one task may wait.
    pub async fn wait_for_change(&self) {
        self.endpoints_changed.notified().await;
    }

    /// Resolves the name of a server, and updates its endpoints. Calls during a lookup wait for its result. The lookup
    /// goes on when its caller is dropped: the system's resolver holds a thread for each, and cannot be cancelled.
    ///
    /// # Errors
    ///
    /// The name cannot be resolved or has no address. The endpoints stay as they are.
    pub async fn look_up_name(self: &Arc<Self>, server_index: usize, now: Nanos) -> io::Result<()> {
        let lookups = &self.configured[server_index].lookups;
        let count_before_wait = lookups.finished_count.load(Relaxed);
        let mut result = lookups.last_result.clone().lock_owned().await;
        // Another caller has looked the name up while this one waited for the lock.
        if lookups.finished_count.load(Relaxed) != count_before_wait {
            return result.clone().map_err(io::Error::other);
        }
        let servers = self.clone();
        let lookup = tokio::spawn(async move {
            *result = servers.resolve_name(server_index, now).await;
            let lookups = &servers.configured[server_index].lookups;
            lookups.finished_count.fetch_add(1, Relaxed);
            result.clone()
        });
        lookup.await?.map_err(io::Error::other)
    }

    /// Looks up the addresses of a server, and sets them. The error is a text for the log.
    async fn resolve_name(&self, server_index: usize, now: Nanos) -> Result<(), String> {
        let Location::Host(host, port) = &self.settings.servers[server_index].location else {
            return Ok(());
        };
        let addresses = tokio::net::lookup_host((host.as_str(), *port)).await;
        let addresses = addresses.map_err(|error| error.to_string())?;
        let addresses: Vec<SocketAddr> = addresses.take(MAX_ADDRESSES).collect();
        if addresses.is_empty() {
            return Err(String::from("the name has no address"));
        }
        self.set_addresses(server_index, addresses, now);
        Ok(())
    }

    /// Replaces the endpoints of a server. Addresses that stay keep their health. New ones start slowly, except the first
    /// ones of a server that does not start slowly itself.
    pub(super) fn set_addresses(
        &self,
        server_index: usize,
        mut addresses: Vec<SocketAddr>,
        now: Nanos,
    ) {
        // DNS servers rotate the order.
        addresses.sort_unstable();
        addresses.dedup();
        let addresses: Vec<Address> = addresses.into_iter().map(Address::Tcp).collect();
        let mut endpoints = self.endpoints.write();
        let is_of_server = |endpoint: &&Endpoint| endpoint.server_index == server_index;
        let existing_endpoints = || endpoints.iter().filter(is_of_server);
        let existing_addresses = existing_endpoints().map(|endpoint| endpoint.address.as_ref());
        if existing_addresses.eq(addresses.iter().map(Some)) {
            return;
        }
        let configured = &self.configured[server_index];
        let is_gone = |address: &Address| !addresses.contains(address);
        let is_removed = |endpoint: &&Endpoint| endpoint.address.as_ref().is_none_or(is_gone);
        for removed_endpoint in existing_endpoints().filter(is_removed) {
            configured.add_removed_counts(&removed_endpoint.health);
        }
        let gets_full_weight = existing_endpoints()
            .any(|endpoint| endpoint.address.is_none() && endpoint.health.flags(STARTING) == 0);
        let kept_or_new_endpoint = |address: &Address| {
            let has_address = |endpoint: &&Endpoint| endpoint.address.as_ref() == Some(address);
            let kept_endpoint = existing_endpoints().find(has_address);
            kept_endpoint.cloned().unwrap_or_else(|| {
                let endpoint = Endpoint::new(server_index, &configured.name, Some(address.clone()));
                if !gets_full_weight {
                    endpoint.health.start_slowly(now);
                }
                endpoint
            })
        };
        let of_earlier_servers = endpoints
            .iter()
            .filter(|endpoint| endpoint.server_index < server_index);
        let of_later_servers = endpoints
            .iter()
            .filter(|endpoint| endpoint.server_index > server_index);
        let new_endpoints: Arc<[Endpoint]> = of_earlier_servers
            .cloned()
            .chain(addresses.iter().map(kept_or_new_endpoint))
            .chain(of_later_servers.cloned())
            .collect();
        *endpoints = new_endpoints;
        drop(endpoints);
        self.endpoints_changed.notify_one();
    }

    /// The `Host` of requests to this server that have none; empty if there is no such server.
    pub fn host(&self, server_index: usize) -> &str {
        let server = self.configured.get(server_index);
        server.map_or("", |server| &server.host)
    }

    /// Calls `visit` for each configured server, with its name, its endpoints and the counts of its removed endpoints.
    pub fn for_each_server(&self, mut visit: impl FnMut(&str, &[Endpoint], FailureCounts<u64>)) {
        let endpoints = self.endpoints();
        let by_server = endpoints.chunk_by(|left, right| left.server_index == right.server_index);
        for (server, endpoints) in self.configured.iter().zip(by_server) {
            visit(&server.name, endpoints, server.removed_counts());
        }
    }

    /// The gate before new connections.
    pub fn gate(&self) -> &Gate {
        &self.persistent.gate
    }

    /// Whether the endpoint is healthy, and so gets requests by its full weight. It reads one atomic, and changes nothing.
    pub fn has_full_weight(&self, endpoint: &Endpoint) -> bool {
        endpoint.health.flags(self.flag_mask) == 0
    }

    /// The factor on the endpoint's weight, at most [`FULL_FACTOR`]; 0 while it is ejected or failing. Ends an ejection or
    /// a slow start whose time is over.
    pub fn weight_factor(&self, endpoint: &Endpoint, now: Nanos) -> u32 {
        let health = &endpoint.health;
        self.readmit_if_due(endpoint, now);
        let flags = health.flags(self.flag_mask);
        if flags & (EJECTED | FAILING) != 0 {
            return 0;
        }
        match self.settings.slow_start {
            _ if flags & TRIAL != 0 => MIN_FACTOR,
            Some(duration) if flags & STARTING != 0 => health.slow_start_factor(duration, now),
            _ => FULL_FACTOR,
        }
    }

    /// Ends an ejection whose time is over. The lock lets only one worker do so.
    fn readmit_if_due(&self, endpoint: &Endpoint, now: Nanos) {
        let health = &endpoint.health;
        let Some(ejection) = self
            .settings
            .ejection
            .filter(|_| health.is_ejection_over(now))
        else {
            return;
        };
        let _ejection_lock = self.persistent.ejection_lock.lock();
        if health.is_ejection_over(now) {
            health.readmit(ejection, now);
            tracing::info!(upstream = %self.settings.name, server = %endpoint, "asked again, on trial");
        }
    }

    /// Records that a request to the endpoint failed, if the settings eject servers. Ejects the endpoint after too many
    /// failures in a row, but only if at least half of all endpoints still get requests then.
    pub fn record_failure(&self, endpoint: &Endpoint, now: Nanos) {
        let health = &endpoint.health;
        let Some(ejection) = self.settings.ejection else {
            return;
        };
        if !health.record_failure(ejection.failures) {
            return;
        }
        let _ejection_lock = self.persistent.ejection_lock.lock();
        let endpoints = self.endpoints();
        let gets_no_requests =
            |endpoint: &&Endpoint| endpoint.health.flags(self.flag_mask) & (EJECTED | FAILING) != 0;
        let excluded_count = endpoints.iter().filter(gets_no_requests).count();
        let would_exclude_most = (excluded_count + 1) * 2 > endpoints.len();
        if health.flags(EJECTED) != 0 || would_exclude_most {
            return;
        }
        let duration = health.eject(ejection, now);
        tracing::warn!(upstream = %self.settings.name, server = %endpoint, length = ?duration, "ejected");
    }

    /// Records a new verdict of the health checks for an endpoint, and logs it.
    pub fn record_verdict(&self, endpoint: &Endpoint, is_healthy: bool, now: Nanos) {
        endpoint.health.record_verdict(is_healthy, now);
        let upstream = &self.settings.name;
        if is_healthy {
            tracing::info!(%upstream, server = %endpoint, "its checks succeed again");
        } else {
            tracing::warn!(%upstream, server = %endpoint, "its checks fail");
        }
    }

    /// The state of an endpoint. Ends an ejection or a slow start whose time is over.
    pub fn state(&self, endpoint: &Endpoint, now: Nanos) -> ServerState {
        let is_starting = self.weight_factor(endpoint, now) < FULL_FACTOR;
        match endpoint.health.flags(self.flag_mask) {
            flags if flags & FAILING != 0 => ServerState::Failing,
            flags if flags & EJECTED != 0 => ServerState::Ejected,
            _ if endpoint.health.is_unreachable() => ServerState::Unreachable,
            _ if is_starting => ServerState::Starting,
            _ => ServerState::Up,
        }
    }

    /// Counts a request for a bound, until [`Servers::uncount_request`]. Nothing is counted where there is no bound.
    ///
    /// # Errors
    ///
    /// The bound, if as many requests are counted already.
    pub fn try_count_request(&self, bound: RequestBound) -> Result<(), u32> {
        let (count, max) = self.count_and_max(bound);
        let Some(max) = max else { return Ok(()) };
        if count.fetch_add(1, Relaxed) < max {
            return Ok(());
        }
        count.fetch_sub(1, Relaxed);
        Err(max)
    }

    /// Counts a request whatever the bound, until [`Servers::uncount_request`]. A request that is sent again has passed the
    /// bound before, and is counted twice for a moment.
    pub fn count_request(&self, bound: RequestBound) {
        if let (count, Some(_)) = self.count_and_max(bound) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Ends the count of one request for a bound.
    pub fn uncount_request(&self, bound: RequestBound) {
        if let (count, Some(_)) = self.count_and_max(bound) {
            count.fetch_sub(1, Relaxed);
        }
    }

    /// The current count of the requests that a bound is about, and the bound; `None` if there is none.
    fn count_and_max(&self, bound: RequestBound) -> (&AtomicU32, Option<u32>) {
        match bound {
            RequestBound::Open => (&self.open_requests, self.settings.bounds.open),
            RequestBound::Pending => (&self.pending_requests, self.settings.bounds.pending),
        }
    }
}

#[cfg(test)]
mod tests;
