//! `tollgate run`.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{MISTAKE, output};
use crate::app::{App, Error, Reloaded};
use crate::clock::Clock;
use crate::policy;
use crate::serve::admin;
use crate::telemetry;

#[derive(clap::Args)]
pub struct Arguments {
    /// The gateway file.
    #[arg(long, default_value = "tollgate.yaml")]
    config: PathBuf,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    telemetry::log_to_stderr();
    let app = match App::start(&arguments.config, Clock::system()) {
        Ok((app, notes)) => {
            for note in notes {
                output::tell(note);
            }
            Arc::new(app)
        }
        Err(error) => return refuse(&error),
    };
    for address in app.addresses() {
        output::tell(format_args!("listening on http://{address}"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let served = runtime.and_then(|runtime| runtime.block_on(operate(app)));
    output::ended(served, ExitCode::SUCCESS)
}

fn refuse(error: &Error) -> ExitCode {
    match error {
        Error::Policy(report) => {
            output::tell(report);
            ExitCode::from(MISTAKE)
        }
        other => {
            output::tell(format_args!("tollgate: {other}"));
            ExitCode::FAILURE
        }
    }
}

/// Starts the admin listener; says where it is.
pub fn start_admin(app: &Arc<App>) -> io::Result<Option<SocketAddr>> {
    let Some(address) = app.process().admin else {
        return Ok(None);
    };
    let failed = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot listen on the admin address {address}: {error}"),
        )
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let address = listener.local_addr()?;
    let router = admin::router(app.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    thread::Builder::new().name("admin".into()).spawn(move || {
        if let Err(error) = runtime.block_on(admin::serve(listener, router)) {
            tracing::error!(%error, "the admin listener ended");
        }
    })?;
    Ok(Some(address))
}

/// Reloads and stops as it is told.
async fn operate(app: Arc<App>) -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    if let Some(address) = start_admin(&app)? {
        output::tell(format_args!("admin on http://{address}"));
    }
    let (changes, mut changed): (UnboundedSender<()>, UnboundedReceiver<()>) = unbounded_channel();
    let _watch = policy::watch(app.config().to_owned(), app.fingerprint(), move || {
        // The receiver lives as long as the process serves.
        let _ = changes.send(());
    })?;
    loop {
        tokio::select! {
            _ = hangup.recv() => reload(&app, "SIGHUP").await,
            Some(()) = changed.recv() => reload(&app, "a changed file").await,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    tracing::info!("draining; a second signal ends at once");
    let draining = tokio::task::spawn_blocking(move || app.shut_down());
    either(draining, &mut terminate, &mut interrupt).await;
    Ok(())
}

async fn either(draining: impl Future, terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = draining => {}
        _ = terminate.recv() => std::process::exit(1),
        _ = interrupt.recv() => std::process::exit(1),
    }
}

async fn reload(app: &App, cause: &str) {
    match app.reload().await {
        Ok(Reloaded { notes, restart }) => {
            for note in notes {
                output::tell(note);
            }
            let ruleset = app.ruleset();
            let (routes, limits) = (ruleset.routes.len(), ruleset.rules.len());
            tracing::info!(cause, routes, limits, "policies reloaded");
            if !restart.is_empty() {
                tracing::warn!(
                    settings = restart.join(", "),
                    "these take effect at the next start"
                );
            }
        }
        Err(error) => {
            tracing::error!(cause, "reload refused; the policies before still run");
            output::tell(error);
        }
    }
}
