//! The settings of a destination, as the policy compiler builds them. The compiler has checked them; nothing is checked
//! here.

use std::fmt;

use http::Uri;

use crate::net::Roots;

/// The protocol of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Prometheus remote write 1.0, which VictoriaMetrics and others accept too.
    Prometheus,
    /// Graphite's line protocol over TCP.
    Graphite,
    /// OTLP over HTTP, in protocol buffers.
    Otlp,
}

impl Engine {
    /// All protocols, in the order of the documentation.
    pub const ALL: [Engine; 3] = [Engine::Prometheus, Engine::Graphite, Engine::Otlp];

    /// The value of `to` in policy files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Engine::Prometheus => "prometheus",
            Engine::Graphite => "graphite",
            Engine::Otlp => "otlp",
        }
    }

    /// The URL schemes that the protocol accepts.
    pub const fn schemes(self) -> &'static [&'static str] {
        match self {
            Engine::Prometheus | Engine::Otlp => &["http", "https"],
            Engine::Graphite => &["tcp"],
        }
    }

    /// A valid URL, for error messages.
    pub const fn example(self) -> &'static str {
        match self {
            Engine::Prometheus => "http://prom:9090/api/v1/write",
            Engine::Graphite => "tcp://carbon:2003",
            Engine::Otlp => "http://collector:4318/v1/metrics",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The settings of a destination.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// The name of the cursor file, and of the destination in metrics and log lines.
    pub name: String,
    /// The protocol that the destination speaks.
    pub engine: Engine,
    /// The address. It always has a host, and for Graphite a port.
    pub url: Uri,
    /// The URL for people, in which placeholders are not replaced by secrets.
    pub display_url: String,
    /// The length of a step in seconds. A series that is sent gets one sample per step.
    pub step_seconds: u64,
    /// The bearer token of each HTTP request; `None` if requests carry none.
    pub token: Option<String>,
    /// The roots that the certificate of the destination must chain to; `None` for those of the system.
    pub roots: Option<Roots>,
    /// Labels that every series gets unless it has one of that name, to tell gateways apart. In OTLP they are
    /// attributes of the resource.
    pub labels: Vec<(String, String)>,
}

impl Settings {
    /// The shortest step: the record has no finer samples than one per second.
    pub const MIN_STEP_SECONDS: u64 = 1;
    /// The longest step: an hour, the longest bucket from which steps are read.
    pub const MAX_STEP_SECONDS: u64 = 3_600;
    /// The default step, as in the configuration file that Prometheus ships.
    pub const DEFAULT_STEP_SECONDS: u64 = 15;

    /// Whether `other` differs only in what a reload may change: the token and the roots.
    pub fn is_same_destination(&self, other: &Settings) -> bool {
        let (token, roots) = (other.token.clone(), other.roots.clone());
        *other
            == Settings {
                token,
                roots,
                ..self.clone()
            }
    }
}

// The token is left out because it is secret.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} to {} at {}",
            self.name, self.engine, self.display_url
        )
    }
}
