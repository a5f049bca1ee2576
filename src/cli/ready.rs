//! `tollgate ready`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::admin::{self, CommandError};
use super::output;
use super::output::MISTAKE;
use crate::net::{Address, unix};
use crate::policy::{self, Endpoints};

/// Longest wait in all. Orchestrators usually give a probe this long or a little longer.
const TIMEOUT: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
pub struct Arguments {
    /// Gateway file of the running gateway.
    #[arg(long, default_value = "tollgate.yaml")]
    config: PathBuf,
}

/// Exit code 0: the gateway is ready. 1: it is not. 2: the gateway file does not say where to ask.
pub fn run(arguments: &Arguments) -> ExitCode {
    let endpoints = match policy::endpoints(&arguments.config) {
        Ok(endpoints) => endpoints,
        Err(report) => {
            output::print_stderr(report);
            return ExitCode::from(MISTAKE);
        }
    };
    let (send, answered) = channel();
    // If the thread still waits, it ends with the process.
    thread::spawn(move || send.send(ask(&endpoints)));
    let late = || Err((1, format!("no answer within {} s", TIMEOUT.as_secs())));
    match answered.recv_timeout(TIMEOUT).unwrap_or_else(|_| late()) {
        Ok(status) => output::exit_code(output::print_line(status.trim_end()), ExitCode::SUCCESS),
        Err((code, why)) => {
            output::print_stderr(format_args!("not ready: {}", why.trim_end()));
            ExitCode::from(code)
        }
    }
}

fn ask(endpoints: &Endpoints) -> Result<String, CommandError> {
    let (address, token) = match (endpoints.probes, endpoints.admin) {
        (Some(probes), _) => (probes, None),
        (None, Some(admin)) => (admin, endpoints.admin_token.as_deref()),
        // Without both listeners, accepting connections is all that can be checked.
        (None, None) => {
            for address in &endpoints.listen {
                let connected = match address {
                    Address::Tcp(address) => {
                        TcpStream::connect_timeout(&reachable_address(*address), TIMEOUT).map(drop)
                    }
                    Address::Unix(path) => unix::connect(path),
                };
                connected.map_err(|error| (1, format!("nothing listens on {address}: {error}")))?;
            }
            return Ok(String::from("connections are accepted"));
        }
    };
    let authority = reachable_address(address).to_string();
    let (head, body) = admin::exchange(&authority, token, ("GET", "/readyz", ""), TIMEOUT)
        .map_err(|error| (1, format!("no answer from {authority}: {error}")))?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(body),
        _ => Err((1, head.lines().next().unwrap_or_default().to_owned())),
    }
}

/// The address by which this machine reaches a listener of its own.
fn reachable_address(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}
