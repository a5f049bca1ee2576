//! One connection to a server, made anew whenever it breaks. Requests share it: each is sent without waiting for the
//! replies before it.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use redis::aio::ConnectionLike;
use redis::{Cmd, RedisError, Value};
use tokio::time::timeout;

use super::reach::{self, HostPort, RedisConnection, RedisTarget};
use super::settings::Settings;
use crate::base::clock::{Clock, Nanos};
use crate::store::shared::call::StoreError;

/// The pause before the next attempt to connect, doubled after each failure.
const PAUSE: Nanos = Nanos::from_millis(100);
/// Calls in a row whose replies came too late; then the connection is given up.
const LATE: u32 = 5;
/// A connection idle for this long is probed, so that no request has to find out that the server has closed it.
const IDLE: Nanos = Nanos::from_millis(500);

enum LinkState {
    /// No connection was needed yet.
    Idle,
    Down {
        next: Nanos,
        pause: Nanos,
    },
    Connecting,
    Up(RedisConnection),
}

struct LinkInner {
    state: LinkState,
    /// Connections so far, so that the faults of an earlier one are not held against the next.
    made: u32,
    /// With sentinels: the server that the last connection leads to.
    place: Option<HostPort>,
    late: u32,
    /// When the connection was last used.
    asked: Nanos,
    /// Why there is no connection.
    cause: Option<String>,
}

/// See the module.
#[derive(Clone)]
pub(super) struct RedisLink {
    target: Arc<RedisTarget>,
    /// Longest pause between two attempts to connect.
    longest: Nanos,
    inside: Arc<Mutex<LinkInner>>,
}

/// Why a command failed.
#[derive(Debug)]
pub(super) enum RedisFault {
    /// There is no connection.
    NotConnected(StoreError),
    /// The server reports an error, or the connection broke.
    Failed(RedisError),
}

impl RedisFault {
    /// The fault of a missing connection.
    pub(super) fn away(cause: Option<&str>) -> RedisFault {
        RedisFault::NotConnected(match cause {
            Some(cause) => StoreError::Other(Cow::Owned(format!("not connected: {cause}"))),
            None => StoreError::NotConnected,
        })
    }

    /// The first word of the server's error.
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
            RedisFault::NotConnected(failure) => failure,
            RedisFault::Failed(error) if error.is_timeout() => StoreError::Late,
            RedisFault::Failed(error) => StoreError::Other(Cow::Owned(reach::describe(&error))),
        }
    }
}

/// Records once for each call whether its reply came in time.
struct ReplyWatch<'a> {
    link: &'a RedisLink,
    made: u32,
    clock: &'a Clock,
    noted: bool,
}

impl ReplyWatch<'_> {
    fn note(&mut self, answered: bool) {
        let mut inside = self.link.inside.lock();
        if std::mem::replace(&mut self.noted, true) || inside.made != self.made {
            return;
        }
        match answered {
            true => inside.late = 0,
            false => inside.late += 1,
        }
        if inside.late >= LATE {
            inside.give_up("no reply within the budget", self.clock);
        }
    }
}

impl Drop for ReplyWatch<'_> {
    fn drop(&mut self) {
        self.note(false);
    }
}

impl LinkInner {
    fn give_up(&mut self, cause: &str, clock: &Clock) {
        if matches!(self.state, LinkState::Up(_)) {
            self.cause = Some(cause.to_owned());
            self.state = LinkState::Down {
                next: clock.now(),
                pause: PAUSE,
            };
        }
    }
}

impl RedisLink {
    pub(super) fn new(target: RedisTarget, longest: Nanos) -> RedisLink {
        RedisLink {
            target: Arc::new(target),
            longest,
            inside: Arc::new(Mutex::new(LinkInner {
                state: LinkState::Idle,
                made: 0,
                place: None,
                late: 0,
                asked: Nanos::ZERO,
                cause: None,
            })),
        }
    }

    pub(super) fn target(&self) -> &RedisTarget {
        &self.target
    }

    /// Whether there is a connection, or none was ever needed.
    pub(super) fn ready(&self) -> bool {
        matches!(self.inside.lock().state, LinkState::Idle | LinkState::Up(_))
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.inside.lock().state, LinkState::Up(_))
    }

    /// Connections so far.
    pub(super) fn made(&self) -> u32 {
        self.inside.lock().made
    }

    /// With sentinels: the server that the last connection leads to.
    pub(super) fn place(&self) -> Option<HostPort> {
        self.inside.lock().place.clone()
    }

    /// Whether the connection, if there is one, leads to this server.
    pub(super) fn leads_to(&self, place: &Option<HostPort>) -> bool {
        let inside = self.inside.lock();
        inside.place == *place || !matches!(inside.state, LinkState::Up(_))
    }

    /// Whether there was a connection or an attempt, and there is none now.
    pub(super) fn is_down(&self) -> bool {
        let inside = self.inside.lock();
        !matches!(inside.state, LinkState::Up(_)) && inside.cause.is_some()
    }

    pub(super) fn hurry(&self, clock: &Clock) {
        if let LinkState::Down { next, pause } = &mut self.inside.lock().state {
            *next = clock.now().min(*next);
            *pause = PAUSE;
        }
    }

    /// Why there is no connection.
    pub(super) fn fault(&self) -> RedisFault {
        RedisFault::away(self.inside.lock().cause.as_deref())
    }

    /// Gives up the connection; the next is made by [`RedisLink::tend`].
    pub(super) fn broken(&self, cause: &str, clock: &Clock) {
        self.inside.lock().give_up(cause, clock);
    }

    /// Connects where there is no connection, and tries one that nobody uses.
    pub(super) fn tend(&self, settings: &Settings, clock: &Clock) {
        let mut inside = self.inside.lock();
        let pause = match inside.state {
            LinkState::Idle => PAUSE,
            LinkState::Down { next, pause } if clock.now() >= next => pause,
            LinkState::Up(_) if clock.now().since(inside.asked) > IDLE => {
                inside.asked = clock.now();
                drop(inside);
                let (link, clock) = (self.clone(), clock.clone());
                tokio::spawn(async move {
                    let ping = redis::cmd("PING");
                    // `ask` records the result.
                    let _ = timeout(reach::PATIENCE, link.ask(None, &ping, &clock)).await;
                });
                return;
            }
            LinkState::Down { .. } | LinkState::Connecting | LinkState::Up(_) => return,
        };
        inside.state = LinkState::Connecting;
        drop(inside);
        let (link, settings, clock) = (self.clone(), settings.clone(), clock.clone());
        tokio::spawn(async move {
            let made = link.target.connect(&settings).await;
            let mut inside = link.inside.lock();
            inside.late = 0;
            match made {
                Ok((connection, place)) => {
                    inside.place = place;
                    inside.made = inside.made.wrapping_add(1);
                    inside.cause = None;
                    inside.state = LinkState::Up(connection);
                }
                Err(cause) => {
                    tracing::debug!(store = %settings.address, cause, "cannot connect");
                    inside.cause = Some(cause);
                    // Random, so that gateways do not all reconnect at the same moment.
                    let spread = RandomState::new().hash_one(&settings.prefix) % 1_000;
                    inside.state = LinkState::Down {
                        next: clock.now().after(Nanos(pause.0 / 2_000 * (1_000 + spread))),
                        pause: Nanos(pause.0 * 2).min(link.longest),
                    };
                }
            }
        });
    }

    /// Sends a command and waits for its reply; with `first`, which the server answers with `OK`, right before it.
    /// Waits for as long as the caller does, also on a connection that is given up. The caller must know what the
    /// server executes in the end.
    pub(super) async fn ask(
        &self,
        first: Option<&Cmd>,
        command: &Cmd,
        clock: &Clock,
    ) -> Result<Value, RedisFault> {
        let (mut connection, made) = {
            let mut inside = self.inside.lock();
            inside.asked = clock.now();
            match &inside.state {
                LinkState::Up(connection) => (connection.clone(), inside.made),
                _ => return Err(RedisFault::away(inside.cause.as_deref())),
            }
        };
        let mut watch = ReplyWatch {
            link: self,
            made,
            clock,
            noted: false,
        };
        let answer = async {
            match first {
                None => command.query_async(&mut connection.commands).await,
                Some(first) => {
                    let mut both = redis::pipe();
                    both.add_command(first.clone()).add_command(command.clone());
                    let counters = connection.commands.req_packed_commands(&both, 1, 1).await;
                    let last =
                        |counters: Vec<Value>| counters.into_iter().next().unwrap_or(Value::Nil);
                    counters.map(last).and_then(Value::extract_error)
                }
            }
        };
        let mut answer = std::pin::pin!(answer);
        let answer = match timeout(reach::PATIENCE, &mut answer).await {
            Ok(answer) => answer,
            Err(_) => {
                watch.note(false);
                answer.await
            }
        };
        watch.note(true);
        answer.map_err(|error| {
            let demoted = matches!(error.code(), Some("READONLY" | "MASTERDOWN"));
            if demoted || error.is_unrecoverable_error() {
                let mut inside = self.inside.lock();
                if inside.made == made {
                    inside.give_up(&reach::describe(&error), clock);
                }
            }
            RedisFault::Failed(error)
        })
    }
}
