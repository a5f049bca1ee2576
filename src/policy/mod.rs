//! YAML in, checked, compiled: the only floor that knows how policies are written.

pub mod settings;

pub use settings::{AccessLog, Listen, Process, Ruleset, Timeouts};
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnostic;
#[derive(Debug)]
pub struct Report;
impl std::fmt::Display for Report { fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { Ok(()) } }
pub struct Loaded { pub process: Process, pub ruleset: Ruleset, pub notes: Vec<Diagnostic> }
pub fn load(_: &std::path::Path) -> Result<Loaded, Report> { Err(Report) }
pub fn needs_restart(_: &Process, _: &Process) -> Vec<Diagnostic> { vec![] }
