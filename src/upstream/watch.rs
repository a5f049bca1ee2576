//! What one task of the process does for each server: asks it whether it is well, or looks its name up
//! again. Runs beside the requests of one worker, and never for them.

use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use http::{Request, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::addresses::{AGAIN, Addresses};
use super::answer::{Last, Read, Reader};
use super::health::{FAILING, Judge};
use super::servers::Servers;
use super::settings::Check;
use crate::clock::Clock;
use crate::net::Socket;

/// The tasks for the upstreams that run now. Dropping it ends them.
#[derive(Default)]
pub struct Watch {
    watched: Vec<(Arc<Servers>, Vec<Task>)>,
}

struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Watch {
    /// Watches these; tasks for those that did not change go on. To be called inside a local runtime.
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
    let mut tasks = Vec::new();
    let mut start =
        |task: std::pin::Pin<Box<dyn Future<Output = ()>>>| tasks.push(Task(spawn(task)));
    let check = servers.settings.check.clone().map(Rc::new);
    for (server, known) in servers.all().iter().enumerate() {
        if let Some(check) = &check {
            let (servers, clock) = (servers.clone(), clock.clone());
            start(Box::pin(keep_checking(
                servers,
                server,
                check.clone(),
                clock,
            )));
        }
        if known.addresses.is_named() {
            start(Box::pin(keep_looking_up(known.addresses.clone())));
        }
    }
    tasks
}

fn spawn(task: std::pin::Pin<Box<dyn Future<Output = ()>>>) -> JoinHandle<()> {
    tokio::task::spawn_local(task)
}

async fn keep_looking_up(addresses: Arc<Addresses>) {
    loop {
        // Those known before stay; the first request that needs the name says what is wrong.
        let _ = addresses.look_up().await;
        sleep(AGAIN).await;
    }
}

async fn keep_checking(servers: Arc<Servers>, server: usize, check: Rc<Check>, clock: Clock) {
    let known = &servers.all()[server];
    let well = known.health.flags(FAILING) == 0;
    let mut judge = Judge::new(check.fall, check.rise, well);
    loop {
        let result = timeout(check.timeout, ask(&servers, server, &check)).await;
        let well = matches!(result, Ok(Ok(true)));
        if !well {
            known.health.check_failed();
        }
        if let Some(well) = judge.saw(well) {
            servers.judged(server, well, clock.now());
        }
        sleep(check.every).await;
    }
}

/// Whether it answers as one that is well.
async fn ask(servers: &Servers, server: usize, check: &Check) -> io::Result<bool> {
    let known = &servers.all()[server];
    let (stream, _) = known.addresses.connect().await?;
    let Some(path) = &check.path else {
        return Ok(true);
    };
    let mut socket = match &servers.settings.servers[server].tls {
        Some(tls) => Socket::connect(stream, tls).await?,
        None => Socket::new(stream)?,
    };
    let name = &known.name;
    if servers.settings.http2 {
        return ask_over_http2(socket, name, path).await;
    }
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {name}\r\nuser-agent: tollgate\r\nconnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await?;
    socket.flush().await?;
    let mut input = BytesMut::new();
    let mut reader = Reader {
        bodiless: false,
        upgrade: false,
        interim: 0,
        heard: false,
    };
    loop {
        match reader
            .next(&mut input, &mut Last::default())
            .map_err(io::Error::other)?
        {
            Some(Read::Final(head)) => {
                return Ok(is_well(head.answer.status));
            }
            Some(Read::Interim(_)) => {}
            None if socket.read_buf(&mut input).await? == 0 => return Ok(false),
            None => {}
        }
    }
}

async fn ask_over_http2(socket: Socket, name: &str, path: &str) -> io::Result<bool> {
    let scheme = if socket.is_secure() { "https" } else { "http" };
    let request = Request::get(format!("{scheme}://{name}{path}"))
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
