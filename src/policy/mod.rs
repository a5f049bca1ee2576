//! YAML in, checked, compiled: the only floor that knows how policies are written.
//!
//! [`load`] reads the gateway file and the folder of policies. All mistakes of all files are told at
//! once: a text becomes a tree of values with places (`tree`), into whose values what they refer to is filled
//! (`expand`), the tree becomes what was written
//! (`decode` by the tables of fields, into `model`), that is held against itself over all files
//! (`check`), and only then made into what runs (`compile`).

mod check;
mod collect;
mod compile;
mod connections;
mod decode;
mod describe;
pub mod diagnostic;
mod expand;
mod filled;
mod former;
mod keys;
mod load;
mod model;
pub mod reference;
pub mod schema;
mod section;
pub mod settings;
pub mod source;
mod table;
pub mod text;
mod timeouts;
mod tree;
mod watch;

pub use describe::{describe, describe_json};
pub use diagnostic::{Diagnostic, DiagnosticReport, Severity};
pub use filled::Filled;
pub use load::{LoadedConfig, endpoints, load, load_from};
pub use settings::{
    AccessLog, CertificateSource, Endpoints, Listen, ListenerSettings, Process, Ruleset,
};
pub use timeouts::{HalfClose, Timeouts};
pub use watch::{ConfigWatch, watch};
