//! What a destination is and speaks.

use std::fmt;

use http::Uri;

use crate::net::Roots;

/// The protocol of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Prometheus remote write, which VictoriaMetrics and others take too.
    Prometheus,
    /// Graphite's line protocol.
    Graphite,
    /// OTLP over HTTP.
    Otlp,
}

impl Engine {
    /// All of them.
    pub const ALL: [Engine; 3] = [Engine::Prometheus, Engine::Graphite, Engine::Otlp];

    /// The name in policy files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Engine::Prometheus => "prometheus",
            Engine::Graphite => "graphite",
            Engine::Otlp => "otlp",
        }
    }

    /// The schemes of its URLs.
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
    /// The name of the destination: of its cursor, in metrics and in the log.
    pub name: String,
    /// The protocol.
    pub engine: Engine,
    /// The address; has a host, and for Graphite a port.
    pub url: Uri,
    /// The URL for people: placeholders are not replaced by their secrets.
    pub display_url: String,
    /// Seconds of a step. A sample of each series is sent for each step.
    pub every: u64,
    /// The bearer token that is sent.
    pub token: Option<String>,
    /// The roots that vouch for its certificate; otherwise those of the system.
    pub roots: Option<Roots>,
    /// Labels of every series, to tell gateways apart.
    pub labels: Vec<(String, String)>,
}

impl Settings {
    /// The shortest step, in seconds.
    pub const SHORTEST: u64 = 1;
    /// The longest step, in seconds.
    pub const LONGEST: u64 = 3_600;
    /// The default step, in seconds.
    pub const USUAL: u64 = 15;

    /// Whether the two differ only in what a reload can change: the token and the roots.
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

// Without the token, which is secret.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} to {} at {}",
            self.name, self.engine, self.display_url
        )
    }
}
