//! The command `tollgate run`: runs the gateway until a signal ends it. Changed files and SIGHUP reload it, SIGUSR1
//! reopens the access log, and SIGUSR2 starts a new process that takes over.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use socket2::Socket;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::handover::{self, SuccessorStarter};
use super::internal_listeners::InternalListeners;
use super::listen_error;
use super::output;
use super::output::MISTAKE_EXIT_CODE;
use super::preflight;
use super::signals::{BlockedSignals, SignalEvent, Signals};
use crate::app::{Error, Gateway, ReloadReport};
use crate::base::clock::Clock;
use crate::base::telemetry;
use crate::net::Address;
use crate::policy::{self, BindSettings, Diagnostic, ListenerRole};
use crate::serve::worker::inherited_sockets::InheritedSockets;
use crate::serve::worker::listen;

#[derive(clap::Args)]
pub struct Arguments {
    /// Gateway file.
    #[arg(long, default_value = "tollgate.yaml")]
    config: PathBuf,
}

/// Runs the gateway. Signals stay blocked until there is a runtime that handles them. Exit code 0: a signal ended the
/// gateway. 1: it could not start, or a second signal cut its end short. 2: the configuration has mistakes.
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

/// Starts the gateway and operates it until it ends. Signals are handled before the configuration is loaded, because
/// loading may take long.
async fn run_process(config_path: PathBuf, blocked_signals: Option<BlockedSignals>) -> ExitCode {
    let mut signals = match Signals::new(blocked_signals) {
        Ok(signals) => signals,
        Err(error) => return output::exit_code(Err(error), ExitCode::FAILURE),
    };
    telemetry::log_to_stderr();
    let mut inherited = InheritedSockets::from_environment();
    let start_task = tokio::task::spawn_blocking(move || {
        let start_result = start_gateway(&config_path, &mut inherited);
        (start_result, inherited)
    });
    let task_result = tokio::select! {
        biased;
        result = start_task => result,
        () = signals.next_end() => {
            tracing::info!("stopped before it served");
            return ExitCode::SUCCESS;
        }
    };
    let (start_result, inherited) = match task_result {
        Ok(start_result_and_sockets) => start_result_and_sockets,
        Err(error) => return output::exit_code(Err(io::Error::other(error)), ExitCode::FAILURE),
    };
    let (gateway, warnings, internal_listeners) = match start_result {
        Ok(started_parts) => started_parts,
        Err(error) => return report_failed_start(&error),
    };
    print_warnings(&warnings);
    if cfg!(slow_release) {
        tracing::warn!(
            "this build is not optimised and takes several times the CPU; build with `cargo build --profile production`"
        );
    }
    for address in inherited.describe_unused() {
        tracing::warn!(
            address,
            "closed a passed socket that no `listen` or `admin` names"
        );
    }
    inherited.remove_unused_files();
    drop(inherited);
    let operation_result = operate(Arc::new(gateway), internal_listeners, signals).await;
    output::exit_code(operation_result, ExitCode::SUCCESS)
}

/// Checks that all addresses are free, and starts the gateway. Without the check, clients could connect to one listener
/// before the start fails at the next one. Returns also warnings, and the listeners that are not for clients.
fn start_gateway(
    config_path: &Path,
    inherited: &mut InheritedSockets,
) -> Result<(Gateway, Vec<Diagnostic>, InternalListeners), Error> {
    let loaded = policy::load(config_path).map_err(Error::Policy)?;
    let process = &loaded.process;
    for BindSettings { address, .. } in &process.listen {
        if !inherited.has_socket_for(address) {
            let with_passed_address =
                |address| Some((address, inherited.same_port_address(address)?));
            listen::check_unused(address).map_err(|cause| {
                match address.tcp().and_then(with_passed_address) {
                    Some((address, passed_address)) => {
                        listen_error::passed_socket_differs(address, passed_address)
                    }
                    None => listen_error::cannot_listen(address, "listen", cause),
                }
            })?;
        }
    }
    let internal_listeners = InternalListeners::bind(process, inherited)?;
    let key_sets = handover::read_key_sets();
    let bound_warnings = preflight::check_bounds(&loaded, &config_path.display().to_string());
    let (gateway, mut warnings) =
        Gateway::start_on(config_path, loaded, Clock::system(), (inherited, key_sets))?;
    warnings.extend(bound_warnings);
    Ok((gateway, warnings, internal_listeners))
}

/// Prints why the start failed, and returns the exit code.
fn report_failed_start(error: &Error) -> ExitCode {
    match error {
        Error::Policy(report) => {
            output::print_stderr(report);
            ExitCode::from(MISTAKE_EXIT_CODE)
        }
        error => {
            output::print_stderr(format_args!("tollgate: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Reloads, renews keys and hands over as signals, changed files and fetched keys require, until a signal ends the
/// process. Then it drains the gateway. A second signal while it drains ends the process at once, with exit code 1.
async fn operate(
    gateway: Arc<Gateway>,
    internal_listeners: InternalListeners,
    mut signals: Signals,
) -> io::Result<()> {
    let mut successor_starter = SuccessorStarter::new()?;
    print_addresses(&gateway);
    let internal_sockets = internal_listeners.sockets()?;
    let mut serving_listeners = internal_listeners.serve(&gateway)?;
    handover::announce_ready();
    let (change_sender, mut file_changes): (UnboundedSender<()>, UnboundedReceiver<()>) =
        unbounded_channel();
    let _watch = policy::watch(
        gateway.config_path().to_owned(),
        gateway.fingerprint(),
        move || {
            // The receiver lives as long as the process serves.
            let _ = change_sender.send(());
        },
    )?;
    loop {
        tokio::select! {
            Some(()) = file_changes.recv() => reload(&gateway, "a changed file").await,
            () = gateway.wait_for_new_keys() => renew_keys(&gateway).await,
            event = signals.next() => match event {
                SignalEvent::Reload => reload(&gateway, "SIGHUP").await,
                SignalEvent::Reopen => gateway.reopen_log(),
                SignalEvent::Replace => {
                    // The new process restores its counts from this snapshot.
                    gateway.write_snapshot();
                    let start_result =
                        copy_sockets(&gateway, &internal_sockets).and_then(|sockets| {
                            let files = gateway.socket_files();
                            successor_starter.start(sockets, &files, gateway.key_sets())
                        });
                    match start_result {
                        Ok(()) => tracing::info!("started a new process that takes over"),
                        Err(error) => tracing::error!(%error, "starting a new process failed; this one goes on"),
                    }
                }
                SignalEvent::ChildEnded => successor_starter.check_successor(),
                SignalEvent::End => break,
            },
        }
    }
    let successor_id = successor_starter.successor_id();
    handover::announce_end(successor_id);
    drop(internal_sockets);
    if successor_id.is_some() {
        // From now on the new process serves operators.
        serving_listeners.stop();
        gateway.leave_files_to_successor();
    } else {
        let drain_delay = gateway.announce_end();
        if !drain_delay.is_zero() {
            tracing::info!(
                delay = ?drain_delay,
                "no longer ready; still accepting connections during drain_delay"
            );
            tokio::select! {
                () = tokio::time::sleep(drain_delay) => {}
                () = signals.next_end() => std::process::exit(1),
            }
        }
    }
    tracing::info!("draining; send the signal again to end at once");
    let drained_gateway = gateway.clone();
    let drain_task = tokio::task::spawn_blocking(move || drained_gateway.drain());
    // What operators order until now shall be in the record, so it ends after their listener.
    let end = async {
        let _ = drain_task.await;
        serving_listeners.finish().await;
        let _ = tokio::task::spawn_blocking(move || gateway.shut_down()).await;
    };
    tokio::select! {
        () = end => {}
        () = signals.next_end() => std::process::exit(1),
    }
    Ok(())
}

fn print_addresses(gateway: &Gateway) {
    for (address, listen) in gateway
        .addresses()
        .iter()
        .zip(&gateway.process_settings().listen)
    {
        let scheme = if listen.tls { "https" } else { "http" };
        match listen.role {
            ListenerRole::Proxy => {}
            ListenerRole::Check => {
                output::print_stderr(format_args!("HTTP checks on {address}"));
                continue;
            }
            ListenerRole::RateLimitService => {
                output::print_stderr(format_args!("rate limit service on {address}"));
                continue;
            }
        }
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
fn copy_sockets(gateway: &Gateway, internal_sockets: &[TcpListener]) -> io::Result<Vec<Socket>> {
    let mut sockets = gateway.sockets()?;
    for listener in internal_sockets {
        sockets.push(listener.try_clone()?.into());
    }
    Ok(sockets)
}

/// Reloads the configuration, prints warnings or mistakes, and logs the result.
async fn reload(gateway: &Gateway, cause: &str) {
    match gateway.reload().await {
        Ok(ReloadReport {
            warnings,
            needs_restart,
            changes,
        }) => {
            print_warnings(&warnings);
            let ruleset = gateway.ruleset();
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
async fn renew_keys(gateway: &Gateway) {
    if let Err(error) = gateway.renew_keys().await {
        tracing::error!(%error, "the fetched keys cannot be used; those before stay in use");
    }
}

fn print_warnings(warnings: &[Diagnostic]) {
    for warning in warnings {
        output::print_stderr(warning);
    }
}
