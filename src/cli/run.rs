//! The command `tollgate run`: runs the gateway until a signal ends it, and reloads or replaces it on other signals.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use socket2::Socket;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::handover::{self, SuccessorStarter};
use super::internal::InternalListeners;
use super::listen_error;
use super::output;
use super::output::MISTAKE_EXIT_CODE;
use super::preflight;
use super::signals::{BlockedSignals, SignalEvent, Signals};
use crate::app::{App, Error, ReloadReport};
use crate::base::clock::Clock;
use crate::base::telemetry;
use crate::net::Address;
use crate::policy::{self, BindSettings, Diagnostic};
use crate::serve::worker::inherited_sockets::InheritedSockets;
use crate::serve::worker::listen;

#[derive(clap::Args)]
pub struct Arguments {
    /// Gateway file.
    #[arg(long, default_value = "tollgate.yaml")]
    config: PathBuf,
}

/// Runs the gateway. Signals stay blocked until there is a runtime that handles them.
pub fn run(arguments: &Arguments, blocked_signals: Option<BlockedSignals>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return output::exit_code(Err(error), ExitCode::FAILURE),
    };
    let exit_code = runtime.block_on(run_process(arguments.config.clone(), blocked_signals));
    // A start that was given up may still run on a blocking thread.
    runtime.shutdown_background();
    exit_code
}

/// Starts the gateway and operates it until it ends. Signals are handled before anything is loaded, because loading may
/// take long.
async fn run_process(config: PathBuf, blocked_signals: Option<BlockedSignals>) -> ExitCode {
    let mut signals = match Signals::new(blocked_signals) {
        Ok(signals) => signals,
        Err(error) => return output::exit_code(Err(error), ExitCode::FAILURE),
    };
    telemetry::log_to_stderr();
    let mut inherited = InheritedSockets::from_environment();
    let starting = tokio::task::spawn_blocking(move || {
        let started = start(&config, &mut inherited);
        (started, inherited)
    });
    let started = tokio::select! {
        biased;
        started = starting => started,
        () = signals.end() => {
            tracing::info!("stopped before it served");
            return ExitCode::SUCCESS;
        }
    };
    let (started, inherited) = match started {
        Ok(started) => started,
        Err(error) => return output::exit_code(Err(io::Error::other(error)), ExitCode::FAILURE),
    };
    let (app, warnings, internal) = match started {
        Ok(started) => started,
        Err(error) => return report_failed_start(&error),
    };
    print_warnings(&warnings);
    for address in inherited.unused() {
        tracing::warn!(
            address,
            "closed a passed socket that no `listen` or `admin` names"
        );
    }
    inherited.remove_unused_files();
    drop(inherited);
    let served = operate(Arc::new(app), internal, signals).await;
    output::exit_code(served, ExitCode::SUCCESS)
}

/// Starts the gateway after a check that all addresses are free, so that clients connect only if the start succeeds.
/// Returns warnings, and the listeners that are not for clients.
fn start(
    config: &Path,
    inherited: &mut InheritedSockets,
) -> Result<(App, Vec<Diagnostic>, InternalListeners), Error> {
    let loaded = policy::load(config).map_err(Error::Policy)?;
    let process = &loaded.process;
    for BindSettings { address, .. } in &process.listen {
        if !inherited.has_socket_for(address) {
            let with_passed = |tcp| Some((tcp, inherited.same_port_address(tcp)?));
            listen::check_unused(address).map_err(|cause| {
                match address.tcp().and_then(with_passed) {
                    Some((tcp, passed)) => listen_error::passed_socket_differs(tcp, passed),
                    None => listen_error::cannot_listen(address, "listen", cause),
                }
            })?;
        }
    }
    let internal = InternalListeners::bind(process, inherited)?;
    let bound_warnings = preflight::check_bounds(&loaded, &config.display().to_string());
    let (app, mut warnings) = App::start_on(config, loaded, Clock::system(), inherited)?;
    warnings.extend(bound_warnings);
    Ok((app, warnings, internal))
}

/// Prints why the start failed, and returns the exit code.
fn report_failed_start(error: &Error) -> ExitCode {
    match error {
        Error::Policy(report) => {
            output::print_stderr(report);
            ExitCode::from(MISTAKE_EXIT_CODE)
        }
        other => {
            output::print_stderr(format_args!("tollgate: {other}"));
            ExitCode::FAILURE
        }
    }
}

/// Reloads and hands over on signals and changed files, until a signal ends the process.
async fn operate(
    app: Arc<App>,
    internal: InternalListeners,
    mut signals: Signals,
) -> io::Result<()> {
    let mut starter = SuccessorStarter::new()?;
    print_addresses(&app);
    let internal_sockets = internal.sockets()?;
    let internal_listeners = internal.serve(&app)?;
    handover::announce_ready();
    let (changes, mut changed): (UnboundedSender<()>, UnboundedReceiver<()>) = unbounded_channel();
    let _watch = policy::watch(app.config().to_owned(), app.fingerprint(), move || {
        // The receiver lives as long as the process serves.
        let _ = changes.send(());
    })?;
    loop {
        tokio::select! {
            Some(()) = changed.recv() => reload(&app, "a changed file").await,
            () = app.keys_changed() => renew_keys(&app).await,
            event = signals.next() => match event {
                SignalEvent::Reload => reload(&app, "SIGHUP").await,
                SignalEvent::Reopen => app.reopen_log(),
                SignalEvent::Replace => {
                    app.write_snapshot();
                    let started = copy_sockets(&app, &internal_sockets)
                        .and_then(|sockets| starter.start(sockets, &app.socket_files()));
                    match started {
                        Ok(()) => tracing::info!("started a new process that takes over"),
                        Err(error) => tracing::error!(%error, "starting a new process failed; this one goes on"),
                    }
                }
                SignalEvent::ChildEnded => starter.check_successor(),
                SignalEvent::End => break,
            },
        }
    }
    let successor = starter.successor();
    handover::announce_end(successor);
    drop(internal_sockets);
    if successor.is_some() {
        // From now on the new process serves operators.
        drop(internal_listeners);
        app.finish_handover();
    } else {
        let delay = app.announce_end();
        if !delay.is_zero() {
            tracing::info!(
                ?delay,
                "no longer ready; still accepting connections during drain_delay"
            );
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = signals.end() => std::process::exit(1),
            }
        }
    }
    tracing::info!("draining; send the signal again to end at once");
    let draining = tokio::task::spawn_blocking(move || app.shut_down());
    tokio::select! {
        _ = draining => Ok(()),
        () = signals.end() => std::process::exit(1),
    }
}

fn print_addresses(app: &App) {
    for (address, listen) in app.addresses().iter().zip(&app.process().listen) {
        let scheme = if listen.tls { "https" } else { "http" };
        match address {
            Address::Tcp(address) => {
                output::print_stderr(format_args!("listening on {scheme}://{address}"));
            }
            Address::Unix(_) => {
                output::print_stderr(format_args!("listening on {address} ({scheme})"))
            }
        }
    }
}

/// Copies all listening sockets, for the process that takes over.
fn copy_sockets(app: &App, internal: &[TcpListener]) -> io::Result<Vec<Socket>> {
    let mut sockets = app.sockets()?;
    for listener in internal {
        sockets.push(listener.try_clone()?.into());
    }
    Ok(sockets)
}

/// Reloads the configuration, and logs the result.
async fn reload(app: &App, cause: &str) {
    match app.reload().await {
        Ok(ReloadReport {
            warnings,
            needs_restart,
            changes,
        }) => {
            print_warnings(&warnings);
            let ruleset = app.ruleset();
            let (routes, limits) = (ruleset.routes.len(), ruleset.rules.len());
            tracing::info!(cause, routes, limits, changed = %changes, "policies reloaded");
            if !needs_restart.is_empty() {
                tracing::warn!(
                    settings = needs_restart.join(", "),
                    "these settings take effect at the next start"
                );
            }
        }
        Err(error) => {
            tracing::error!(cause, "reload refused; the policies before still run");
            output::print_stderr(error);
        }
    }
}

/// Verifies tokens by the keys that were fetched last, and logs a failure.
async fn renew_keys(app: &App) {
    if let Err(error) = app.renew_keys().await {
        tracing::error!(%error, "the fetched keys cannot be used; those before stay in use");
    }
}

fn print_warnings(warnings: &[Diagnostic]) {
    for warning in warnings {
        output::print_stderr(warning);
    }
}
