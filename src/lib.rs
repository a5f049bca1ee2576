//! tollgate: a reverse-proxy gateway that counts before it forwards, and [`Throttle`], its limits as a tower layer for
//! services of your own.
//!
//! The layer needs no gateway: depend on this crate without its default features, for axum with the feature `axum`.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollgate::{Key, Throttle};
//!
//! let throttle = Throttle::builder()
//!     .limit("per-ip", Key::Ip, "100/m")?
//!     .limit("per-key", Key::header("x-api-key"), "3/m")?
//!     .build()?;
//! let app: Router = Router::new().route("/items", get(|| async { "items" })).layer(throttle);
//! # Ok::<(), tollgate::BuildError>(())
//! ```
//!
//! `docs/library.md` in the repository is a guide, with hyper and tonic. The other modules are those of the gateway. With
//! the feature `gateway`, which is on by default, all of them are there.
//!
//! A module imports only from its own floor and from those below; `tests/tidy.rs` checks that.
//!
//! | floor | module | what it is |
//! |---|---|---|
//! | 0 | [`base`] | time, randomness, metrics and logging, varints, suggestions for misspelled words |
//! | 0 | [`http`] | heads of requests and responses, and the bytes of HTTP/1.1, HTTP/2 and HTTP/3 |
//! | 1 | [`net`] | sockets, TLS and its certificates, QUIC, the PROXY protocol |
//! | 1 | [`limit`] | limits: their arithmetic, costs of responses, pressure on upstreams |
//! | 1 | [`route`] | host, method and path to a route |
//! | 2 | [`record`] | what happened in every second, for years; top keys, pushes, PromQL |
//! | 2 | [`trace`] | spans of sampled requests, sent to a collector |
//! | 2 | [`store`] | counts, in memory or shared by gateways; makes the arithmetic atomic |
//! | 3 | [`identity`] | who sends a request: ip, user, token, email, plan, custom identities |
//! | 3 | [`operator`] | what operators order at run time: bans, grants, API keys |
//! | 3 | [`upstream`] | the servers behind the gateway and the connections to them |
//! | 4 | [`policy`] | reads YAML, checks it, compiles it to the settings of every module |
//! | 4 | [`throttle`] | the tower layer: one request in, one verdict out, and the verdict in HTTP |
//! | 5 | [`import`] | configurations of other gateways to policies, with a report on each line |
//! | 5 | [`layer`] | the throttle for services of your own, without a gateway |
//! | 5 | [`serve`] | the stack in request order, connections, the admin listener |
//! | 6 | [`app`] | builds everything in order; reload; shutdown |
//! | 7 | [`cli`] | a file for each command, and what commands share |

#[cfg(feature = "gateway")]
pub mod app;
pub mod base;
#[cfg(feature = "gateway")]
pub mod cli;
pub mod http;
pub mod identity;
#[cfg(feature = "gateway")]
pub mod import;
pub mod layer;
pub mod limit;
#[cfg(feature = "gateway")]
pub mod net;
#[cfg(feature = "gateway")]
pub mod operator;
#[cfg(feature = "gateway")]
pub mod policy;
#[cfg(feature = "gateway")]
pub mod record;
#[cfg(feature = "gateway")]
pub mod route;
#[cfg(feature = "gateway")]
pub mod serve;
pub mod store;
pub mod throttle;
#[cfg(feature = "gateway")]
pub mod trace;
#[cfg(feature = "gateway")]
pub mod upstream;

pub use layer::{BuildError, Key, Throttle};
