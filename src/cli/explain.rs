//! The command `tollgate explain`: explains what would happen to a request. It takes the counters of a running gateway,
//! or a configuration with empty counters. It counts and forwards nothing.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::Value;

use super::admin_client::AdminAddress;
use super::expectation::Expectation;
use super::output;
use super::output::{CommandError, MISTAKE_EXIT_CODE};
use crate::base::clock::Clock;
use crate::identity::Keyer;
use crate::net::tls::acme::ChallengeTokens;
use crate::operator::{ApiKeyRegistry, BanRegistry, EntryRegistry, GrantRegistry};
use crate::policy;
use crate::serve::stack::explain;
use crate::serve::stack::explained_descriptor::DescriptorToExplain;
use crate::serve::stack::explanation;
use crate::serve::stack::request_to_explain::RequestToExplain;
use crate::serve::worker::generation::RunningConfig;
use crate::store::{MemoryStore, Settings};
use crate::throttle::admission::Admission;
use futures_util::FutureExt;

#[derive(clap::Args)]
pub struct Arguments {
    /// Method of the request.
    #[arg(required_unless_present = "domain")]
    method: Option<String>,
    /// Path and query.
    #[arg(required_unless_present = "domain")]
    path: Option<String>,
    /// In place of a request: the domain of a descriptor by which another proxy asks.
    #[arg(long, requires = "entry", conflicts_with_all = ["method", "headers", "body", "ip"])]
    domain: Option<String>,
    /// Entry of the descriptor, as `key=value`; may be repeated.
    #[arg(long, requires = "domain", value_name = "KEY=VALUE")]
    entry: Vec<String>,
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
    /// JA4 fingerprint of the client's TLS handshake.
    #[arg(long)]
    ja4: Option<String>,
    /// Name of the listener; the first of the gateway file if absent.
    #[arg(long, value_name = "NAME")]
    listen: Option<String>,
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
    /// What must become of the request, such as `status=429`, `route=api`, `limit=per-user` or `limit!=per-ip`; may be
    /// repeated. Exit code 1 if it differs; prints nothing if it does not.
    #[arg(long, value_name = "WHAT")]
    expect: Vec<Expectation>,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let request = match request_to_explain(arguments) {
        Ok(request) => request,
        Err(message) => {
            output::print_stderr(format_args!("tollgate: {message}"));
            return ExitCode::from(MISTAKE_EXIT_CODE);
        }
    };
    let explanation = match &arguments.admin.admin {
        Some(_) => serde_json::to_string(&request)
            .map_err(|error| CommandError::failure(error.to_string()))
            .and_then(|body| arguments.admin.request("POST", "/v1/explain", &body)),
        None => explain_offline(&arguments.config, &request),
    };
    let explanation = match explanation {
        Ok(explanation) => explanation,
        Err(error) => return error.print(),
    };
    let expectations = arguments.expect.iter();
    let differences: Vec<String> = expectations
        .filter_map(|expectation| expectation.difference(&explanation))
        .collect();
    let agrees = differences.is_empty();
    let text = if arguments.json {
        format!("{explanation:#}\n")
    } else if agrees && !arguments.expect.is_empty() {
        String::new()
    } else {
        let mut text = explanation::render(&explanation);
        if arguments.admin.admin.is_none() {
            text.push_str("nothing has been counted: ask the running gateway with --admin\n");
        }
        text
    };
    let print_result = output::print(text);
    if agrees {
        return output::exit_code(print_result, ExitCode::SUCCESS);
    }
    let subject = match &arguments.domain {
        Some(domain) => format!("{domain} {}", arguments.entry.join(" ")),
        None => format!("{} {}", request.method, request.path),
    };
    for difference in differences {
        output::print_stderr(format_args!("tollgate: {subject}: {difference}"));
    }
    output::exit_code(print_result, ExitCode::FAILURE)
}

/// Builds the request from the arguments, and reads the files that they name. An error is the message for the user.
fn request_to_explain(arguments: &Arguments) -> Result<RequestToExplain, String> {
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
    let entries = arguments.entry.iter().map(|text| {
        let entry = text.split_once('=');
        let (key, value) = entry.ok_or_else(|| format!("`{text}` is not written `key=value`"))?;
        Ok((key.to_owned(), value.to_owned()))
    });
    let entries = entries.collect::<Result<Vec<_>, String>>()?;
    let client_cert = arguments.client_cert.as_deref().map(read_certificate);
    Ok(RequestToExplain {
        method: arguments.method.clone().unwrap_or_default(),
        path: arguments.path.clone().unwrap_or_default(),
        listen: arguments.listen.clone(),
        host: arguments.host.clone(),
        headers: headers.collect::<Result<_, String>>()?,
        ip: arguments.ip,
        body,
        client_cert: client_cert.transpose()?,
        ja4: arguments.ja4.clone(),
        descriptor: arguments
            .domain
            .clone()
            .map(|domain| DescriptorToExplain { domain, entries }),
    })
}

/// Reads the first certificate of a PEM file, as PEM. A private key in the same file is left out. An error is the
/// message for the user.
fn read_certificate(file: &Path) -> Result<String, String> {
    let with_path = |cause: &dyn std::fmt::Display| format!("{}: {cause}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| with_path(&error))?;
    // The first and the last line of a certificate: RFC 7468 section 5.1.
    let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
    let content = text
        .split_once(begin)
        .and_then(|(_, after_begin)| after_begin.split_once(end));
    let (content, _) = content.ok_or_else(|| with_path(&"it holds no certificate in PEM"))?;
    Ok(format!("{begin}{content}{end}\n"))
}

/// Explains a request with a configuration and empty counters, without a running gateway. Key sets are not fetched from
/// their URLs, so tokens that need them do not verify.
fn explain_offline(config_path: &Path, request: &RequestToExplain) -> Result<Value, CommandError> {
    let loaded =
        policy::load(config_path).map_err(|report| CommandError::mistake(report.to_string()))?;
    let clock = Clock::system();
    let settings = Settings {
        budget_bytes: loaded.process.store_budget,
    };
    let store =
        MemoryStore::new(settings).map_err(|error| CommandError::failure(error.to_string()))?;
    let ruleset = Arc::new(loaded.ruleset);
    let admission = Admission::new(&ruleset.rules, Arc::new(store), clock.clone());
    let admission = admission.map_err(|error| CommandError::failure(error.to_string()))?;
    let entries = EntryRegistry::open(None, false, clock.clone());
    let entries = Arc::new(entries.map_err(|error| CommandError::failure(error.to_string()))?);
    // An explanation sends nothing, so it needs neither servers nor listeners. Orders are known to a running gateway only.
    let running_config = RunningConfig {
        loaded: ruleset.clone(),
        ruleset,
        admission,
        upstreams: Vec::new(),
        process_keyer: Keyer::random(),
        listeners: [].into(),
        challenge_tokens: ChallengeTokens::default(),
        insight: None,
        bans: Arc::new(BanRegistry::new(entries.clone())),
        grants: Arc::new(GrantRegistry::new(entries.clone())),
        api_keys: Arc::new(ApiKeyRegistry::new(entries.clone())),
        entries,
    };
    // This admission has no shared store, even if the configuration has one, so the future never waits.
    let explanation = explain::explain(&running_config, request, &clock).now_or_never();
    let explanation = explanation
        .ok_or_else(|| CommandError::failure("the explanation did not finish at once"))?;
    explanation.map_err(|error| CommandError::mistake(error.to_string()))
}
