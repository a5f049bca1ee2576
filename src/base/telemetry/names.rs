//! Every metric and every label that the gateway has.

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Answered requests.
    Requests,
    /// What each limit said.
    LimitDecisions,
    /// Credentials that proved nobody.
    UnverifiedCredentials,
    /// Requests whose cost never became known.
    CostUnknown,
    /// Answers by status, and by who gave them.
    Responses,
    /// Bytes of answers' bodies.
    ResponseBytes,
    /// Requests whose route was found.
    RequestsStarted,
    /// Requests that are open.
    RequestsOpen,
    /// Requests by how long they took, from arrival to the end of the answer.
    RequestDuration,
    /// How long they took, summed.
    RequestSeconds,
    /// Requests by how long their upstream took until its answer began.
    UpstreamDuration,
    /// How long it took, summed.
    UpstreamSeconds,
    /// Failures to get an answer from an upstream.
    UpstreamErrors,
    /// Connections made to upstreams.
    UpstreamConnects,
    /// Requests sent to another server or over another connection.
    UpstreamRetries,
    /// Whether a server is asked.
    ServerUp,
    /// Requests open at a server.
    ServerOpen,
    /// Ejections of a server.
    ServerEjections,
    /// Failed checks of a server.
    ServerCheckFailures,
    /// How busy an upstream is.
    UpstreamLoad,
    /// Requests that an upstream serves at a time without a queue.
    UpstreamConcurrency,
    /// How much elastic limits lend.
    ElasticFactor,
    /// How far requests to an upstream are cut.
    SheddingLevel,
    /// Requests above their rate that elastic limits admitted.
    Lent,
    /// Requests turned away for those that matter more.
    Shed,
    /// Connections taken from clients.
    Connections,
    /// Connections closed before their first request.
    ConnectionsRefused,
    /// TLS handshakes with clients.
    Handshakes,
    /// When certificates that are shown to clients expire.
    CertificateExpiry,
    /// Certificates asked for.
    CertificateOrders,
    /// Proofs shown to ACME directories.
    AcmeProofs,
    /// HTTP/2 connections closed for a flood of frames that ask for nothing.
    Floods,
    /// Connections open now.
    ConnectionsOpen,
    /// Policy reloads.
    Reloads,
    /// Bytes of the memory store in use.
    StoreBytes,
    /// Most bytes the memory store may use.
    StoreBudget,
    /// Keys that the memory store holds.
    StoreKeys,
    /// Permits that are out: requests open now, of each limit that counts them.
    PermitsOpen,
    /// Decisions made by the overflow sketch because no cell was free.
    StoreSketched,
    /// Whether the store that gateways share is asked.
    SharedUp,
    /// Gateways that use it.
    SharedGateways,
    /// Counters of it that this gateway knows of.
    SharedKeys,
    /// Calls to it, by outcome.
    SharedCalls,
    /// Decisions about limits that are shared, by how they were made.
    SharedDecisions,
    /// Access-log lines lost: the output was slower than the traffic, or could not be written.
    LogDropped,
    /// Series that the record keeps.
    RecordSeries,
    /// Processor time of the process.
    ProcessCpu,
    /// Memory of the process.
    ProcessMemory,
    /// Samples pushed to another engine, by result.
    PushSamples,
    /// Seconds that another engine does not have yet.
    PushBehind,
}

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// One counter for each span of values, see [`super::histogram`].
    Histogram,
    /// The sum of a histogram's values, in nanoseconds.
    Sum,
}

impl Metric {
    /// The name on `/metrics`.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Requests => "tollgate_requests_total",
            Metric::LimitDecisions => "tollgate_limit_decisions_total",
            Metric::UnverifiedCredentials => "tollgate_unverified_credentials_total",
            Metric::CostUnknown => "tollgate_cost_unknown_total",
            Metric::Responses => "tollgate_responses_total",
            Metric::ResponseBytes => "tollgate_response_bytes_total",
            Metric::RequestsStarted => "tollgate_requests_started_total",
            Metric::RequestsOpen => "tollgate_requests_open",
            Metric::RequestDuration => "tollgate_request_duration_seconds_bucket",
            Metric::RequestSeconds => "tollgate_request_duration_seconds_sum",
            Metric::UpstreamDuration => "tollgate_upstream_duration_seconds_bucket",
            Metric::UpstreamSeconds => "tollgate_upstream_duration_seconds_sum",
            Metric::UpstreamErrors => "tollgate_upstream_errors_total",
            Metric::UpstreamConnects => "tollgate_upstream_connects_total",
            Metric::UpstreamRetries => "tollgate_upstream_retries_total",
            Metric::ServerUp => "tollgate_upstream_server_up",
            Metric::ServerOpen => "tollgate_upstream_server_open_requests",
            Metric::ServerEjections => "tollgate_upstream_server_ejections_total",
            Metric::ServerCheckFailures => "tollgate_upstream_server_check_failures_total",
            Metric::UpstreamLoad => "tollgate_upstream_load",
            Metric::UpstreamConcurrency => "tollgate_upstream_concurrency_limit",
            Metric::ElasticFactor => "tollgate_elastic_factor",
            Metric::SheddingLevel => "tollgate_shedding_level",
            Metric::Lent => "tollgate_lent_total",
            Metric::Shed => "tollgate_shed_total",
            Metric::Connections => "tollgate_connections_total",
            Metric::ConnectionsRefused => "tollgate_connections_refused_total",
            Metric::Handshakes => "tollgate_tls_handshakes_total",
            Metric::CertificateExpiry => "tollgate_certificate_expiry_timestamp_seconds",
            Metric::CertificateOrders => "tollgate_certificate_orders_total",
            Metric::AcmeProofs => "tollgate_acme_proofs_total",
            Metric::Floods => "tollgate_http2_floods_total",
            Metric::ConnectionsOpen => "tollgate_connections_open",
            Metric::Reloads => "tollgate_reloads_total",
            Metric::StoreBytes => "tollgate_store_bytes",
            Metric::StoreBudget => "tollgate_store_budget_bytes",
            Metric::StoreKeys => "tollgate_store_keys",
            Metric::PermitsOpen => "tollgate_permits_open",
            Metric::StoreSketched => "tollgate_store_sketched_total",
            Metric::SharedUp => "tollgate_shared_store_up",
            Metric::SharedGateways => "tollgate_shared_store_gateways",
            Metric::SharedKeys => "tollgate_shared_store_known_keys",
            Metric::SharedCalls => "tollgate_shared_store_calls_total",
            Metric::SharedDecisions => "tollgate_shared_store_decisions_total",
            Metric::LogDropped => "tollgate_log_dropped_total",
            Metric::RecordSeries => "tollgate_record_series",
            Metric::ProcessCpu => "process_cpu_seconds_total",
            Metric::ProcessMemory => "process_resident_memory_bytes",
            Metric::PushSamples => "tollgate_push_samples_total",
            Metric::PushBehind => "tollgate_push_behind_seconds",
        }
    }

    /// The sentence on `/metrics`.
    pub fn help(self) -> &'static str {
        match self {
            Metric::Requests => "Requests answered, by route and outcome.",
            Metric::LimitDecisions => {
                "Decisions of each limit: within, over, refused, shadow_refused."
            }
            Metric::UnverifiedCredentials => {
                "Requests whose credential did not verify, by reason, refused or not."
            }
            Metric::CostUnknown => {
                "Requests that were charged what was reserved, for no response said what they cost."
            }
            Metric::Responses => {
                "Answers by route, status and origin: the gateway itself, or an upstream."
            }
            Metric::ResponseBytes => "Bytes of answers' bodies, by route.",
            Metric::RequestsStarted => "Requests whose route was found.",
            Metric::RequestsOpen => "Requests open now, by route.",
            Metric::RequestDuration | Metric::RequestSeconds => {
                "Seconds from arrival to the end of the answer, by route."
            }
            Metric::UpstreamDuration | Metric::UpstreamSeconds => {
                "Seconds from a connection to the upstream to the head of its answer, by route."
            }
            Metric::UpstreamErrors => "Requests that got no answer from their upstream, by reason.",
            Metric::UpstreamConnects => "Connections made to upstreams.",
            Metric::UpstreamRetries => {
                "Requests that went on to another server, or over another connection."
            }
            Metric::ServerUp => "1 if the server is asked, 0 if it is ejected or its checks fail.",
            Metric::ServerOpen => "Requests open at the server now.",
            Metric::ServerEjections => "Ejections of the server for requests that failed.",
            Metric::ServerCheckFailures => "Failed checks of the server.",
            Metric::UpstreamLoad => {
                "The highest of open requests over what the upstream bears, how much slower it is than without a queue, its own report, and the gateway's own load; 1 is full."
            }
            Metric::UpstreamConcurrency => {
                "Requests that the upstream serves at a time without a queue, as its latency shows."
            }
            Metric::ElasticFactor => "1 and how many times their rates elastic limits lend now.",
            Metric::SheddingLevel => {
                "From 4, nobody is cut: 3 nothing is lent, 2 nothing of low, 1 nothing of normal, 0 critical only."
            }
            Metric::Lent => "Requests above their rate that elastic limits admitted.",
            Metric::Shed => "Requests turned away for those that matter more, by priority.",
            Metric::Connections => "Connections taken from clients.",
            Metric::ConnectionsRefused => {
                "Connections closed before their first request, by reason."
            }
            Metric::Handshakes => "TLS handshakes with clients.",
            Metric::CertificateExpiry => {
                "Unix time at which the certificate expires, by its first name."
            }
            Metric::CertificateOrders => {
                "Certificates asked of an ACME directory, first and renewed, by result."
            }
            Metric::AcmeProofs => "Challenges of ACME directories that were answered.",
            Metric::Floods => "HTTP/2 connections closed for a flood of empty frames.",
            Metric::ConnectionsOpen => "Client connections open now.",
            Metric::Reloads => "Policy reloads, by result.",
            Metric::StoreBytes => "Bytes of the memory store in use.",
            Metric::StoreBudget => "Bytes that the memory store may use.",
            Metric::StoreKeys => "Keys that the memory store holds.",
            Metric::PermitsOpen => "Requests open now that hold a permit, by limit.",
            Metric::StoreSketched => {
                "Decisions of the overflow sketch, made when no cell was free."
            }
            Metric::SharedUp => "1 while limits are shared, 0 while this gateway is on its own.",
            Metric::SharedGateways => "Gateways that share the store, as last known.",
            Metric::SharedKeys => "Counters of the shared store that this gateway knows of.",
            Metric::SharedCalls => "Calls to the shared store: answered, late, failed.",
            Metric::SharedDecisions => {
                "Requests with shared limits: asked the store, saved the call, or decided alone."
            }
            Metric::LogDropped => {
                "Access-log lines lost because the output was too slow or could not be written."
            }
            Metric::RecordSeries => "Series that the record keeps.",
            Metric::ProcessCpu => "Processor time of the process, in seconds.",
            Metric::ProcessMemory => "Memory of the process that is in use, in bytes.",
            Metric::PushSamples => "Samples pushed to the destination: sent, refused.",
            Metric::PushBehind => "Seconds of the record that the destination does not have yet.",
        }
    }

    /// How it behaves.
    pub fn kind(self) -> MetricKind {
        match self {
            Metric::RequestDuration | Metric::UpstreamDuration => MetricKind::Histogram,
            Metric::RequestSeconds | Metric::UpstreamSeconds => MetricKind::Sum,
            Metric::ConnectionsOpen
            | Metric::RequestsOpen
            | Metric::RecordSeries
            | Metric::ProcessMemory
            | Metric::CertificateExpiry
            | Metric::ServerUp
            | Metric::ServerOpen
            | Metric::UpstreamLoad
            | Metric::UpstreamConcurrency
            | Metric::ElasticFactor
            | Metric::SheddingLevel
            | Metric::StoreBytes
            | Metric::StoreBudget
            | Metric::StoreKeys
            | Metric::SharedUp
            | Metric::SharedGateways
            | Metric::SharedKeys
            | Metric::PermitsOpen
            | Metric::PushBehind => MetricKind::Gauge,
            _ => MetricKind::Counter,
        }
    }

    /// The sum that belongs to a histogram.
    pub fn sum(self) -> Option<Metric> {
        match self {
            Metric::RequestDuration => Some(Metric::RequestSeconds),
            Metric::UpstreamDuration => Some(Metric::UpstreamSeconds),
            _ => None,
        }
    }

    /// How many digits of the whole numbers that [`super::Registry::visit`] gives are behind the point.
    pub fn decimals(self) -> u8 {
        match self {
            Metric::RequestSeconds | Metric::UpstreamSeconds => 6,
            Metric::ProcessCpu => 3,
            Metric::UpstreamLoad
            | Metric::UpstreamConcurrency
            | Metric::ElasticFactor
            | Metric::SheddingLevel => 3,
            _ => 0,
        }
    }
}

/// What a metric is split by. Values come from the configuration or from a closed list, never from
/// a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Label {
    /// A route's name.
    Route,
    /// How a request or a decision ended.
    Outcome,
    /// A limit's name.
    Limit,
    /// An upstream's name.
    Upstream,
    /// A server of an upstream: host and port.
    Server,
    /// The first name of a certificate.
    Certificate,
    /// Why something failed.
    Reason,
    /// What is shed last.
    Priority,
    /// The status of an answer.
    Status,
    /// Who gave an answer.
    Origin,
    /// The upper bound of a histogram's bucket.
    Le,
    /// Where figures are pushed.
    To,
    /// What became of what was pushed.
    Result,
}

impl Label {
    /// The name on `/metrics`.
    pub fn as_str(self) -> &'static str {
        match self {
            Label::Route => "route",
            Label::Outcome => "outcome",
            Label::Limit => "limit",
            Label::Upstream => "upstream",
            Label::Server => "server",
            Label::Certificate => "certificate",
            Label::Reason => "reason",
            Label::Priority => "priority",
            Label::Status => "status",
            Label::Origin => "origin",
            Label::Le => "le",
            Label::To => "to",
            Label::Result => "result",
        }
    }
}
