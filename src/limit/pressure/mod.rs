//! How much an upstream bears, what is lent of the rest, and who gives way first: no I/O, no clock, no
//! lock. Knows nothing of keys' rates and of HTTP.
//!
//! One [`Pressure`] for each upstream, shared by all workers: requests ask it,
//! a [`Controller`] steers it every [`STEP`]. What requests leave are counts; what they read are bounds.
//!
//! | | what | where |
//! |---|---|---|
//! | L | open requests that are served without a standing queue | `capacity.rs`, after Netflix' Gradient2 |
//! | b | the latency without a queue, asked for by a gentle probe | `baseline.rs`, after Envoy's gradient controller |
//! | u | the load: the highest of open / L, 2 (r / b - 1), what the upstream reports, the gateway's own | `controller.rs`, `reported.rs` |
//! | m | the elastic factor: each elastic limit lends m - 1 times its rate | `elastic.rs` |
//! | x | the level: which classes are cut, and how much of them | `level.rs`, after DAGOR and Cinnamon |
//!
//! With r, the median of recent latencies to the first byte, without what routes differ by (`kinds.rs`), each
//! step does:
//!
//! ```text
//! L   += 0.2 (g L + h - L)              while open > 0.7 L, or g < 1; at least 1
//!                                       g = clamp(1.5 b / r, 0.5, 1), h = 2.1 (G L)^(1/4) / G, G live gateways
//! m-1 *= 0.5                            r > 2 b, or more than 5 % fail, or there is no signal
//!     *= 0.92                           u > 0.95
//!     += 0.12 of the share that is new  u < 0.75, and nobody is shed
//!     at least 1                        at most 2 are open, and u < 0.5
//! x   += 0.5 (0.95 - open / L)          at most 0.05; down by at least 0.1 when a critical request met
//!                                       L + 2 sqrt(L); below 1 only while r > 2.3 b; only up without a
//!                                       queue in the last 5 s: r > 1.5 b
//! ```
//!
//! L and x turn nobody away without such a queue, and no critical request without one of r > 2 b: what L is
//! before the first queue is a guess.
//!
//! Raising m until capacity is used is water-filling: weighted max-min fairness with the base rates as
//! weights, and nothing to keep for each key. As the level falls lending goes first, then low requests, then
//! normal ones, both by cohorts of keys that last an hour; last the room that critical ones have above L.
//!
//! Why it is not the law of Gradient2 and Envoy: where services vary by a half, the median of 100 ms is off by 8 %
//! with 68 samples and by 16 % with 15. The lowest of many is off by twice that. So a gateway that sees a
//! sixteenth of the traffic takes chance for a queue and gives capacity away. Or it takes a standing queue for the
//! usual and lets it grow. Here quantiles are read from a fading pool of samples. m rises by what is new in the pool;
//! b rises only by what a probe measured while fewer requests were open. What each rule is good for can be seen in
//! `tests/elastic/` by taking it out.

mod baseline;
mod capacity;
mod class;
pub mod condition;
mod controller;
mod elastic;
mod kinds;
mod latencies;
mod level;
pub mod report;
mod reported;
mod shared;
mod snapshot;
mod step;

pub use class::RequestClass;
pub use condition::Condition;
pub use controller::{Controller, Settings};
pub use elastic::Factor;
pub use kinds::RequestKind;
pub use report::{OrcaReport, Utilisation};
pub use reported::Trust;
pub use shared::{Pressure, Shed, UpstreamSlot};
pub use snapshot::Snapshot;
pub use step::{GatewayLoad, STEP, StepContext};
