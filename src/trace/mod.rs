//! Traces: spans of sampled requests, which a thread sends to a collector by OTLP over HTTP.
//!
//! Workers encode the spans of a request when it ends and put them into a queue. They never wait for the thread. Spans
//! for which the queue has no room, or which the collector does not take, are counted and lost. `serve/stack/` decides
//! which requests are sampled, and what their spans say.
//!
//! | module | content |
//! |---|---|
//! | `trace_parent` | the header field `traceparent`, and the ids in it |
//! | `sample_rate` | the share of requests that are sampled |
//! | `span` | the encoding of one span |
//! | `span_queue` | the queue between workers and the thread |
//! | `tracer` | a worker's end |
//! | `exporter` | the thread that sends |
//! | `settings` | the settings of the collector |
//!
//! Bounds: those of [`SpanQueue`]; one batch more that is being sent, and of that one up to four copies while it is
//! encoded. `serve/stack/` bounds what a span has, and the exchanges of a request.

mod exporter;
mod sample_rate;
mod settings;
mod span;
mod span_queue;
mod trace_parent;
mod tracer;

pub use self::exporter::{Exporter, ExporterContext};
pub use self::sample_rate::SampleRate;
pub use self::settings::Settings;
pub use self::span::{Span, SpanKind, encode_spans};
pub use self::span_queue::SpanQueue;
pub use self::trace_parent::{SpanId, TraceParent, random_id};
pub use self::tracer::Tracer;
