//! The record as a Prometheus data source, for Grafana and other clients of its HTTP API, under `/prometheus`.
//!
//! Prometheus narrows labels and series by time; this API names all that were ever recorded.

mod catalog;
mod endpoints;
mod metadata;
mod parameters;
mod reader;
mod response;
mod samples;
mod times;
mod write;

pub use endpoints::router;
