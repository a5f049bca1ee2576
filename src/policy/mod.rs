//! Loads the configuration: reads, checks and compiles it. Nothing outside this module knows YAML.
//!
//! [`load`] reads the gateway file and the folder of policies, and reports all mistakes of all files at once:
//!
//! 1. `tree` parses a text into values that know their locations.
//! 2. `expand` replaces references such as `${env:NAME}` in values of the gateway file.
//! 3. `decode` declares the fields of each section once (`section`), and reads the files into the model.
//! 4. `check` compares the parts of the model, over all files.
//! 5. `compile` makes the settings of the running gateway, if there is no mistake.
//!
//! `context` holds the files and collects the diagnostics of all these steps. The other files:
//!
//! | file | what it is |
//! |---|---|
//! | `load`, `source` | runs all steps; reads files from the disk or from memory |
//! | `config_file`, `policy_folder` | reads one file to a tree; reads all policies and defaults |
//! | `shared_limits` | the limits that several routes may have |
//! | `watch` | notices when the files change |
//! | `settings` | the settings that `compile` makes |
//! | `connections`, `timeouts` | two sections that the running gateway uses as they are |
//! | `table`, `former_names` | the fields that the files may have, and those of earlier versions |
//! | `reference`, `schema` | the reference and the JSON Schemas, from these tables |
//! | `describe`, `key_control` | describes a configuration; finds limits that clients can evade |
//! | `grants`, `granting` | applies grants: the limit and key that an operator means; the copies of rules |
//! | `granted_limit`, `grant_mistake` | the limits that operators name; why a grant cannot hold |
//! | `diagnostic` | a mistake or a warning, as text and as JSON |
//! | `yaml` | the reader of YAML, for imports of other configurations |
//! | `filled_value`, `text` | values that were filled in; the decoding of text files |

mod check;
mod compile;
mod config_file;
mod connections;
mod context;
mod decode;
mod describe;
pub mod diagnostic;
mod expand;
mod filled_value;
mod former_names;
mod grant_mistake;
mod granted_limit;
mod granting;
mod grants;
mod key_control;
mod load;
mod policy_folder;
pub mod reference;
pub mod schema;
mod section;
pub mod settings;
mod shared_limits;
pub mod source;
mod table;
pub mod text;
mod timeouts;
mod tree;
mod unclear_addresses;
mod unseen_by_checks;
mod watch;
pub mod yaml;

pub use check::{MAX_LIMITS_PER_ROUTE, MAX_PATTERNS_PER_POLICY};
pub use decode::parse_duration_text as parse_duration;
pub use describe::{describe, describe_json};
pub use diagnostic::{Diagnostic, DiagnosticReport, Severity};
pub use filled_value::FilledValue;
pub use grant_mistake::GrantMistake;
pub use grants::GrantSubject;
pub use load::{LoadedConfig, load, load_endpoints, load_from};
pub use settings::{
    AccessLogSettings, BindSettings, CertificateSource, Endpoints, ListenerRole, ListenerSettings,
    PeerGateways, ProcessSettings, Ruleset,
};
pub use timeouts::{HalfClose, Timeouts};
pub use watch::{ConfigWatch, watch};
