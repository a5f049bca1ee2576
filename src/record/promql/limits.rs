//! The bounds of what a query reads and returns. Those of its work are in `budget.rs`.

/// The most samples that are read for all selectors of a query together, 16 bytes each. Each selector may read an equal
/// share.
pub const MAX_READ_SAMPLES: usize = 2_000_000;
/// The most samples of a result, of all its series together. Error messages call them points, as Prometheus does.
pub const MAX_RESULT_SAMPLES: usize = 500_000;
/// The most bytes of the labels of a range query's result, in memory: 16 MiB.
pub const MAX_LABEL_BYTES: usize = 16 << 20;
/// The most steps from the first time of a query to its last, as in Prometheus. A query is evaluated at one time more.
pub const MAX_STEPS: i64 = 11_000;
/// The milliseconds for which a sample counts as the newest of its series: five minutes, the default of Prometheus.
pub const LOOKBACK_MS: i64 = 300_000;
