//! [`RedisTarget`]: connects to a server by its host and port, or to the master that sentinels name. A connection sends its
//! commands in order, and its replies are [bounded](BoundedSocket). It does not connect again by itself.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, ProtocolVersion, RedisConnectionInfo, RedisError};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::bounded_socket::BoundedSocket;
use super::settings::Settings;
use crate::net::{Connector, Socket};

/// The time limit for connecting, sentinels included.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The time limit for connecting to the server that one sentinel names. Then the server that another one names is tried.
const MASTER_CONNECT_TIMEOUT: Duration = Duration::from_millis(400);

/// A server's host and port.
pub(super) type HostPort = (String, u16);

/// A connection that ends when the last of its clones is dropped.
#[derive(Clone)]
pub(super) struct RedisConnection {
    /// Sends commands and receives their replies.
    pub(super) commands: MultiplexedConnection,
    /// Keeps the connection's task running.
    _task: Arc<ConnectionTask>,
}

/// The task that reads and writes a connection. The task ends with the last clone of the connection.
struct ConnectionTask(AbortHandle);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The server to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RedisTarget {
    /// The server with this host and port.
    Server(String, u16),
    /// The master that sentinels know by this name.
    Master(String),
}

impl RedisTarget {
    /// Connects. Where sentinels name the master, also returns the master's host and port.
    ///
    /// # Errors
    ///
    /// The cause, as text for logs.
    pub(super) async fn connect(
        &self,
        settings: &Settings,
    ) -> Result<(RedisConnection, Option<HostPort>), String> {
        let connected = async {
            match self {
                RedisTarget::Server(host, port) => {
                    Ok((connect_to_server(settings, host, *port).await?, None))
                }
                RedisTarget::Master(name) => {
                    let (connection, server) = connect_to_master(settings, name).await?;
                    Ok((connection, Some(server)))
                }
            }
        };
        match timeout(CONNECT_TIMEOUT, connected).await {
            Ok(connected) => connected.map_err(|error: RedisError| describe_error(&error)),
            Err(_) => Err(String::from("no reply within a second")),
        }
    }
}

/// A detail of an error with fewer bytes says less than the whole error.
const MIN_DETAIL_BYTES: usize = 9;

/// The text of an error, in one line and without repetitions.
pub(super) fn describe_error(error: &RedisError) -> String {
    let text = match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (None, Some(detail)) if detail.len() >= MIN_DETAIL_BYTES => detail.to_owned(),
        _ => error.to_string(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Connects to one server, with the user, the password and the database of the address.
pub(super) async fn connect_to_server(
    settings: &Settings,
    host: &str,
    port: u16,
) -> Result<RedisConnection, RedisError> {
    let address = &settings.address;
    let mut login = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_db(address.database);
    if let Some(user) = &address.user {
        login = login.set_username(user);
    }
    if let Some(password) = &address.password {
        login = login.set_password(password);
    }
    connect_with(settings, host, port, login).await
}

/// Connects with the protocol of redis-rs over a socket of the crate's own, so that replies are [bounded](BoundedSocket).
/// Fails after [`CONNECT_TIMEOUT`].
async fn connect_with(
    settings: &Settings,
    host: &str,
    port: u16,
    login: RedisConnectionInfo,
) -> Result<RedisConnection, RedisError> {
    // Callers limit the time for replies, because a late reply may still be awaited.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let connected = async {
        let socket = BoundedSocket::new(open_socket(settings, host, port).await?);
        MultiplexedConnection::new_with_config(&login, socket, config).await
    };
    let connected = timeout(CONNECT_TIMEOUT, connected).await;
    let connected = connected.unwrap_or_else(|late| Err(std::io::Error::from(late).into()));
    let (commands, driver) = connected?;
    Ok(RedisConnection {
        commands,
        _task: Arc::new(ConnectionTask(tokio::spawn(driver).abort_handle())),
    })
}

/// Opens a socket, with TLS if the address says so. TLS fails without trusted certificates.
async fn open_socket(settings: &Settings, host: &str, port: u16) -> std::io::Result<Socket> {
    if !settings.address.uses_tls {
        return Socket::to_server(TcpStream::connect((host, port)).await?);
    }
    let Some(roots) = &settings.roots else {
        return Err(std::io::Error::other(
            "no trusted certificates to verify the server",
        ));
    };
    let name = Connector::parse_server_name(host).map_err(std::io::Error::other)?;
    let connector = Connector::new(name, roots, None, false);
    let connector = connector.map_err(std::io::Error::other)?.without_alpn();
    Socket::connect_tls(TcpStream::connect((host, port)).await?, &connector).await
}

/// Asks all sentinels at once, because one of them may be as dead as the server. Connects to the first server that a
/// sentinel names and that reports the role of a master itself.
async fn connect_to_master(
    settings: &Settings,
    name: &str,
) -> Result<(RedisConnection, HostPort), RedisError> {
    let sentinels = settings.address.hosts.iter();
    let mut replies: FuturesUnordered<_> = sentinels
        .map(|(host, port)| ask_sentinel_for_master(settings, host, *port, name))
        .collect();
    let (mut tried_servers, mut last_error) = (Vec::new(), None);
    while let Some(reply) = replies.next().await {
        let server = match reply {
            Ok(Some(server)) => server,
            Ok(None) => {
                last_error = Some(io_error("no sentinel knows a master of this name", name));
                continue;
            }
            Err(error) => {
                // Any earlier error says more than a sentinel that does not reply.
                let error = describe_error(&error);
                last_error.get_or_insert(io_error("no sentinel answers", &error));
                continue;
            }
        };
        if tried_servers.contains(&server) {
            continue;
        }
        let connecting = connect_if_master(settings, &server);
        match timeout(MASTER_CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(connection)) => return Ok((connection, server)),
            Ok(Err(error)) => last_error = Some(error),
            Err(_) => {
                let cause = "the master that sentinels name does not answer";
                last_error = Some(io_error(cause, ""));
            }
        }
        tried_servers.push(server);
    }
    Err(last_error.unwrap_or_else(|| io_error("no sentinel answers", "")))
}

/// Asks one sentinel for the master of this name, without user and password. `None` where it knows no such master.
async fn ask_sentinel_for_master(
    settings: &Settings,
    host: &str,
    port: u16,
    name: &str,
) -> Result<Option<HostPort>, RedisError> {
    let anonymous = RedisConnectionInfo::default();
    let mut sentinel = connect_with(settings, host, port, anonymous).await?;
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    command.query_async(&mut sentinel.commands).await
}

/// Connects to a server, and fails where it does not report the role of a master.
async fn connect_if_master(
    settings: &Settings,
    (host, port): &HostPort,
) -> Result<RedisConnection, RedisError> {
    let mut connection = connect_to_server(settings, host, *port).await?;
    let (role, ..): (String, redis::Value, redis::Value) = redis::cmd("ROLE")
        .query_async(&mut connection.commands)
        .await?;
    match role.as_str() {
        "master" => Ok(connection),
        role => Err(io_error(
            "the server that sentinels name is not yet master",
            role,
        )),
    }
}

/// An error of this kind, with a detail that may be empty.
fn io_error(kind: &'static str, detail: &str) -> RedisError {
    let text = match detail {
        "" => kind.to_owned(),
        detail => format!("{kind}: {detail}"),
    };
    RedisError::from((ErrorKind::Io, kind, text))
}
