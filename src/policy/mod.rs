//! YAML in, checked, compiled: the only floor that knows how policies are written.

pub mod settings;

pub use settings::{AccessLog, Listen, Process, Ruleset, Timeouts};
