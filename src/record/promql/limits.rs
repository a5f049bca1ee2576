//! Bounds of a query and its result.

/// Most samples that are read for a query.
pub const SAMPLES: usize = 2_000_000;
/// Most points of a result, of all its series together.
pub const POINTS: usize = 500_000;
/// Most bytes of the labels of a result.
pub const LABELS: usize = 16 << 20;
/// Most steps of a query.
pub const STEPS: i64 = 11_000;
/// Milliseconds for which a sample counts as the newest of its series.
pub const LOOKBACK: i64 = 300_000;
