//! `tollgate explain`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::Value;

use super::admin::{AdminAddress, CommandError};
use super::output;
use super::output::MISTAKE;
use crate::base::clock::Clock;
use crate::identity::Keyer;
use crate::net::tls::acme::ChallengeTokens;
use crate::policy;
use crate::serve::stack::explain;
use crate::serve::stack::explain::RequestToExplain;
use crate::serve::worker::generation::RunningConfig;
use crate::store::{Memory, Settings};
use crate::throttle::admission::Admission;
use futures_util::FutureExt;

#[derive(clap::Args)]
pub struct Arguments {
    /// Method of the request.
    method: String,
    /// Path and query.
    path: String,
    /// Header field, as `name: value`; may be repeated.
    #[arg(short = 'H', long = "header")]
    headers: Vec<String>,
    /// Address of the client.
    #[arg(long)]
    ip: Option<IpAddr>,
    /// Body, or `@FILE`.
    #[arg(long)]
    body: Option<String>,
    /// File with the client certificate in PEM, which counts as verified.
    #[arg(long)]
    client_cert: Option<PathBuf>,
    /// `Host` field.
    #[arg(long)]
    host: Option<String>,
    /// Gateway file; all counters start at zero.
    #[arg(long, default_value = "tollgate.yaml", conflicts_with = "admin")]
    config: PathBuf,
    #[command(flatten)]
    admin: AdminAddress,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let question = match question(arguments) {
        Ok(question) => question,
        Err(why) => {
            output::print_stderr(format_args!("tollgate: {why}"));
            return ExitCode::from(MISTAKE);
        }
    };
    let explanation = match &arguments.admin.admin {
        Some(_) => serde_json::to_string(&question)
            .map_err(|error| (1, error.to_string()))
            .and_then(|body| arguments.admin.request("POST", "/v1/explain", &body)),
        None => explain_offline(&arguments.config, &question),
    };
    let text = match explanation {
        Ok(explanation) if arguments.json => format!("{explanation:#}\n"),
        Ok(explanation) => {
            let mut text = explain::render(&explanation);
            if arguments.admin.admin.is_none() {
                text.push_str("nothing has been counted: ask the running gateway with --admin\n");
            }
            text
        }
        Err((code, why)) => {
            output::print_stderr(why);
            return ExitCode::from(code);
        }
    };
    output::exit_code(output::print(text), ExitCode::SUCCESS)
}

fn question(arguments: &Arguments) -> Result<RequestToExplain, String> {
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
    Ok(RequestToExplain {
        method: arguments.method.clone(),
        path: arguments.path.clone(),
        host: arguments.host.clone(),
        headers: headers.collect::<Result<_, String>>()?,
        ip: arguments.ip,
        body,
        client_cert: client_cert.transpose()?,
    })
}

/// The first certificate of a file. A private key in the same file is not read.
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

/// Explains a request by a configuration, with empty counters.
fn explain_offline(config: &Path, question: &RequestToExplain) -> Result<Value, CommandError> {
    let loaded = policy::load(config).map_err(|report| (MISTAKE, report.to_string()))?;
    let clock = Clock::system();
    let settings = Settings {
        budget: loaded.process.store_budget,
    };
    let store = Memory::new(settings).map_err(|error| (1, error.to_string()))?;
    let ruleset = Arc::new(loaded.ruleset);
    let admission = Admission::new(&ruleset.rules, Arc::new(store), clock.clone());
    let admission = admission.map_err(|error| (1, error.to_string()))?;
    let running = RunningConfig {
        ruleset,
        admission,
        upstreams: Vec::new(),
        own_keyer: Keyer::random(),
        listeners: [].into(),
        tokens: ChallengeTokens::default(),
        insight: None,
    };
    // Without a shared store the future never waits.
    let explained = explain::explain(&running, question, &clock).now_or_never();
    let explained = explained.ok_or((1, String::from("the explanation did not finish at once")))?;
    explained.map_err(|why| (MISTAKE, why.to_string()))
}
