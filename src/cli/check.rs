//! `tollgate check`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::output;
use super::output::MISTAKE;
use super::preflight::{self, NetworkChecks};
use crate::policy::{self, DiagnosticReport, LoadedConfig, Severity, diagnostic};

#[derive(clap::Args)]
pub struct Arguments {
    /// Gateway file.
    #[arg(long, default_value = "tollgate.yaml")]
    config: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Do not look up names, and do not connect to the store.
    #[arg(long)]
    offline: bool,
}

/// Exit code 0: the configuration can run. 2: it has mistakes, or this machine lacks something that it needs.
pub fn run(arguments: &Arguments) -> ExitCode {
    let inspected = policy::load(&arguments.config);
    let inspected = inspected.and_then(|loaded| checked(arguments, loaded));
    let loaded = match inspected {
        Ok(loaded) => loaded,
        Err(report) if arguments.json => {
            let printed = output::print_line(format_args!("{:#}", report.to_json()));
            return output::exit_code(printed, ExitCode::from(MISTAKE));
        }
        Err(report) => {
            output::print_stderr(report);
            return ExitCode::from(MISTAKE);
        }
    };
    let text = if arguments.json {
        format!("{:#}\n", policy::describe_json(&loaded))
    } else {
        policy::describe(&loaded)
    };
    output::exit_code(output::print(text), ExitCode::SUCCESS)
}

/// Adds the findings of the machine. Errors among them fail the check.
fn checked(
    arguments: &Arguments,
    mut loaded: LoadedConfig,
) -> Result<LoadedConfig, DiagnosticReport> {
    let network_checks = match arguments.offline {
        true => NetworkChecks::Offline,
        false => NetworkChecks::Online,
    };
    let config = arguments.config.display().to_string();
    let findings = preflight::check(&loaded, &config, network_checks);
    let failed = findings
        .iter()
        .any(|findings| findings.severity == Severity::Error);
    loaded.notes.extend(findings);
    diagnostic::sort(&mut loaded.notes);
    if failed {
        return Err(DiagnosticReport {
            diagnostics: loaded.notes,
            unlisted: 0,
        });
    }
    Ok(loaded)
}
