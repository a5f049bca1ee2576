//! An email address in a JSON or form body.

/// Where the address is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the field: a top-level member of a JSON object or a form field. A dotted path
    /// reaches nested JSON objects.
    pub field: String,
    /// Most bytes of a body that are held back to look for it.
    pub max_body: usize,
}
