//! `tollgate run`.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{MISTAKE, output};
use crate::app::{App, Error, Reloaded};
use crate::clock::Clock;
use crate::policy::{self, Diagnostic, Listen, Process};
use crate::serve::{admin, listen};
use crate::telemetry;

#[derive(clap::Args)]
pub struct Arguments {
    /// The gateway file.
    #[arg(long, default_value = "tollgate.yaml")]
    config: PathBuf,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    telemetry::log_to_stderr();
    let (app, admin) = match start(&arguments.config) {
        Ok((app, notes, admin)) => {
            tell_all(&notes);
            (Arc::new(app), admin)
        }
        Err(error) => return refuse(&error),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let served = runtime.and_then(|runtime| runtime.block_on(operate(app, admin)));
    output::ended(served, ExitCode::SUCCESS)
}

/// Starts the gateway once every address is known to be free: clients are taken last.
fn start(config: &Path) -> Result<(App, Vec<Diagnostic>, Option<TcpListener>), Error> {
    let process = policy::load(config).map_err(Error::Policy)?.process;
    for Listen { address, .. } in &process.listen {
        listen::probe(*address).map_err(|cause| unusable(*address, "listen", cause))?;
    }
    let admin = bind_admin(&process)?;
    let (app, notes) = App::start(config, Clock::system())?;
    if *app.process() != process {
        // The file changed in between.
        drop((app, admin));
        return start(config);
    }
    Ok((app, notes, admin))
}

/// Binds the admin address, if there is one.
pub fn bind_admin(process: &Process) -> Result<Option<TcpListener>, Error> {
    let bind =
        |address| TcpListener::bind(address).map_err(|cause| unusable(address, "admin", cause));
    process.admin.map(bind).transpose()
}

fn unusable(address: SocketAddr, setting: &str, cause: io::Error) -> Error {
    let cause = match cause.kind() {
        io::ErrorKind::AddrInUse => io::Error::new(
            cause.kind(),
            format!(
                "address in use: another process listens there, perhaps another gateway; \
                 stop it, or choose another address with `{setting}`"
            ),
        ),
        _ => cause,
    };
    Error::Listen { address, cause }
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

/// Serves operators, on a thread of their own; says where.
pub fn serve_admin(app: &Arc<App>, listener: TcpListener) -> io::Result<SocketAddr> {
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
    Ok(address)
}

/// Reloads and stops as it is told.
async fn operate(app: Arc<App>, admin: Option<TcpListener>) -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // Only now, when whoever reads it may send signals.
    for (address, listen) in app.addresses().iter().zip(&app.process().listen) {
        let scheme = if listen.tls { "https" } else { "http" };
        output::tell(format_args!("listening on {scheme}://{address}"));
    }
    if let Some(listener) = admin {
        let address = serve_admin(&app, listener)?;
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
            tell_all(&notes);
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

fn tell_all(notes: &[Diagnostic]) {
    for note in notes {
        output::tell(note);
    }
}
