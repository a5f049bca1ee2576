//! The record as a data source for what asks Prometheus, such as Grafana: the paths, parameters and answers are those of its
//! HTTP interface, under `/prometheus`.
//!
//! Where Prometheus narrows labels and series by time, here all that were ever recorded are named.

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
