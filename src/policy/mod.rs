//! Reads, checks and compiles the configuration. No other floor knows how policies are written.
//!
//! [`load`] reads the gateway file and the folder of policies, and reports all mistakes of all files at once:
//!
//! 1. `tree` parses a text into values that know their places.
//! 2. `expand` fills in what values of the gateway file refer to.
//! 3. `decode` reads each value by the tables of fields (`table`) into the `model`.
//! 4. `check` compares the parts of the model, over all files.
//! 5. `compile` makes the settings of the running gateway, if there is no mistake.

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
