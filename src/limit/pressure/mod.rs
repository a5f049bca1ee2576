//! How much an upstream bears, what is lent of the rest, and who gives way first. This folder does no I/O, reads no
//! clock and takes no lock. It knows nothing of the rates of keys, nor of HTTP.
//!
//! Each upstream has one [`Pressure`], which all workers share. Requests write counts to it and read bounds from it.
//! A [`Controller`] turns the counts into bounds every [`CONTROL_STEP`].
//!
//! | | what | where |
//! |---|---|---|
//! | L | open requests that are served without a standing queue | `capacity.rs`, after Netflix' Gradient2 |
//! | b | the latency without a queue, asked for by a gentle probe | `baseline.rs`, after Envoy's gradient controller |
//! | u | the load: the highest of open / L, 2 (r / b - 1), what the upstream reports, the gateway's own | `controller.rs`, `reported_load.rs` |
//! | m | the elastic factor: each elastic limit lends m - 1 times its rate | `elastic_factor.rs` |
//! | x | the level: which classes are cut, and how much of them | `shed_level.rs`, after DAGOR and Cinnamon |
//!
//! r is the median of recent latencies to the first byte (`latencies.rs`), without the differences between routes
//! (`request_kinds.rs`). Requests count and ask in `upstream_pressure.rs`. Each step computes:
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
//! L and x refuse no request without such a queue, and no critical request without one of r > 2 b. Before the first
//! queue L is a guess.
//!
//! Raising m until capacity is used is water-filling: weighted max-min fairness with the base rates as
//! weights, and nothing to keep for each key. As the level falls, lending is cut first, then low requests, then normal
//! ones, both by cohorts of keys that last an hour. The room of critical requests above L is cut last.
//!
//! The law of Gradient2 and Envoy was rejected. Where services vary by a half, the median of 100 ms is off by 8 % with
//! 68 samples and by 16 % with 15. The lowest of many is off by twice that. So a gateway that sees a sixteenth of the
//! traffic takes chance for a queue and gives capacity away. Or it takes a standing queue for the usual and lets it
//! grow.
//!
//! Here quantiles are read from a fading pool of samples. m rises in proportion to what is new in the pool. b rises
//! only by what a probe measured while fewer requests were open. To see what a rule is good for, take it out and run
//! `tests/elastic/`.

mod baseline;
mod capacity;
pub mod condition;
mod control_step;
mod controller;
mod elastic_factor;
mod latencies;
pub mod orca_report;
mod pressure_figures;
mod reported_load;
mod request_class;
mod request_kinds;
mod shed_level;
mod upstream_pressure;

pub use condition::Condition;
pub use control_step::{CONTROL_STEP, GatewayLoad, StepContext};
pub use controller::{Controller, Settings};
pub use elastic_factor::LendingFactor;
pub use orca_report::{OrcaReport, Utilisation};
pub use pressure_figures::PressureFigures;
pub use reported_load::Trust;
pub use request_class::RequestClass;
pub use request_kinds::RequestKind;
pub use upstream_pressure::{Pressure, Shed, UpstreamSlot};
