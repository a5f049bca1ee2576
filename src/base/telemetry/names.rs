//! The names of all metrics and labels of the gateway, with their help texts and kinds. A metric can only be counted by
//! these types, so the lists are complete. Queries of the record spell some of the names again. The values are in
//! `registry.rs`.

/// A metric. `/metrics` shows all of them, and the record keeps their series up to its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Requests that have ended, by route and outcome.
    Requests,
    /// Requests that have ended, by identity, value of the identity, route and outcome.
    IdentityRequests,
    /// Decisions of limits, by limit and outcome.
    LimitDecisions,
    /// Requests whose credential did not verify, by reason, whether they were refused or not.
    UnverifiedCredentials,
    /// Requests that were charged what they had reserved, because no response stated their cost, by limit.
    CostUnknown,
    /// Responses, by route, status and origin.
    Responses,
    /// Bytes of the bodies of responses, by route.
    ResponseBytes,
    /// Requests that matched a route, whether they have ended or not, by route.
    RequestsStarted,
    /// Requests open now, by route.
    RequestsOpen,
    /// Requests by their duration, from arrival to the end of the response, by route.
    RequestDuration,
    /// The sum of all durations of [`Metric::RequestDuration`], in nanoseconds.
    RequestDurationSum,
    /// Requests by the time from a connection to the upstream to the head of its response, by route.
    UpstreamDuration,
    /// The sum of all durations of [`Metric::UpstreamDuration`], in nanoseconds.
    UpstreamDurationSum,
    /// Requests that got no response from their upstream, by upstream and reason.
    UpstreamErrors,
    /// Connections made to upstreams, by upstream.
    UpstreamConnects,
    /// Requests sent once more, to another server or over another connection, by upstream.
    UpstreamRetries,
    /// 1 if a server gets requests, 0 if it is ejected or its health checks fail. This metric and the three that follow
    /// are by upstream and server.
    ServerUp,
    /// Requests open at a server now.
    ServerOpen,
    /// Ejections of a server because of requests that failed.
    ServerEjections,
    /// Health checks of a server that failed.
    ServerCheckFailures,
    /// The load of an upstream; 1 is full. This metric and the four that follow are by upstream.
    UpstreamLoad,
    /// Requests that an upstream serves at a time without a queue: this gateway's share.
    UpstreamConcurrency,
    /// The factor by which elastic limits multiply their rates now; 1 if they lend nothing.
    ElasticFactor,
    /// The shed level of an upstream, from 4 (nothing is cut) to 0 (even critical requests lose room).
    SheddingLevel,
    /// Requests above their rate that elastic limits admitted.
    LentRequests,
    /// Requests shed in favour of more important ones, by upstream and priority.
    ShedRequests,
    /// Connections accepted from clients.
    Connections,
    /// Connections closed before their first request, by reason.
    ConnectionsRefused,
    /// TLS handshakes with clients, by outcome.
    Handshakes,
    /// The Unix time at which a certificate of the gateway expires, in seconds, by certificate.
    CertificateExpiry,
    /// Certificates ordered from an ACME directory, by certificate and outcome.
    CertificateOrders,
    /// Challenges of ACME directories to which the gateway responded with a proof.
    AcmeProofs,
    /// HTTP/2 and HTTP/3 connections closed for a flood of empty frames or resets.
    Http2Floods,
    /// Client connections open now.
    ConnectionsOpen,
    /// Reloads of the configuration, by outcome.
    Reloads,
    /// Bytes of the memory store in use.
    StoreBytes,
    /// The largest number of bytes that the memory store may use.
    StoreBudget,
    /// Keys that the memory store holds.
    StoreKeys,
    /// Bans that hold.
    Bans,
    /// API keys of operators that hold.
    ApiKeys,
    /// Requests open now that hold a permit, by limit.
    PermitsOpen,
    /// Decisions of the memory store's overflow sketch, made because no cell was free.
    SketchDecisions,
    /// 1 while limits are shared, 0 while this gateway decides alone.
    SharedStoreUp,
    /// Gateways that share the store, as of the last reply of the store.
    SharedStoreGateways,
    /// Counters of the shared store about which this gateway keeps facts in its memory.
    SharedStoreKeys,
    /// Calls to the shared store, by outcome.
    SharedStoreCalls,
    /// Requests with shared limits, by how they were decided.
    SharedStoreDecisions,
    /// Lines of the access log that were lost, because the output was too slow or could not be written.
    LogLinesLost,
    /// Series and sums that this process records.
    RecordSeries,
    /// Processor time of the process, in milliseconds.
    ProcessCpu,
    /// Resident memory of the process, in bytes.
    ProcessMemory,
    /// Fetches of a key set at a URL, by outcome.
    KeySetFetches,
    /// Samples pushed to a destination, by destination and result.
    PushSamples,
    /// Seconds between now and the last second that a destination has, by destination.
    PushLag,
    /// Spans of traces, by result.
    Spans,
}

/// The kind of a metric's values, which decides how they are added up and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A count of events, which only grows.
    Counter,
    /// A level, which rises and falls.
    Gauge,
    /// One counter per bucket; see [`super::histogram`].
    Histogram,
    /// The sum of a histogram's values, in nanoseconds.
    Sum,
}

impl Metric {
    /// The name on `/metrics`.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Requests => "tollgate_requests_total",
            Metric::IdentityRequests => "tollgate_identity_requests_total",
            Metric::LimitDecisions => "tollgate_limit_decisions_total",
            Metric::UnverifiedCredentials => "tollgate_unverified_credentials_total",
            Metric::CostUnknown => "tollgate_cost_unknown_total",
            Metric::Responses => "tollgate_responses_total",
            Metric::ResponseBytes => "tollgate_response_bytes_total",
            Metric::RequestsStarted => "tollgate_requests_started_total",
            Metric::RequestsOpen => "tollgate_requests_open",
            Metric::RequestDuration => "tollgate_request_duration_seconds_bucket",
            Metric::RequestDurationSum => "tollgate_request_duration_seconds_sum",
            Metric::UpstreamDuration => "tollgate_upstream_duration_seconds_bucket",
            Metric::UpstreamDurationSum => "tollgate_upstream_duration_seconds_sum",
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
            Metric::LentRequests => "tollgate_lent_total",
            Metric::ShedRequests => "tollgate_shed_total",
            Metric::Connections => "tollgate_connections_total",
            Metric::ConnectionsRefused => "tollgate_connections_refused_total",
            Metric::Handshakes => "tollgate_tls_handshakes_total",
            Metric::CertificateExpiry => "tollgate_certificate_expiry_timestamp_seconds",
            Metric::CertificateOrders => "tollgate_certificate_orders_total",
            Metric::KeySetFetches => "tollgate_key_set_fetches_total",
            Metric::AcmeProofs => "tollgate_acme_proofs_total",
            Metric::Http2Floods => "tollgate_http2_floods_total",
            Metric::ConnectionsOpen => "tollgate_connections_open",
            Metric::Reloads => "tollgate_reloads_total",
            Metric::StoreBytes => "tollgate_store_bytes",
            Metric::StoreBudget => "tollgate_store_budget_bytes",
            Metric::StoreKeys => "tollgate_store_keys",
            Metric::Bans => "tollgate_bans",
            Metric::ApiKeys => "tollgate_api_keys",
            Metric::PermitsOpen => "tollgate_permits_open",
            Metric::SketchDecisions => "tollgate_store_sketched_total",
            Metric::SharedStoreUp => "tollgate_shared_store_up",
            Metric::SharedStoreGateways => "tollgate_shared_store_gateways",
            Metric::SharedStoreKeys => "tollgate_shared_store_known_keys",
            Metric::SharedStoreCalls => "tollgate_shared_store_calls_total",
            Metric::SharedStoreDecisions => "tollgate_shared_store_decisions_total",
            Metric::LogLinesLost => "tollgate_log_dropped_total",
            Metric::RecordSeries => "tollgate_record_series",
            Metric::ProcessCpu => "process_cpu_seconds_total",
            Metric::ProcessMemory => "process_resident_memory_bytes",
            Metric::PushSamples => "tollgate_push_samples_total",
            Metric::PushLag => "tollgate_push_behind_seconds",
            Metric::Spans => "tollgate_spans_total",
        }
    }

    /// The help text on `/metrics`.
    pub fn help(self) -> &'static str {
        match self {
            Metric::Requests => "Requests that have ended, by route and outcome.",
            Metric::IdentityRequests => {
                "Requests that have ended, by the value of an identity with `metrics: true`, route and outcome."
            }
            Metric::LimitDecisions => {
                "Decisions of each limit: within, over, refused, shadow_refused; and try_refused of its candidate rate."
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
            Metric::ResponseBytes => "Bytes of response bodies, by route.",
            Metric::RequestsStarted => "Requests whose route was found.",
            Metric::RequestsOpen => "Requests open now, by route.",
            Metric::RequestDuration | Metric::RequestDurationSum => {
                "Seconds from arrival to the end of the answer, by route."
            }
            Metric::UpstreamDuration | Metric::UpstreamDurationSum => {
                "Seconds from a connection to the upstream to the head of its answer, by route."
            }
            Metric::UpstreamErrors => {
                "Requests to which their upstream sent no response, by reason."
            }
            Metric::UpstreamConnects => "Connections made to upstreams.",
            Metric::UpstreamRetries => {
                "Requests that went on to another server, or over another connection."
            }
            Metric::ServerUp => {
                "1 if the server takes requests, 0 if it is ejected or its checks fail."
            }
            Metric::ServerOpen => "Requests open at the server now.",
            Metric::ServerEjections => "Ejections of the server for requests that failed.",
            Metric::ServerCheckFailures => "Failed checks of the server.",
            Metric::UpstreamLoad => {
                "The highest of four loads, each 1 if full: by open requests, by latency, as the upstream reports it, and the gateway's own."
            }
            Metric::UpstreamConcurrency => {
                "Requests that the upstream serves at a time without a queue, as its latency shows."
            }
            Metric::ElasticFactor => {
                "The factor by which elastic limits multiply their rates now; 1 if they lend nothing."
            }
            Metric::SheddingLevel => {
                "From 4, where nothing is cut: at 3 nothing is lent, at 2 low requests are refused too, at 1 normal ones too, at 0 critical ones lose room."
            }
            Metric::LentRequests => "Requests above their rate that elastic limits admitted.",
            Metric::ShedRequests => {
                "Requests refused in favour of those with a higher priority, by priority."
            }
            Metric::Connections => "Connections taken from clients.",
            Metric::ConnectionsRefused => {
                "Connections closed before their first request, by reason."
            }
            Metric::Handshakes => "TLS handshakes with clients.",
            Metric::CertificateExpiry => {
                "Unix time at which the certificate expires, by its first name."
            }
            Metric::CertificateOrders => {
                "Certificates ordered from an ACME directory, first and renewed, by outcome."
            }
            Metric::KeySetFetches => "Fetches of a key set at a URL, by outcome: `ok` or `failed`.",
            Metric::AcmeProofs => "Challenges of ACME directories that the gateway proved.",
            Metric::Http2Floods => {
                "HTTP/2 and HTTP/3 connections closed for a flood of empty frames or resets."
            }
            Metric::ConnectionsOpen => "Client connections open now.",
            Metric::Reloads => "Policy reloads, by outcome.",
            Metric::StoreBytes => "Bytes of the memory store in use.",
            Metric::StoreBudget => "Bytes that the memory store may use.",
            Metric::StoreKeys => "Keys that the memory store holds.",
            Metric::Bans => "Bans that hold.",
            Metric::ApiKeys => "API keys added at run time that hold.",
            Metric::PermitsOpen => "Requests open now that hold a permit, by limit.",
            Metric::SketchDecisions => {
                "Decisions of the overflow sketch, made when no cell was free."
            }
            Metric::SharedStoreUp => {
                "1 while limits are shared, 0 while this gateway is on its own."
            }
            Metric::SharedStoreGateways => "Gateways that share the store, as last known.",
            Metric::SharedStoreKeys => "Counters of the shared store that this gateway knows of.",
            Metric::SharedStoreCalls => "Calls to the shared store: answered, late, failed.",
            Metric::SharedStoreDecisions => {
                "Requests with shared limits: the store decided, a lease saved the call, or the gateway decided alone."
            }
            Metric::LogLinesLost => {
                "Access-log lines lost because the output was too slow or could not be written."
            }
            Metric::RecordSeries => "Series that the record keeps.",
            Metric::ProcessCpu => "Processor time of the process, in seconds.",
            Metric::ProcessMemory => "Memory of the process that is in use, in bytes.",
            Metric::PushSamples => "Samples pushed to the destination: sent, refused.",
            Metric::PushLag => {
                "Seconds between now and the last second of the record that the destination has."
            }
            Metric::Spans => {
                "Spans of traces: sent, refused by the collector, or lost because it is away or slow."
            }
        }
    }

    /// The kind of the metric's values.
    pub fn kind(self) -> MetricKind {
        match self {
            Metric::RequestDuration | Metric::UpstreamDuration => MetricKind::Histogram,
            Metric::RequestDurationSum | Metric::UpstreamDurationSum => MetricKind::Sum,
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
            | Metric::Bans
            | Metric::ApiKeys
            | Metric::SharedStoreUp
            | Metric::SharedStoreGateways
            | Metric::SharedStoreKeys
            | Metric::PermitsOpen
            | Metric::PushLag => MetricKind::Gauge,
            _ => MetricKind::Counter,
        }
    }

    /// The metric with the sum of this histogram; `None` for other kinds.
    pub fn sum_metric(self) -> Option<Metric> {
        match self {
            Metric::RequestDuration => Some(Metric::RequestDurationSum),
            Metric::UpstreamDuration => Some(Metric::UpstreamDurationSum),
            _ => None,
        }
    }

    /// How many of the last digits are decimal places, in the whole numbers that [`super::Registry::visit`] passes on.
    pub fn decimal_places(self) -> u8 {
        match self {
            Metric::RequestDurationSum | Metric::UpstreamDurationSum => 6,
            Metric::ProcessCpu => 3,
            Metric::UpstreamLoad
            | Metric::UpstreamConcurrency
            | Metric::ElasticFactor
            | Metric::SheddingLevel => 3,
            _ => 0,
        }
    }
}

/// A label, which splits a metric into series. Its values are from the configuration or from a closed list. Statuses of
/// responses and values of identities may be others, but `registry.rs` bounds their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Label {
    /// The name of a route; `none` for requests without a route.
    Route,
    /// The outcome of a request, a decision, a call, a fetch, a handshake, an order or a reload.
    Outcome,
    /// The name of an identity.
    Identity,
    /// The value of an identity with `metrics: true`; `other` beyond the bounds.
    Value,
    /// The name of a limit.
    Limit,
    /// The name of an upstream.
    Upstream,
    /// A server of an upstream, as the configuration writes its location.
    Server,
    /// The first name of a certificate.
    Certificate,
    /// The reason of a failure or of a refused connection.
    Reason,
    /// The priority of requests that were shed.
    Priority,
    /// The status of a response; `other` beyond the bound.
    Status,
    /// The origin of a response: the gateway itself or an upstream.
    Origin,
    /// The upper bound of a histogram's bucket, in seconds.
    BucketBound,
    /// The name of the destination of pushed samples.
    Destination,
    /// The result of pushed samples and of spans: sent, refused or lost.
    Result,
}

impl Label {
    /// The name on `/metrics`.
    pub fn as_str(self) -> &'static str {
        match self {
            Label::Route => "route",
            Label::Outcome => "outcome",
            Label::Identity => "identity",
            Label::Value => "value",
            Label::Limit => "limit",
            Label::Upstream => "upstream",
            Label::Server => "server",
            Label::Certificate => "certificate",
            Label::Reason => "reason",
            Label::Priority => "priority",
            Label::Status => "status",
            Label::Origin => "origin",
            Label::BucketBound => "le",
            Label::Destination => "to",
            Label::Result => "result",
        }
    }
}
