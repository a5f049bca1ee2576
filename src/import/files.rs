//! Files of the input and of the output, and the bounds of an input.

/// Maximum size of a file of the input in bytes.
pub const MAX_SOURCE_BYTES: usize = 1024 * 1024;
/// Maximum number of files of the input.
pub const MAX_SOURCE_FILES: usize = 100;
/// Maximum number of routes that an input may become.
pub const MAX_ROUTES: usize = 2_000;
/// Maximum nesting of blocks, lists and maps of the input.
pub const MAX_NESTING: usize = 32;

/// A file of the input.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// Its path, as the report shows it.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// A file that an import writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// Its path below the folder of the output, such as `policies/api.yaml`.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// A file that must be there when the gateway starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededFile {
    /// Its path as the gateway file names it: absolute, or relative to the gateway file.
    pub path: String,
    /// What it holds.
    pub kind: NeededKind,
}

/// What a needed file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeededKind {
    /// A chain of certificates in PEM.
    Certificate,
    /// A private key in PEM.
    PrivateKey,
    /// A JSON Web Key Set.
    KeySet,
}
