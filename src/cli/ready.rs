//! The command `tollgate ready`: checks whether the gateway on this machine is ready. Container images without another
//! HTTP client use it as their health check.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::admin_client::{self, AdminRequest};
use super::output;
use super::output::{CommandError, MISTAKE_EXIT_CODE};
use crate::net::{Address, unix_socket};
use crate::policy::{self, Endpoints};

/// The longest time for the check, after the gateway file was read. The health check of the `Dockerfile` waits longer,
/// so that the command can print why it failed.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
pub struct Arguments {
    /// Gateway file of the running gateway.
    #[arg(long, default_value = "tollgate.yaml")]
    config: PathBuf,
}

/// Runs the command. Exit code 0: the gateway is ready. 1: it is not ready, or sends no response. 2: the addresses in
/// the gateway file cannot be read.
pub fn run(arguments: &Arguments) -> ExitCode {
    let endpoints = match policy::load_endpoints(&arguments.config) {
        Ok(endpoints) => endpoints,
        Err(report) => {
            output::print_stderr(report);
            return ExitCode::from(MISTAKE_EXIT_CODE);
        }
    };
    let (result_sender, result_receiver) = channel();
    // If the thread still waits after the timeout, it ends with the process.
    thread::spawn(move || result_sender.send(check_ready(&endpoints)));
    let timeout_error = || {
        let seconds = READY_TIMEOUT.as_secs();
        Err(CommandError::failure(format!(
            "no answer within {seconds} s"
        )))
    };
    match result_receiver
        .recv_timeout(READY_TIMEOUT)
        .unwrap_or_else(|_| timeout_error())
    {
        Ok(status) => output::exit_code(output::print_line(status.trim_end()), ExitCode::SUCCESS),
        Err(error) => {
            output::print_stderr(format_args!("not ready: {}", error.message.trim_end()));
            ExitCode::from(error.exit_code)
        }
    }
}

/// Queries `/readyz` of the probes or, without probes, of the admin listener. Without either it only connects to the
/// listeners for clients. Returns the text to print if the gateway is ready.
fn check_ready(endpoints: &Endpoints) -> Result<String, CommandError> {
    let (address, token) = match (endpoints.probes, endpoints.admin) {
        (Some(probes), _) => (probes, None),
        (None, Some(_)) if endpoints.operators.is_some() && endpoints.admin_token.is_none() => {
            let message = "the file of operators' tokens has only hashes, or tokens that have expired; \
                           add for instance `probes: 127.0.0.1:9901` to `admin`, which needs no token";
            return Err(CommandError::failure(message));
        }
        (None, Some(admin)) => (admin, endpoints.admin_token.as_deref()),
        (None, None) => return check_connections(&endpoints.listen),
    };
    let authority = reachable_address(address).to_string();
    let request = AdminRequest {
        method: "GET",
        path: "/readyz",
        body: "",
    };
    let (head, body) = admin_client::send_request(&authority, token, request, READY_TIMEOUT)
        .map_err(|error| CommandError::failure(format!("no answer from {authority}: {error}")))?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(body),
        _ => Err(CommandError::failure(
            head.lines().next().unwrap_or_default(),
        )),
    }
}

/// Connects to every listener for clients. Nothing else can be checked without probes and without an admin listener.
fn check_connections(addresses: &[Address]) -> Result<String, CommandError> {
    for address in addresses {
        let connect_result = match address {
            Address::Tcp(address) => {
                TcpStream::connect_timeout(&reachable_address(*address), READY_TIMEOUT).map(drop)
            }
            Address::Unix(path) => unix_socket::try_connect(path),
        };
        connect_result.map_err(|error| {
            CommandError::failure(format!("nothing listens on {address}: {error}"))
        })?;
    }
    Ok(String::from("connections are accepted"))
}

/// Returns the address by which this machine reaches a listener of its own: loopback for an unspecified address.
fn reachable_address(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}
