//! Background tasks for each server: health checks, and lookups of its name. They run once in the process, beside the
//! requests of one worker; no request waits for them.

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
use super::health::{FAILING, Judge};
use super::response_head::{HeadReader, LastHead, ParsedHead};
use super::servers::Servers;
use super::settings::HealthCheck;
use crate::base::clock::Clock;
use crate::net::{Socket, Stream};

/// The pause between two lookups of a name.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(5);

/// The tasks for the upstreams of the running configuration. Dropping it ends them.
#[derive(Default)]
pub struct ServerWatch {
    watched: Vec<(Arc<Servers>, Vec<Task>)>,
}

struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ServerWatch {
    /// Watches these upstreams; tasks of unchanged ones go on. Must be called inside a local runtime.
    pub fn follow(&mut self, upstreams: &[Arc<Servers>], clock: &Clock) {
        let mut before = std::mem::take(&mut self.watched);
        for servers in upstreams {
            let same = before
                .iter()
                .position(|(known, _)| Arc::ptr_eq(known, servers));
            let watched = match same {
                Some(place) => before.swap_remove(place),
                None => (servers.clone(), tasks(servers, clock)),
            };
            self.watched.push(watched);
        }
    }
}

fn tasks(servers: &Arc<Servers>, clock: &Clock) -> Vec<Task> {
    let written = servers.settings.servers.iter().enumerate();
    let named = written.filter(|(_, server)| server.location.address().is_none());
    let mut tasks: Vec<Task> = named
        .map(|(written, _)| spawn(keep_looking_up(servers.clone(), written, clock.clone())))
        .collect();
    if let Some(check) = servers.settings.check.clone().map(Rc::new) {
        tasks.push(spawn(keep_all_checked(
            servers.clone(),
            check,
            clock.clone(),
        )));
    }
    tasks
}

fn spawn(task: impl Future<Output = ()> + 'static) -> Task {
    Task(tokio::task::spawn_local(task))
}

async fn keep_looking_up(servers: Arc<Servers>, written: usize, clock: Clock) {
    loop {
        // On an error the last addresses stay; the first request that needs the name reports it.
        let _ = servers.look_up(written, clock.now()).await;
        sleep(LOOKUP_INTERVAL).await;
    }
}

/// Keeps a checking task for each endpoint, as long as its name resolves to it.
async fn keep_all_checked(servers: Arc<Servers>, check: Rc<HealthCheck>, clock: Clock) {
    let mut checked: Vec<(Endpoint, Task)> = Vec::new();
    loop {
        let all = servers.endpoints();
        checked.retain(|(one, _)| all.iter().any(|other| other.is_same(one)));
        for one in all.iter() {
            if !checked.iter().any(|(other, _)| other.is_same(one)) {
                let (servers, check) = (servers.clone(), check.clone());
                let task = keep_checking(servers, one.clone(), check, clock.clone());
                checked.push((one.clone(), spawn(task)));
            }
        }
        servers.changed().await;
    }
}

async fn keep_checking(
    servers: Arc<Servers>,
    endpoint: Endpoint,
    check: Rc<HealthCheck>,
    clock: Clock,
) {
    let health = &endpoint.health;
    let well = health.flags(FAILING) == 0;
    let mut judge = Judge::new(check.fall, check.rise, well);
    loop {
        let asked = ask(&servers, &endpoint, &check, &clock);
        let well = matches!(timeout(check.timeout, asked).await, Ok(Ok(true)));
        if !well {
            health.check_failed();
        }
        if let Some(well) = judge.saw(well) {
            servers.judged(&endpoint, well, clock.now());
        }
        sleep(check.every).await;
    }
}

/// Whether the server responds as a healthy one does.
async fn ask(
    servers: &Arc<Servers>,
    endpoint: &Endpoint,
    check: &HealthCheck,
    clock: &Clock,
) -> io::Result<bool> {
    let Some(address) = &endpoint.address else {
        // Without an address, resolving the name is the check.
        servers.look_up(endpoint.server, clock.now()).await?;
        return Ok(true);
    };
    let stream = Stream::connect(address).await?;
    endpoint.health.mark_reachable();
    let Some(path) = &check.path else {
        return Ok(true);
    };
    let mut socket = match &servers.settings.servers[endpoint.server].tls {
        Some(tls) => Socket::connect(stream, tls).await?,
        None => Socket::new(stream)?,
    };
    let host = servers.host(endpoint.server);
    if servers.settings.http2 {
        return ask_over_http2(socket, host, path).await;
    }
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: tollgate\r\nconnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await?;
    socket.flush().await?;
    let mut input = BytesMut::new();
    let mut reader = HeadReader {
        bodiless: false,
        upgrade: false,
        interim: 0,
        heard: false,
    };
    loop {
        match reader
            .next(&mut input, &mut LastHead::default())
            .map_err(io::Error::other)?
        {
            Some(ParsedHead::Final(head)) => {
                return Ok(is_well(head.answer.status));
            }
            Some(ParsedHead::Interim(_)) => {}
            None if socket.read_buf(&mut input).await? == 0 => return Ok(false),
            None => {}
        }
    }
}

async fn ask_over_http2(socket: Socket, host: &str, path: &str) -> io::Result<bool> {
    let scheme = if socket.is_secure() { "https" } else { "http" };
    let request = Request::get(format!("{scheme}://{host}{path}"))
        .header("user-agent", "tollgate")
        .body(())
        .map_err(io::Error::other)?;
    let (mut send, connection) = h2::client::handshake(socket)
        .await
        .map_err(io::Error::other)?;
    let asked = async {
        let (answer, _) = send.send_request(request, true)?;
        Ok(is_well(answer.await?.status()))
    };
    tokio::select! {
        well = asked => well.map_err(|error: h2::Error| io::Error::other(error)),
        ended = connection => ended.map(|()| false).map_err(io::Error::other),
    }
}

fn is_well(status: StatusCode) -> bool {
    status.is_success() || status.is_redirection()
}
