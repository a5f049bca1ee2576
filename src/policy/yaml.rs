//! The reader of YAML that keeps the location of every value, for inputs that are no configuration of this gateway. It
//! has the bounds of the gateway's own files.

pub use super::tree::{MapKey, Node, SourceLocation, SyntaxError, YamlValue, parse};
