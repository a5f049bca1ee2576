//! Sets up the log of the process, in which it reports what it does itself. `serve/access` logs requests.

use std::io::{IsTerminal as _, stderr};

use tracing_subscriber::EnvFilter;

/// The level of the log unless `TOLLGATE_LOG` sets a valid one.
const DEFAULT_LEVEL: &str = "info";

/// Sends the log of the process to standard error, in colour only on a terminal. A second call changes nothing.
///
/// `TOLLGATE_LOG` sets the level, or levels by module as [`EnvFilter`] reads them. A mistake in that variable is logged
/// as a warning, and the level is [`DEFAULT_LEVEL`] then.
pub fn log_to_stderr() {
    let level = std::env::var("TOLLGATE_LOG").unwrap_or_default();
    let level = match level.as_str() {
        "" => DEFAULT_LEVEL,
        level => level,
    };
    let filter = EnvFilter::try_new(level);
    let mistake = filter.as_ref().err().map(ToString::to_string);
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(DEFAULT_LEVEL));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        // An internal error means that standard error is closed. The macro that prints the error would panic.
        .log_internal_errors(false)
        .try_init();
    if let Some(mistake) = mistake {
        tracing::warn!("TOLLGATE_LOG is not a level such as debug or warn: {mistake}");
    }
}
