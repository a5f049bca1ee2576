//! How many requests an upstream bears, what elastic limits lend of its unused capacity, and which requests are shed
//! first. This folder does no I/O, reads no clock and keeps no request waiting. It knows nothing of the rates of keys.
//! Of HTTP it knows only the text of a load report.
//!
//! Each upstream has one [`Pressure`], which all workers share. Requests write counts to it and read bounds from it.
//! A [`Controller`] turns the counts into bounds every [`CONTROL_STEP`]. These are its figures:
//!
//! | figure | what it is | where |
//! |---|---|---|
//! | capacity | the open requests that are served without a standing queue | `capacity.rs`, after Netflix' Gradient2 |
//! | baseline | the median latency without a queue, measured by a gentle probe | `baseline.rs`, after Envoy's gradient |
//! | slowness | the median of recent latencies to the first byte, divided by the baseline | `latencies.rs` |
//! | load | the highest of open / capacity, 2 (slowness - 1), the reported load, and the gateway's own | `controller.rs` |
//! | reported load | smoothed reports; fully trusted ones replace open / capacity and slowness | `reported_load.rs` |
//! | lent share | each elastic limit lends this share of its rate; the elastic factor is 1 more | `elastic_factor.rs` |
//! | level | which classes are cut, and how much of them | `shed_level.rs`, after DAGOR and Cinnamon |
//!
//! Latencies are compared without the differences between routes (`request_kinds.rs`). Requests are counted, and
//! admitted or shed, in `upstream_pressure.rs`. Conditions of elastic limits are in `condition.rs` and `condition_text.rs`. Each step computes:
//!
//! ```text
//! capacity   += 0.2 (gradient * capacity + headroom - capacity), from 1 to `max_open`
//!                   while open > 0.7 capacity, or gradient < 1
//!                   gradient = clamp(1.5 / slowness, 0.5, 1)
//!                   headroom = 2.1 (gateways * capacity)^(1/4) / gateways; capacity / 2 before the first queue
//! lent share *= 0.5     slowness > 2, or more than 5 % fail
//!            -= a tenth of the highest, *= 0.5     no latency for 0.9 s
//!                                                  too few latencies or a busy gateway, and load > 1
//!            *= 0.92    load > 0.95
//!            += 0.12 of the share of latencies that is new     load < 0.75, and level > 3.5
//!            stays      too few latencies or a busy gateway, and load <= 1
//!            at least 1, if limits allow it     at most 2 / gateways are open, load < 0.5, and none failed lately
//! level      += 0.5 (0.95 - open / capacity), from -1 to 0.05
//!                   down by at least 0.1 when a critical request met capacity + 2 sqrt(capacity) open ones
//!                   no further down below 1 unless slowness > 2.3
//!                   only up without a queue (slowness > 1.5) in the last 5 s
//! ```
//!
//! Without a queue in the last 5 s the capacity refuses no request outside of probes, and the level refuses no more
//! than before. Without a queue of slowness > 2 the capacity refuses no critical request outside of probes. Probes hold
//! back only classes that the level cuts or is about to cut. Before the first queue the capacity is a guess.
//!
//! Raising the factor until the capacity is used is water-filling: weighted max-min fairness with the base rates as
//! weights, and nothing to keep for each key. As the level falls, lending is cut first, then low requests, then normal
//! ones. Requests are cut by cohorts of keys, which change every hour. The room of critical requests above the capacity
//! is cut last.
//!
//! The law of Gradient2 and Envoy was rejected. Where latencies vary by a half, a median of 100 ms is off by 8 % with
//! 68 samples and by 16 % with 15. The lowest of many medians is off by twice as much. So a gateway with a sixteenth of
//! the traffic takes noise for a queue and gives capacity away. Or it takes a standing queue for the baseline and lets
//! the queue grow.
//!
//! Here quantiles are read from a fading pool of samples. The factor rises in proportion to what is new in the pool.
//! After its first moments the baseline rises only by probes: by at most 5 % unless fewer requests were open meanwhile.
//! To see what a rule is good for, remove it and run `tests/elastic/`.

#[cfg(feature = "gateway")]
mod baseline;
#[cfg(feature = "gateway")]
mod capacity;
mod condition;
#[cfg(feature = "gateway")]
pub mod condition_text;
#[cfg(feature = "gateway")]
mod control_step;
#[cfg(feature = "gateway")]
mod controller;
mod elastic_factor;
#[cfg(feature = "gateway")]
mod latencies;
#[cfg(feature = "gateway")]
pub mod orca_report;
mod pressure_figures;
#[cfg(feature = "gateway")]
mod reported_load;
mod request_class;
#[cfg(feature = "gateway")]
mod request_kinds;
#[cfg(feature = "gateway")]
mod shed_level;
#[cfg(feature = "gateway")]
mod upstream_pressure;

pub use condition::Condition;
#[cfg(feature = "gateway")]
pub use control_step::{CONTROL_STEP, GatewayLoad, StepContext};
#[cfg(feature = "gateway")]
pub use controller::{Controller, Settings};
pub use elastic_factor::ElasticFactor;
#[cfg(feature = "gateway")]
pub use orca_report::{OrcaReport, Utilisation};
pub use pressure_figures::PressureFigures;
#[cfg(feature = "gateway")]
pub use reported_load::Trust;
pub use request_class::RequestClass;
#[cfg(feature = "gateway")]
pub use request_kinds::RequestKind;
#[cfg(feature = "gateway")]
pub use upstream_pressure::{Pressure, Shed, UpstreamSlot};
