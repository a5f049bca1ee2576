//! The bounds of what a query reads and returns. Those of its work are in `budget.rs`.

/// The most samples that are read for a query, 16 bytes each.
pub const MAX_READ_SAMPLES: usize = 2_000_000;
/// The most points of a result, of all its series together.
pub const MAX_RESULT_SAMPLES: usize = 500_000;
/// The most bytes of the labels of a result.
pub const MAX_LABEL_BYTES: usize = 16 << 20;
/// The most steps of a query, as in Prometheus.
pub const MAX_STEPS: i64 = 11_000;
/// The milliseconds for which a sample counts as the newest of its series: five minutes, the default of Prometheus.
pub const LOOKBACK_MS: i64 = 300_000;
