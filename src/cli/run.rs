//! `tollgate run`.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::handover::{self, Starter};
use super::signals::{Signals, Told};
use super::{MISTAKE, output};
use crate::app::{App, Error, Reloaded};
use crate::clock::Clock;
use crate::policy::{self, Diagnostic, Listen, Process};
use crate::serve::admin;
use crate::serve::listen::{self, Inherited};
use crate::telemetry;

#[derive(clap::Args)]
pub struct Arguments {
    /// The gateway file.
    #[arg(long, default_value = "tollgate.yaml")]
    config: PathBuf,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return output::ended(Err(error), ExitCode::FAILURE),
    };
    let ended = runtime.block_on(live(arguments.config.clone()));
    // A start that was given up goes on beside it.
    runtime.shutdown_background();
    ended
}

/// The life of the process. Signals are heard before anything is loaded, which may take long.
async fn live(config: PathBuf) -> ExitCode {
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return output::ended(Err(error), ExitCode::FAILURE),
    };
    telemetry::log_to_stderr();
    let mut inherited = Inherited::from_environment();
    let starting = tokio::task::spawn_blocking(move || {
        let started = start(&config, &mut inherited);
        (started, inherited)
    });
    let started = tokio::select! {
        biased;
        started = starting => started,
        () = signals.end() => {
            tracing::info!("told to end before it served");
            return ExitCode::SUCCESS;
        }
    };
    let (started, inherited) = match started {
        Ok(started) => started,
        Err(error) => return output::ended(Err(io::Error::other(error)), ExitCode::FAILURE),
    };
    let (app, notes, admin) = match started {
        Ok(started) => started,
        Err(error) => return refuse(&error),
    };
    tell_all(&notes);
    for address in inherited.left() {
        tracing::warn!(%address, "a socket was passed that no file names; it is closed");
    }
    drop(inherited);
    let served = operate(Arc::new(app), admin, signals).await;
    output::ended(served, ExitCode::SUCCESS)
}

/// Starts the gateway once every address is known to be free: clients are taken last.
fn start(
    config: &Path,
    inherited: &mut Inherited,
) -> Result<(App, Vec<Diagnostic>, Option<TcpListener>), Error> {
    let loaded = policy::load(config).map_err(Error::Policy)?;
    let process = &loaded.process;
    for Listen { address, .. } in &process.listen {
        if !inherited.has(*address) {
            listen::probe(*address).map_err(|cause| unusable(*address, "listen", cause))?;
        }
    }
    let passed = process.admin.and_then(|admin| inherited.take(admin).pop());
    let admin = match passed {
        Some(admin) => Some(admin),
        None => bind_admin(process)?,
    };
    let (app, notes) = App::start_on(config, loaded, Clock::system(), inherited)?;
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

/// Serves operators, on a thread of their own, until `stop` is dropped; says where.
pub fn serve_admin(
    app: &Arc<App>,
    listener: TcpListener,
    stop: oneshot::Receiver<()>,
) -> io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    let router = admin::router(app.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    thread::Builder::new().name("admin".into()).spawn(move || {
        if let Err(error) = runtime.block_on(admin::serve(listener, router, stop)) {
            tracing::error!(%error, "the admin listener ended");
        }
    })?;
    Ok(address)
}

/// Reloads and stops as it is told.
async fn operate(
    app: Arc<App>,
    admin: Option<TcpListener>,
    mut signals: Signals,
) -> io::Result<()> {
    let mut starter = Starter::new()?;
    for (address, listen) in app.addresses().iter().zip(&app.process().listen) {
        let scheme = if listen.tls { "https" } else { "http" };
        output::tell(format_args!("listening on {scheme}://{address}"));
    }
    let (stop_admin, stop) = oneshot::channel();
    let passed = admin.as_ref().map(TcpListener::try_clone).transpose()?;
    if let Some(listener) = admin {
        let address = serve_admin(&app, listener, stop)?;
        output::tell(format_args!("admin on http://{address}"));
    }
    handover::ready();
    let (changes, mut changed): (UnboundedSender<()>, UnboundedReceiver<()>) = unbounded_channel();
    let _watch = policy::watch(app.config().to_owned(), app.fingerprint(), move || {
        // The receiver lives as long as the process serves.
        let _ = changes.send(());
    })?;
    loop {
        tokio::select! {
            Some(()) = changed.recv() => reload(&app, "a changed file").await,
            told = signals.next() => match told {
                Told::Reload => reload(&app, "SIGHUP").await,
                Told::Reopen => app.reopen_log(),
                Told::Replace => {
                    app.hand_over();
                    match sockets(&app, passed.as_ref()).and_then(|all| starter.start(all)) {
                        Ok(()) => tracing::info!("a new process takes over"),
                        Err(error) => tracing::error!(%error, "no new process; this one goes on"),
                    }
                }
                Told::Child => starter.look(),
                Told::End => break,
            },
        }
    }
    let successor = starter.successor();
    handover::ending(successor);
    drop(passed);
    if successor.is_some() {
        // From now on operators ask the new one.
        drop(stop_admin);
        app.handed_over();
    }
    tracing::info!("draining; a second signal ends at once");
    let draining = tokio::task::spawn_blocking(move || app.shut_down());
    tokio::select! {
        _ = draining => Ok(()),
        () = signals.end() => std::process::exit(1),
    }
}

/// All sockets that listen.
fn sockets(app: &App, admin: Option<&TcpListener>) -> io::Result<Vec<TcpListener>> {
    let mut sockets = app.sockets()?;
    sockets.extend(admin.map(TcpListener::try_clone).transpose()?);
    Ok(sockets)
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
