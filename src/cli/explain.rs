//! `tollgate explain`.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{MISTAKE, output};
use crate::acme::Tokens;
use crate::admission::Admission;
use crate::clock::Clock;
use crate::identity::Keyer;
use crate::policy;
use crate::serve::explain::{self, Question};
use crate::serve::generation::Running;
use crate::store::{Memory, Settings};
use futures_util::FutureExt;

#[derive(clap::Args)]
pub struct Arguments {
    /// The request's method.
    method: String,
    /// Its path and query.
    path: String,
    /// A field of the request, as `name: value`.
    #[arg(short = 'H', long = "header")]
    headers: Vec<String>,
    /// The address of the connection's other end.
    #[arg(long)]
    ip: Option<IpAddr>,
    /// The body, or `@FILE`.
    #[arg(long)]
    body: Option<String>,
    /// The file of the certificate that the client shows, in PEM. It is taken as verified.
    #[arg(long)]
    client_cert: Option<PathBuf>,
    /// The `Host`.
    #[arg(long)]
    host: Option<String>,
    /// The gateway file; nothing has been counted yet.
    #[arg(long, default_value = "tollgate.yaml", conflicts_with = "admin")]
    config: PathBuf,
    /// Asks the running gateway instead, by the address of its admin listener, `127.0.0.1:9900`.
    #[arg(long)]
    admin: Option<String>,
    /// The file of the admin listener's token.
    #[arg(long, requires = "admin")]
    token_file: Option<PathBuf>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let question = match question(arguments) {
        Ok(question) => question,
        Err(why) => {
            output::tell(format_args!("tollgate: {why}"));
            return ExitCode::from(MISTAKE);
        }
    };
    let answer = match &arguments.admin {
        Some(admin) => ask(admin, arguments.token_file.as_deref(), &question),
        None => fresh(&arguments.config, &question),
    };
    let text = match answer {
        Ok(answer) if arguments.json => format!("{answer:#}\n"),
        Ok(answer) => {
            let mut text = explain::render(&answer);
            if arguments.admin.is_none() {
                text.push_str("nothing has been counted: ask the running gateway with --admin\n");
            }
            text
        }
        Err((code, why)) => {
            output::tell(why);
            return ExitCode::from(code);
        }
    };
    output::ended(output::print(text), ExitCode::SUCCESS)
}

fn question(arguments: &Arguments) -> Result<Question, String> {
    let headers = arguments.headers.iter().map(|line| {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| format!("`{line}` is not written `name: value`"))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    });
    let body = match arguments.body.as_deref() {
        Some(text) => match text.strip_prefix('@') {
            Some(file) => std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?,
            None => text.to_owned(),
        },
        None => String::new(),
    };
    let client_cert = arguments.client_cert.as_deref().map(certificate);
    Ok(Question {
        method: arguments.method.to_ascii_uppercase(),
        path: arguments.path.clone(),
        host: arguments.host.clone(),
        headers: headers.collect::<Result<_, String>>()?,
        ip: arguments.ip,
        body,
        client_cert: client_cert.transpose()?,
    })
}

/// The first certificate of a file; a private key that is there too goes nowhere.
fn certificate(file: &Path) -> Result<String, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
    let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
    let inside = text
        .split_once(begin)
        .and_then(|(_, rest)| rest.split_once(end));
    let (inside, _) = inside.ok_or_else(|| failed(&"it holds no certificate in PEM"))?;
    Ok(format!("{begin}{inside}{end}\n"))
}

type Failure = (u8, String);

/// Explains by a configuration, with empty counters.
fn fresh(config: &Path, question: &Question) -> Result<Value, Failure> {
    let loaded = policy::inspect(config).map_err(|report| (MISTAKE, report.to_string()))?;
    let clock = Clock::system();
    let settings = Settings {
        budget: loaded.process.store_budget,
    };
    let store = Memory::new(settings).map_err(|error| (1, error.to_string()))?;
    let ruleset = Arc::new(loaded.ruleset);
    let admission = Admission::new(&ruleset.rules, Arc::new(store), clock.clone());
    let admission = admission.map_err(|error| (1, error.to_string()))?;
    let running = Running {
        ruleset,
        admission,
        upstreams: Vec::new(),
        own: Keyer::random(),
        entrances: [].into(),
        tokens: Tokens::default(),
        facts: None,
    };
    // Nothing is shared here, so nothing is waited for.
    let explained = explain::explain(&running, question, &clock).now_or_never();
    let explained = explained.ok_or((1, String::from("the explanation waits for something")))?;
    explained.map_err(|why| (MISTAKE, why.to_string()))
}

/// Longest wait for a running gateway.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks a running gateway.
fn ask(admin: &str, token_file: Option<&Path>, question: &Question) -> Result<Value, Failure> {
    let failed = |error: io::Error| match error.kind() {
        // A read that timed out is told as one that would block.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            let seconds = PATIENCE.as_secs();
            let why = format!(
                "no answer from {admin} within {seconds} s: check that this is the address after \
                 `admin` in the gateway file, and that the gateway is neither stopped nor overloaded"
            );
            (1, why)
        }
        _ => (1, format!("no answer from {admin}: {error}")),
    };
    let body = serde_json::to_string(question).map_err(|error| (1, error.to_string()))?;
    let authority = admin.trim_start_matches("http://").trim_end_matches('/');
    let token = match token_file {
        Some(file) => {
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|error| (1, format!("{}: {error}", file.display())))?;
            format!("authorization: Bearer {}\r\n", text.trim())
        }
        None => String::new(),
    };
    let mut stream = connect(authority).map_err(failed)?;
    let patience = Some(PATIENCE);
    stream.set_read_timeout(patience).map_err(failed)?;
    stream.set_write_timeout(patience).map_err(failed)?;
    let length = body.len();
    let request = format!(
        "POST /v1/explain HTTP/1.0\r\nhost: {authority}\r\n{token}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.split(' ').nth(1) != Some("200") {
        return Err((
            1,
            format!("{}\n{body}", head.lines().next().unwrap_or_default()),
        ));
    }
    serde_json::from_str(body).map_err(|error| (1, error.to_string()))
}

/// Connects to the first of a name's addresses that answers.
fn connect(authority: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
