//! [`RedisLink`]: one connection to a server, replaced whenever it breaks. Calls are pipelined: each is sent without
//! waiting for earlier replies. A command is never sent again over another connection, because the server may have
//! executed it.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::ConnectionLike;
use redis::{Cmd, RedisError, Value};
use tokio::time::timeout;

use super::connect::{self, HostPort, RedisConnection, RedisTarget};
use super::settings::Settings;
use crate::base::clock::{Clock, Nanos};
use crate::store::shared::call::StoreError;

/// The pause after a first failure to connect. It doubles with each further failure.
const MIN_RECONNECT_DELAY: Nanos = Nanos::from_millis(100);
/// How long a reply is waited for before it counts as late.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// A connection is given up after this many late replies in a row.
const MAX_LATE_REPLIES: u32 = 5;
/// A connection idle for this long is probed, so that no request has to find out that the server has closed it.
const IDLE_TIME_BEFORE_PROBE: Nanos = Nanos::from_millis(500);

/// Whether a link has a connection.
enum LinkState {
    /// No connection was needed yet.
    Idle,
    /// There is no connection.
    Down {
        /// When the next attempt to connect is due.
        retry_at: Nanos,
        /// The longest pause after the next failure.
        next_delay: Nanos,
    },
    /// An attempt to connect is under way.
    Connecting,
    /// There is a connection.
    Up(RedisConnection),
}

/// What the clones of a link share.
struct LinkInner {
    state: LinkState,
    /// How often the link has connected, so that the faults of an earlier connection are not held against the next.
    connection_count: u32,
    /// The server that the last connection leads to. `None` before the first one, and without sentinels.
    server: Option<HostPort>,
    /// Late replies in a row.
    late_reply_count: u32,
    /// When the connection was last used or probed.
    last_used_at: Nanos,
    /// Why there is no connection; `None` while there is one, and before the first attempt has ended.
    disconnect_cause: Option<String>,
}

/// A handle to a connection. Clones share it.
#[derive(Clone)]
pub(super) struct RedisLink {
    target: Arc<RedisTarget>,
    /// The longest pause between two attempts to connect; jitter makes pauses shorter only.
    max_reconnect_delay: Nanos,
    inner: Arc<Mutex<LinkInner>>,
}

/// Why a command has no reply that can be used.
#[derive(Debug)]
pub(super) enum RedisFault {
    /// There is no connection.
    NotConnected(StoreError),
    /// The server replied with an error, or the connection broke.
    Failed(RedisError),
}

impl RedisFault {
    /// The fault of a missing connection, with its cause as text for logs.
    pub(super) fn not_connected(cause: Option<&str>) -> RedisFault {
        RedisFault::NotConnected(match cause {
            Some(cause) => StoreError::Other(Cow::Owned(format!("not connected: {cause}"))),
            None => StoreError::NotConnected,
        })
    }

    /// The first word of the server's error; `None` if the fault is not an error of the server.
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            RedisFault::NotConnected(_) => None,
            RedisFault::Failed(error) => error.code(),
        }
    }
}

impl From<RedisFault> for StoreError {
    fn from(fault: RedisFault) -> StoreError {
        match fault {
            RedisFault::NotConnected(error) => error,
            RedisFault::Failed(error) if error.is_timeout() => StoreError::Late,
            RedisFault::Failed(error) => {
                StoreError::Other(Cow::Owned(connect::describe_error(&error)))
            }
        }
    }
}

/// Whether the reply to a call came in time.
enum ReplyTiming {
    InTime,
    Late,
}

/// Records once for each call whether its reply came in time. A call that is dropped before its reply counts as late.
struct ReplyWatch<'a> {
    link: &'a RedisLink,
    /// The [`LinkInner::connection_count`] of the call's connection.
    connection_count: u32,
    clock: &'a Clock,
    is_recorded: bool,
}

impl ReplyWatch<'_> {
    /// Records the call, unless it is recorded already or its connection was replaced. Gives up a connection with
    /// [`MAX_LATE_REPLIES`] late replies in a row.
    fn record(&mut self, timing: ReplyTiming) {
        let mut inner = self.link.inner.lock();
        let was_recorded = std::mem::replace(&mut self.is_recorded, true);
        if was_recorded || inner.connection_count != self.connection_count {
            return;
        }
        match timing {
            ReplyTiming::InTime => inner.late_reply_count = 0,
            ReplyTiming::Late => inner.late_reply_count += 1,
        }
        if inner.late_reply_count >= MAX_LATE_REPLIES {
            inner.give_up("no reply within the budget", self.clock);
        }
    }
}

impl Drop for ReplyWatch<'_> {
    fn drop(&mut self) {
        self.record(ReplyTiming::Late);
    }
}

impl LinkInner {
    /// Gives up the connection, if there is one, for this cause.
    fn give_up(&mut self, cause: &str, clock: &Clock) {
        if matches!(self.state, LinkState::Up(_)) {
            self.disconnect_cause = Some(cause.to_owned());
            self.state = LinkState::Down {
                retry_at: clock.now(),
                next_delay: MIN_RECONNECT_DELAY,
            };
        }
    }
}

impl RedisLink {
    /// A link without a connection. `max_reconnect_delay` bounds the pause between attempts to connect.
    pub(super) fn new(target: RedisTarget, max_reconnect_delay: Nanos) -> RedisLink {
        RedisLink {
            target: Arc::new(target),
            max_reconnect_delay,
            inner: Arc::new(Mutex::new(LinkInner {
                state: LinkState::Idle,
                connection_count: 0,
                server: None,
                late_reply_count: 0,
                last_used_at: Nanos::ZERO,
                disconnect_cause: None,
            })),
        }
    }

    /// The server that the link connects to.
    pub(super) fn target(&self) -> &RedisTarget {
        &self.target
    }

    /// Whether there is a connection, or none was ever needed.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.inner.lock().state, LinkState::Idle | LinkState::Up(_))
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.inner.lock().state, LinkState::Up(_))
    }

    /// How often the link has connected.
    pub(super) fn connection_count(&self) -> u32 {
        self.inner.lock().connection_count
    }

    /// The server that the last connection leads to. `None` before the first one, and without sentinels.
    pub(super) fn server(&self) -> Option<HostPort> {
        self.inner.lock().server.clone()
    }

    /// Whether the connection leads to this server; `true` if there is no connection.
    pub(super) fn leads_to(&self, server: &Option<HostPort>) -> bool {
        let inner = self.inner.lock();
        inner.server == *server || !matches!(inner.state, LinkState::Up(_))
    }

    /// Whether a connection or an attempt to connect has failed, and there is no connection now.
    pub(super) fn is_down(&self) -> bool {
        let inner = self.inner.lock();
        !matches!(inner.state, LinkState::Up(_)) && inner.disconnect_cause.is_some()
    }

    /// Ends the pause before the next attempt to connect.
    pub(super) fn skip_delay(&self, clock: &Clock) {
        if let LinkState::Down {
            retry_at,
            next_delay,
        } = &mut self.inner.lock().state
        {
            *retry_at = clock.now().min(*retry_at);
            *next_delay = MIN_RECONNECT_DELAY;
        }
    }

    /// The fault of a call while there is no connection.
    pub(super) fn disconnected_fault(&self) -> RedisFault {
        RedisFault::not_connected(self.inner.lock().disconnect_cause.as_deref())
    }

    /// Gives up the connection for this cause; [`RedisLink::keep_connected`] makes the next one.
    pub(super) fn disconnect(&self, cause: &str, clock: &Clock) {
        self.inner.lock().give_up(cause, clock);
    }

    /// Connects where there is no connection and no pause, and probes a connection that is idle for long. Tasks on the
    /// caller's runtime do both.
    pub(super) fn keep_connected(&self, settings: &Settings, clock: &Clock) {
        let mut inner = self.inner.lock();
        let delay = match inner.state {
            LinkState::Idle => MIN_RECONNECT_DELAY,
            LinkState::Down {
                retry_at,
                next_delay,
            } if clock.now() >= retry_at => next_delay,
            LinkState::Up(_) if clock.now().since(inner.last_used_at) > IDLE_TIME_BEFORE_PROBE => {
                inner.last_used_at = clock.now();
                drop(inner);
                let (link, clock) = (self.clone(), clock.clone());
                tokio::spawn(async move {
                    let ping = redis::cmd("PING");
                    // `send` records the result.
                    let _ = timeout(REPLY_TIMEOUT, link.send(None, &ping, &clock)).await;
                });
                return;
            }
            LinkState::Down { .. } | LinkState::Connecting | LinkState::Up(_) => return,
        };
        inner.state = LinkState::Connecting;
        drop(inner);
        let (link, settings, clock) = (self.clone(), settings.clone(), clock.clone());
        tokio::spawn(async move { link.connect(delay, &settings, &clock).await });
    }

    /// Makes one attempt to connect. After a failure the next attempt is due after half to all of `delay`, at random.
    async fn connect(&self, delay: Nanos, settings: &Settings, clock: &Clock) {
        let connected = self.target.connect(settings).await;
        let mut inner = self.inner.lock();
        inner.late_reply_count = 0;
        match connected {
            Ok((connection, server)) => {
                inner.server = server;
                inner.connection_count = inner.connection_count.wrapping_add(1);
                inner.disconnect_cause = None;
                inner.state = LinkState::Up(connection);
            }
            Err(cause) => {
                tracing::debug!(store = %settings.address, cause, "cannot connect");
                inner.disconnect_cause = Some(cause);
                // Random, so that gateways do not all reconnect at the same moment.
                let jitter = RandomState::new().hash_one(&settings.prefix) % 1_000;
                inner.state = LinkState::Down {
                    retry_at: clock.now().after(Nanos(delay.0 / 2_000 * (1_000 + jitter))),
                    next_delay: Nanos(delay.0 * 2).min(self.max_reconnect_delay),
                };
            }
        }
    }

    /// Sends a command and waits for its reply. A `prelude` is sent right before it; the server replies `OK` to the
    /// prelude.
    ///
    /// Waits for as long as the caller does, even after the connection is given up. The caller must learn what the server
    /// executes in the end.
    ///
    /// # Errors
    ///
    /// [`RedisFault::NotConnected`] without a connection; [`RedisFault::Failed`] if the server replies with an error, or
    /// the connection breaks.
    pub(super) async fn send(
        &self,
        prelude: Option<&Cmd>,
        command: &Cmd,
        clock: &Clock,
    ) -> Result<Value, RedisFault> {
        let (mut connection, connection_count) = {
            let mut inner = self.inner.lock();
            inner.last_used_at = clock.now();
            match &inner.state {
                LinkState::Up(connection) => (connection.clone(), inner.connection_count),
                _ => return Err(RedisFault::not_connected(inner.disconnect_cause.as_deref())),
            }
        };
        let mut watch = ReplyWatch {
            link: self,
            connection_count,
            clock,
            is_recorded: false,
        };
        let reply = async {
            match prelude {
                None => command.query_async(&mut connection.commands).await,
                Some(prelude) => {
                    let mut pipeline = redis::pipe();
                    pipeline
                        .add_command(prelude.clone())
                        .add_command(command.clone());
                    // Skips one reply, that to the prelude, and returns one.
                    let replies = connection
                        .commands
                        .req_packed_commands(&pipeline, 1, 1)
                        .await;
                    let only_reply =
                        |replies: Vec<Value>| replies.into_iter().next().unwrap_or(Value::Nil);
                    replies.map(only_reply).and_then(Value::extract_error)
                }
            }
        };
        let mut reply = std::pin::pin!(reply);
        let reply = match timeout(REPLY_TIMEOUT, &mut reply).await {
            Ok(reply) => reply,
            Err(_) => {
                watch.record(ReplyTiming::Late);
                reply.await
            }
        };
        watch.record(ReplyTiming::InTime);
        reply.map_err(|error| {
            // With these errors the server says that it is not, or no longer, a master in use.
            let is_demoted = matches!(error.code(), Some("READONLY" | "MASTERDOWN"));
            if is_demoted || error.is_unrecoverable_error() {
                let mut inner = self.inner.lock();
                if inner.connection_count == connection_count {
                    inner.give_up(&connect::describe_error(&error), clock);
                }
            }
            RedisFault::Failed(error)
        })
    }
}
