//! The command `tollgate demo`: runs the gateway, an upstream, sample policies and clients in one process, and tells what
//! happens. Its files are in a temporary folder, which it removes at the end, unless it is killed.
//!
//! | module | content |
//! |---|---|
//! | `configuration` | the gateway file and the policies |
//! | `story` | the scenes, in order |
//! | `traffic` | the time of the story, paced requests and the clients that always run |
//! | `client`, `upstream` | both ends of the traffic |

mod client;
mod configuration;
mod story;
mod traffic;
mod upstream;

use std::fs::DirBuilder;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use tokio::sync::oneshot;

use self::traffic::DemoRun;
use super::signals::EndSignals;
use super::{internal_listeners, output};
use crate::app::Gateway;
use crate::base::clock::Clock;
use crate::serve::admin;

#[derive(clap::Args)]
pub struct Arguments {
    /// Address for clients; another port if it is in use.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Address of the admin listener; another port if it is in use.
    #[arg(long, default_value = "127.0.0.1:9900")]
    admin: SocketAddr,
    /// Seconds to run; default: until interrupted.
    #[arg(long = "for", value_name = "SECONDS")]
    seconds: Option<u64>,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    output::exit_code(demo(arguments), ExitCode::SUCCESS)
}

/// Runs the demo until its time is over, or a signal ends it.
fn demo(arguments: &Arguments) -> io::Result<()> {
    let should_end = watch_end_signals()?;
    let upstream = upstream::start()?;
    let folder = std::env::temp_dir().join(format!("tollgate-demo-{}", std::process::id()));
    // Nobody else may write the policies, nor have made the folder before.
    DirBuilder::new()
        .mode(0o700)
        .create(&folder)
        .map_err(|error| {
            let folder = folder.display();
            io::Error::new(
                error.kind(),
                format!("cannot make the folder {folder}: {error}"),
            )
        })?;
    let result = start_gateway(arguments, upstream, &folder)
        .and_then(|gateway| show_gateway(&gateway, &folder, arguments, &should_end));
    let _ = std::fs::remove_dir_all(&folder);
    result
}

/// Writes the configuration into the folder, and starts a gateway with it.
fn start_gateway(
    arguments: &Arguments,
    upstream: SocketAddr,
    folder: &Path,
) -> io::Result<Arc<Gateway>> {
    let listen = free_or_any_port(arguments.listen);
    let admin = free_or_any_port(arguments.admin);
    let config_path = configuration::write_files(folder, listen, admin, upstream)?;
    let (gateway, _) = Gateway::start(&config_path, Clock::system()).map_err(io::Error::other)?;
    Ok(Arc::new(gateway))
}

/// Returns the address, with port 0 if it cannot be bound, mostly because its port is in use. With port 0 the system
/// chooses a free one.
fn free_or_any_port(address: SocketAddr) -> SocketAddr {
    match TcpListener::bind(address) {
        Ok(_) => address,
        Err(_) => SocketAddr::new(address.ip(), 0),
    }
}

/// Serves the admin listener, tells the story, and reloads the policies when their files change.
fn show_gateway(
    gateway: &Arc<Gateway>,
    folder: &Path,
    arguments: &Arguments,
    should_end: &AtomicBool,
) -> io::Result<()> {
    // The admin listener ends when this function drops the sender.
    let (_stop_sender, stop) = oneshot::channel();
    let admin_setting = gateway.process_settings().admin;
    let admin_listener = TcpListener::bind(admin_setting.unwrap_or(arguments.admin))?;
    let router = admin::router(gateway.clone());
    let (admin, _) = internal_listeners::serve_on_thread(admin_listener, router, "admin", stop)?;
    let address = gateway.addresses()[0]
        .tcp()
        .ok_or_else(|| io::Error::other("the demo listens on TCP"))?;
    let gateway_to_reload = gateway.clone();
    let config_path = gateway.config_path().to_owned();
    let _watch = crate::policy::watch(config_path, gateway.fingerprint(), move || {
        reload(&gateway_to_reload);
    })?;
    let run = DemoRun::new(gateway, address, arguments.seconds, should_end);
    story::print_first_screen(&run, admin, folder)?;
    run.with_usual_clients(|usual| story::play(&run, usual, admin, folder))
}

/// Returns a flag that becomes true when a signal to end the process comes.
fn watch_end_signals() -> io::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let mut signals = {
        let _runtime_guard = runtime.enter();
        EndSignals::new()?
    };
    let should_end = Arc::new(AtomicBool::new(false));
    let flag_of_thread = should_end.clone();
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(signals.next());
            flag_of_thread.store(true, Relaxed);
        })?;
    Ok(should_end)
}

/// Reloads the configuration, and prints the result.
fn reload(gateway: &Arc<Gateway>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let message = match runtime.map(|runtime| runtime.block_on(Gateway::reload(gateway))) {
        Ok(Ok(_)) => "    policies reloaded".to_owned(),
        Ok(Err(error)) => format!("{error}\n    the policies before still run"),
        Err(error) => format!("    cannot reload: {error}"),
    };
    // If printing fails, the next line of the story fails too and ends the demo.
    let _ = output::print_line(message);
}
