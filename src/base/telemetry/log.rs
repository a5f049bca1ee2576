//! The process's own log.

use std::io::{IsTerminal as _, stderr};

use tracing_subscriber::EnvFilter;

/// Sends the process's own log to standard error, in colour only where that is a terminal.
/// `TOLLGATE_LOG` sets the level, `info` by default.
pub fn log_to_stderr() {
    let wanted = std::env::var("TOLLGATE_LOG").unwrap_or_default();
    let wanted = Some(wanted.as_str()).filter(|level| !level.is_empty());
    let filter = EnvFilter::try_new(wanted.unwrap_or("info"));
    let mistake = filter.as_ref().err().map(ToString::to_string);
    let filter = filter.unwrap_or_else(|_| EnvFilter::new("info"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        // They would be printed to where writing has just failed, by a macro that panics there.
        .log_internal_errors(false)
        .try_init();
    if let Some(mistake) = mistake {
        tracing::warn!("TOLLGATE_LOG is not a level such as debug or warn: {mistake}");
    }
}
