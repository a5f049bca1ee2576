//! The background tasks for upstreams: health checks of servers, and lookups of their names. They run once in the
//! process, on the thread of one worker. No request waits for a check; a request that needs a name waits for its lookup.

use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::{Request, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::endpoint::Endpoint;
use super::head_reader::{HeadReader, LastHead, ParsedHead};
use super::server_health::{CheckJudge, FAILING};
use super::servers::Servers;
use super::settings::HealthCheck;
use crate::base::clock::Clock;
use crate::net::{Socket, Stream};

/// The time from the end of one lookup of a name to the next. The system's resolver does not tell how long an address
/// is valid.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(5);

/// The background tasks for the upstreams of the running configuration. Dropping this value ends them.
#[derive(Default)]
pub struct ServerWatch {
    watched: Vec<WatchedUpstream>,
}

/// An upstream and its tasks, which end when they are dropped.
struct WatchedUpstream {
    servers: Arc<Servers>,
    _tasks: Vec<WatchTask>,
}

/// A background task that ends when it is dropped.
struct WatchTask(JoinHandle<()>);

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ServerWatch {
    /// Watches these upstreams from now on. The tasks of unchanged upstreams go on; those of changed and removed ones end.
    /// Must be called inside a local runtime.
    pub fn follow(&mut self, upstreams: &[Arc<Servers>], clock: &Clock) {
        let mut watched_before = std::mem::take(&mut self.watched);
        for servers in upstreams {
            let unchanged_index = watched_before
                .iter()
                .position(|watched| Arc::ptr_eq(&watched.servers, servers));
            let watched = match unchanged_index {
                Some(index) => watched_before.swap_remove(index),
                None => WatchedUpstream {
                    servers: servers.clone(),
                    _tasks: spawn_tasks(servers, clock),
                },
            };
            self.watched.push(watched);
        }
    }
}

/// Starts the tasks for one upstream: a lookup task for each name, and one that starts the tasks of all checks.
fn spawn_tasks(servers: &Arc<Servers>, clock: &Clock) -> Vec<WatchTask> {
    let configured_servers = servers.settings.servers.iter().enumerate();
    let named_servers =
        configured_servers.filter(|(_, server)| server.location.address().is_none());
    let lookup_tasks = named_servers
        .map(|(index, _)| spawn_task(keep_looking_up(servers.clone(), index, clock.clone())));
    let mut tasks: Vec<WatchTask> = lookup_tasks.collect();
    if let Some(check) = servers.settings.health_check.clone().map(Rc::new) {
        let checks = keep_all_checked(servers.clone(), check, clock.clone());
        tasks.push(spawn_task(checks));
    }
    tasks
}

fn spawn_task(task: impl Future<Output = ()> + 'static) -> WatchTask {
    WatchTask(tokio::task::spawn_local(task))
}

/// Looks up the name of a configured server again and again.
async fn keep_looking_up(servers: Arc<Servers>, server_index: usize, clock: Clock) {
    loop {
        // After an error the last addresses stay. A request reports the error if the name has no address yet.
        let _ = servers.look_up_name(server_index, clock.now()).await;
        sleep(LOOKUP_INTERVAL).await;
    }
}

/// Keeps a checking task for each endpoint, as long as its name resolves to it.
async fn keep_all_checked(servers: Arc<Servers>, check: Rc<HealthCheck>, clock: Clock) {
    let mut check_tasks: Vec<(Endpoint, WatchTask)> = Vec::new();
    loop {
        let endpoints = servers.endpoints();
        check_tasks.retain(|(checked, _)| endpoints.iter().any(|other| other.is_same(checked)));
        for endpoint in endpoints.iter() {
            if !check_tasks
                .iter()
                .any(|(checked, _)| checked.is_same(endpoint))
            {
                let (servers, check) = (servers.clone(), check.clone());
                let task = keep_checking(servers, endpoint.clone(), check, clock.clone());
                check_tasks.push((endpoint.clone(), spawn_task(task)));
            }
        }
        servers.wait_for_change().await;
    }
}

/// Checks one endpoint again and again. Counts failed checks, and records when the verdict changes.
async fn keep_checking(
    servers: Arc<Servers>,
    endpoint: Endpoint,
    check: Rc<HealthCheck>,
    clock: Clock,
) {
    let health = &endpoint.health;
    let is_healthy = health.flags(FAILING) == 0;
    let mut check_judge = CheckJudge::new(check.fall, check.rise, is_healthy);
    loop {
        let single_check = check_endpoint(&servers, &endpoint, &check, &clock);
        let has_succeeded = matches!(timeout(check.timeout, single_check).await, Ok(Ok(true)));
        if !has_succeeded {
            health.record_failed_check();
        }
        if let Some(is_healthy) = check_judge.record_check(has_succeeded) {
            servers.record_verdict(&endpoint, is_healthy, clock.now());
        }
        sleep(check.interval).await;
    }
}

/// Checks an endpoint once. Returns whether the check succeeded; an error means the same as `false`. A connection that
/// the endpoint accepts makes it reachable.
async fn check_endpoint(
    servers: &Arc<Servers>,
    endpoint: &Endpoint,
    check: &HealthCheck,
    clock: &Clock,
) -> io::Result<bool> {
    let Some(address) = &endpoint.address else {
        // Without an address, looking up the name is the check.
        servers
            .look_up_name(endpoint.server_index, clock.now())
            .await?;
        return Ok(true);
    };
    let stream = Stream::connect(address).await?;
    endpoint.health.mark_reachable();
    let Some(path) = &check.path else {
        return Ok(true);
    };
    let socket = match &servers.settings.servers[endpoint.server_index].tls {
        Some(tls) => Socket::connect_tls(stream, tls).await?,
        None => Socket::to_server(stream)?,
    };
    let host = servers.host(endpoint.server_index);
    if servers.settings.uses_http2 {
        return check_over_http2(socket, host, path).await;
    }
    check_over_http1(socket, host, path).await
}

/// Sends the check's GET. Returns `false` if the status is not a healthy one, or if the connection ends before the final
/// head.
async fn check_over_http1(mut socket: Socket, host: &str, path: &str) -> io::Result<bool> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: tollgate\r\nconnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await?;
    socket.flush().await?;
    let mut input = BytesMut::new();
    let mut reader = HeadReader::default();
    loop {
        let head = reader.next_head(&mut input, &mut LastHead::default());
        match head.map_err(io::Error::other)? {
            Some(ParsedHead::Final(head)) => return Ok(is_healthy(head.response.status)),
            Some(ParsedHead::Interim(_)) => {}
            None if socket.read_buf(&mut input).await? == 0 => return Ok(false),
            None => {}
        }
    }
}

/// Sends the check's GET. Returns `false` if the status is not a healthy one, or if the connection ends before the head.
async fn check_over_http2(socket: Socket, host: &str, path: &str) -> io::Result<bool> {
    let scheme = if socket.is_tls() { "https" } else { "http" };
    let request = Request::get(format!("{scheme}://{host}{path}"))
        .header("user-agent", "tollgate")
        .body(())
        .map_err(io::Error::other)?;
    let (mut sender, connection) = h2::client::handshake(socket)
        .await
        .map_err(io::Error::other)?;
    let check = async {
        let (response, _) = sender.send_request(request, true)?;
        Ok(is_healthy(response.await?.status()))
    };
    tokio::select! {
        result = check => result.map_err(|error: h2::Error| io::Error::other(error)),
        ended = connection => ended.map(|()| false).map_err(io::Error::other),
    }
}

/// Whether a healthy server responds to a check with this status: 2xx or 3xx.
fn is_healthy(status: StatusCode) -> bool {
    status.is_success() || status.is_redirection()
}
