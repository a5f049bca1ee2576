//! [`ThrottleBuilder`]: names the limits of a [`Throttle`], and reports the first mistake with its place and its cure.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Once};

use http::request::Parts;

use super::decision::{CountedLimit, LimitCounter, PeerAddressReader, ServiceLimits};
use super::key::{CheckedKey, Key};
use super::service::Throttle;
use crate::base::clock::Clock;
use crate::identity::Keyer;
use crate::limit::rate::RateError;
use crate::limit::rule::LimitNameError;
use crate::limit::{
    Concurrency, Identity, LimitName, MAX_WINDOWS, Rate, RateLimit, Rule, RuleLimit,
};
use crate::store::permits::PermitScope;
use crate::store::{self, MemoryStore, Permits, Settings};

/// The bytes for counts by default: 16 MiB.
const DEFAULT_MEMORY_BYTES: usize = 16 << 20;

/// The fewest keys of each limit that the bytes for counts must hold.
const MIN_KEYS_IN_MEMORY: usize = 1_000;

/// The most limits of a layer. Each takes time of every request, and verdicts number them by 16 bits.
const MAX_LIMITS: usize = 64;

/// Collects the limits of a [`Throttle`].
#[derive(Default)]
#[must_use = "a builder limits nothing until it is built"]
pub struct ThrottleBuilder {
    limits: Vec<(LimitName, CheckedKey, RuleLimit)>,
    memory_bytes: Option<usize>,
    peer_address: Option<PeerAddressReader>,
}

impl fmt::Debug for ThrottleBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("ThrottleBuilder");
        text.field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Why limits cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The limit has an unfit name.
    #[error("limit `{limit}`: {source}")]
    Name {
        /// The name as written.
        limit: String,
        /// What is wrong with it.
        source: LimitNameError,
    },
    /// Two limits have one name.
    #[error(
        "limit `{limit}` is there twice; give each limit a name of its own, because responses name it"
    )]
    DuplicateName {
        /// The name of both.
        limit: LimitName,
    },
    /// No header field can have the name.
    #[error(
        "limit `{limit}`: `{field}` is not the name of a header field; use letters, digits and `-`, as in `x-api-key`"
    )]
    Field {
        /// The name of the limit.
        limit: LimitName,
        /// The name of the field as written.
        field: Arc<str>,
    },
    /// A rate cannot be read.
    #[error("limit `{limit}`, rate `{rate}`: {source}")]
    Rate {
        /// The name of the limit.
        limit: LimitName,
        /// The rate as written.
        rate: String,
        /// What is wrong with it.
        source: RateError,
    },
    /// Two rates of a limit have one window.
    #[error("limit `{limit}`, rates `{rates}`: two have the same window; keep the stricter one")]
    DuplicateWindow {
        /// The name of the limit.
        limit: LimitName,
        /// The rates as written.
        rates: String,
    },
    /// The limit has too many rates.
    #[error(
        "limit `{limit}`: it has more than {MAX_WINDOWS} rates; leave out the least strict ones"
    )]
    TooManyRates {
        /// The name of the limit.
        limit: LimitName,
    },
    /// The limit would refuse every request.
    #[error("limit `{limit}`: 0 open requests would refuse every request; allow at least 1")]
    NoneOpen {
        /// The name of the limit.
        limit: LimitName,
    },
    /// There are more limits than a layer may have.
    #[error(
        "limit `{limit}`: a layer has at most {MAX_LIMITS} limits; put the others into another layer"
    )]
    TooManyLimits {
        /// The name of the first one that is too many.
        limit: LimitName,
    },
    /// There is no limit.
    #[error("no limit is given; add one, as in `.limit(\"per-ip\", Key::Ip, \"100/m\")?`")]
    NoLimits,
    /// The bytes for counts hold too few keys.
    #[error(
        "limit `{limit}`: a key may take {key_bytes} bytes, so that {memory_bytes} bytes hold too few; \
         give more to `memory_bytes`, or choose a smaller quota"
    )]
    Memory {
        /// The name of the limit.
        limit: LimitName,
        /// The most bytes that a key takes.
        key_bytes: usize,
        /// The bytes for all counts.
        memory_bytes: usize,
    },
    /// The store cannot be made, or cannot count one more limit.
    #[error("memory for counts: {0}")]
    Store(#[from] store::Error),
}

impl Throttle {
    /// Begins without limits.
    pub fn builder() -> ThrottleBuilder {
        ThrottleBuilder::default()
    }
}

impl ThrottleBuilder {
    /// Adds a limit on a rate, such as `100/m`. Several rates are separated by commas, as in `10/s, 1000/h`, and all of
    /// them hold. Windows slide: no span of a window's length admits more than its quota.
    ///
    /// The units of a window are `s`, `m`, `h`, `d` and `w`, with a number before them as in `5/15m`.
    ///
    /// # Errors
    ///
    /// The name is unfit or already there, the name of a header field is none, or a rate cannot be read.
    pub fn limit(self, name: &str, key: Key, rates: &str) -> Result<ThrottleBuilder, BuildError> {
        self.add(name, key, |limit| parse_rates(limit, rates))
    }

    /// Adds a limit on the requests of one key that are open at once. A request is open until the last byte of its
    /// response is sent or dropped. The response to an upgrade, such as that of a WebSocket, ends at once.
    ///
    /// # Errors
    ///
    /// The name is unfit or already there, the name of a header field is none, or `max_open` is 0.
    pub fn concurrent(
        self,
        name: &str,
        key: Key,
        max_open: u32,
    ) -> Result<ThrottleBuilder, BuildError> {
        self.add(name, key, |limit| match max_open {
            0 => Err(BuildError::NoneOpen { limit }),
            _ => Ok(Concurrency::hard(max_open).into()),
        })
    }

    /// Sets the most bytes of all counts, from 1 MiB to 128 GiB; 16 MiB by default. Once they are full, further keys share
    /// counts, so that they may be refused too early but never admitted too often.
    ///
    /// Limits on open requests are not part of it: they take about 50 bytes for each key with an open request.
    pub fn memory_bytes(self, memory_bytes: usize) -> ThrottleBuilder {
        ThrottleBuilder {
            memory_bytes: Some(memory_bytes),
            ..self
        }
    }

    /// Sets where [`Key::Ip`] finds the address of the client. By default it is the address of
    /// [`Throttle::for_peer`], and with the feature `axum` that of axum's `ConnectInfo<SocketAddr>`.
    ///
    /// Behind a proxy, read the field that the proxy sets, and only if no client can reach the service past the proxy.
    ///
    /// ```
    /// # use tollgate::Throttle;
    /// let builder = Throttle::builder()
    ///     .peer_address(|request| request.headers.get("x-real-ip")?.to_str().ok()?.parse().ok());
    /// ```
    pub fn peer_address(
        self,
        read: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> ThrottleBuilder {
        ThrottleBuilder {
            peer_address: Some(Box::new(read)),
            ..self
        }
    }

    /// Builds the layer, with counts of its own. Its clones share them.
    ///
    /// # Errors
    ///
    /// There is no limit, or the memory for counts is out of range, too small or not to be had.
    pub fn build(self) -> Result<Throttle, BuildError> {
        if self.limits.is_empty() {
            return Err(BuildError::NoLimits);
        }
        let budget_bytes = self.memory_bytes.unwrap_or(DEFAULT_MEMORY_BYTES);
        let store = MemoryStore::new(Settings { budget_bytes })?;
        let mut limits = Vec::with_capacity(self.limits.len());
        let mut rules = Vec::with_capacity(self.limits.len());
        for (index, (name, key, limit)) in self.limits.into_iter().enumerate() {
            let counter = match &limit {
                RuleLimit::Rate(rate_limit) => {
                    let key_bytes = rate_limit.bytes_per_key();
                    if key_bytes.saturating_mul(MIN_KEYS_IN_MEMORY) > budget_bytes {
                        return Err(BuildError::Memory {
                            limit: name,
                            key_bytes,
                            memory_bytes: budget_bytes,
                        });
                    }
                    LimitCounter::Rate(store.register(name.as_str(), rate_limit)?)
                }
                RuleLimit::Open(_) => LimitCounter::Open(PermitScope::new(name.as_str())),
            };
            // The rule's own key has no effect here: `CountedLimit` has the key.
            rules.push(Arc::new(Rule::new(name, index, &[Identity::Ip], limit)));
            limits.push(CountedLimit { key, counter });
        }
        Ok(Throttle::new(ServiceLimits {
            rules: rules.into_iter().collect(),
            limits: limits.into(),
            store,
            permits: Arc::new(Permits::default()),
            keyer: Keyer::random(),
            clock: Clock::system(),
            peer_address: self.peer_address,
            missing_address: Once::new(),
        }))
    }

    /// Adds a limit of either kind.
    fn add(
        mut self,
        name: &str,
        key: Key,
        make_limit: impl FnOnce(LimitName) -> Result<RuleLimit, BuildError>,
    ) -> Result<ThrottleBuilder, BuildError> {
        let limit = LimitName::new(name).map_err(|source| BuildError::Name {
            limit: name.into(),
            source,
        })?;
        if self.limits.iter().any(|(earlier, ..)| *earlier == limit) {
            return Err(BuildError::DuplicateName { limit });
        }
        if self.limits.len() >= MAX_LIMITS {
            return Err(BuildError::TooManyLimits { limit });
        }
        let field: Arc<str> = match &key {
            Key::Header(field) => field.clone(),
            _ => Arc::default(),
        };
        let key = key.check().ok_or_else(|| BuildError::Field {
            limit: limit.clone(),
            field,
        })?;
        let rule_limit = make_limit(limit.clone())?;
        self.limits.push((limit, key, rule_limit));
        Ok(self)
    }
}

/// Reads rates with commas between them.
fn parse_rates(limit: LimitName, text: &str) -> Result<RuleLimit, BuildError> {
    let mut windows: Vec<Rate> = Vec::new();
    for written in text.split(',').map(str::trim) {
        let rate: Rate = written.parse().map_err(|source| BuildError::Rate {
            limit: limit.clone(),
            rate: written.into(),
            source,
        })?;
        if windows.iter().any(|other| other.window() == rate.window()) {
            let rates = text.into();
            return Err(BuildError::DuplicateWindow { limit, rates });
        }
        windows.push(rate);
    }
    if windows.len() > MAX_WINDOWS {
        return Err(BuildError::TooManyRates { limit });
    }
    windows.sort_by_key(|rate| rate.window());
    let largest = windows.iter().max_by_key(|rate| rate.quota()).copied();
    // A text has at least one part, so there is a rate.
    let largest = largest.unwrap_or_else(Rate::of_credits);
    // The largest quota decides by which algorithm all windows are counted.
    let hard = RateLimit::hard(largest);
    Ok(RateLimit { windows, ..hard }.into())
}
