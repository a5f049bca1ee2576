//! The record as a Prometheus data source, for Grafana and other clients of its HTTP API, under `/prometheus`.
//!
//! Unlike Prometheus, the data source does not narrow labels and series by time: it lists all that were ever recorded.
//!
//! | module | content |
//! |---|---|
//! | `endpoints` | the paths and their handlers |
//! | `parameters`, `times` | parse the parameters of a request |
//! | `reader` | runs a query on a thread of its own |
//! | `catalog`, `samples` | the record's series and samples in the form of Prometheus |
//! | `metadata` | kinds and descriptions of metrics |
//! | `response`, `write` | responses and results as JSON |

mod catalog;
mod endpoints;
mod metadata;
mod parameters;
mod reader;
mod response;
mod samples;
mod times;
mod write;

pub(super) use endpoints::routes;
