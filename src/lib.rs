//! tollgate: a reverse-proxy gateway that counts before it forwards.
//!
//! Imports go only downward through these floors; `tests/tidy.rs` holds that.
//!
//! | floor | module | what it is |
//! |---|---|---|
//! | 0 | [`clock`] | time as a value |
//! | 0 | [`telemetry`] | every metric by name; logging |
//! | 0 | [`chance`] | randomness as an argument |
//! | 0 | [`varint`] | numbers of seven bits a byte |
//! | 0 | [`cost`] | the cost that a response's body states, found while it streams past |
//! | 0 | [`suggest`] | the nearest right word for a wrong one |
//! | 0 | [`head`] | the heads of requests and answers and their fields, whatever version they came in |
//! | 0 | [`net`] | sockets, plain or under TLS |
//! | 0 | [`http1`] | what both sides share of HTTP/1.1: fields, framing, pieces |
//! | 0 | [`http2`] | HTTP/2 in bytes: frames and compressed fields |
//! | 1 | [`facts`] | who is refused most, and single requests as examples |
//! | 1 | [`ask`] | one request over a connection of its own |
//! | 1 | [`limit`] | what a limit promises and the pure arithmetic that keeps it |
//! | 1 | [`pressure`] | how much an upstream bears, what is lent of the rest, who gives way first |
//! | 1 | [`promql`] | questions in the language of Prometheus, about samples from anywhere |
//! | 1 | [`route`] | host, method and path to a route |
//! | 2 | [`acme`] | certificates from a directory that issues them |
//! | 2 | [`identity`] | who asks: ip, user, token, email, plan |
//! | 2 | [`record`] | what happened in every second, for years |
//! | 2 | [`store`] | where counts live; makes the arithmetic atomic |
//! | 2 | [`upstream`] | the servers behind the gateway and the connections to them |
//! | 3 | [`push`] | what the record knows, sent to engines that take it |
//! | 3 | [`policy`] | YAML in, checked, compiled to the settings of everything above |
//! | 4 | [`admission`] | one request in, one verdict out, and the ticket that settles it |
//! | 5 | [`throttle`] | the tower layer, and how a verdict reads in HTTP |
//! | 6 | [`serve`] | the stack in request order, connections, the admin listener |
//! | 7 | [`app`] | builds everything in order; reload; shutdown |
//! | 8 | [`cli`] | a file for each verb, and what verbs share |

pub mod acme;
pub mod admission;
pub mod app;
pub mod ask;
pub mod chance;
pub mod cli;
pub mod clock;
pub mod cost;
pub mod facts;
pub mod head;
pub mod http1;
pub mod http2;
pub mod identity;
pub mod limit;
pub mod net;
pub mod policy;
pub mod pressure;
pub mod promql;
pub mod push;
pub mod record;
pub mod route;
pub mod serve;
pub mod store;
pub mod suggest;
pub mod telemetry;
pub mod throttle;
pub mod upstream;
pub mod varint;
