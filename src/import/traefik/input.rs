//! All that the files of an input say, by kind.

use super::entry_points::EntryPoints;
use super::middlewares::Middlewares;
use super::routers::Router;
use super::services::Services;
use super::tls::TlsOptions;

/// All that the files say.
#[derive(Debug, Default)]
pub struct TraefikInput<'v> {
    /// Entry points.
    pub entry_points: EntryPoints,
    /// The middlewares of all files, by their full names.
    pub middlewares: Middlewares<'v>,
    /// The services of all files, by their full names.
    pub services: Services<'v>,
    /// Certificates and options of TLS.
    pub tls: TlsOptions,
    /// Routers of files and of Kubernetes.
    pub routers: Vec<Router>,
}
