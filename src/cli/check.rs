//! The command `tollgate check`: checks a configuration and this machine, and prints what the limits guarantee. The
//! command starts no gateway and leaves no file behind.

use std::path::PathBuf;
use std::process::ExitCode;

use super::output;
use super::output::MISTAKE_EXIT_CODE;
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

/// Runs the command. Exit code 0: the configuration can run. 1: the output cannot be printed. 2: the configuration has
/// mistakes, or needs something that this machine lacks.
pub fn run(arguments: &Arguments) -> ExitCode {
    let check_result =
        policy::load(&arguments.config).and_then(|loaded| check_machine(arguments, loaded));
    let loaded = match check_result {
        Ok(loaded) => loaded,
        Err(report) if arguments.json => {
            let print_result = output::print_line(format_args!("{:#}", report.to_json()));
            return output::exit_code(print_result, ExitCode::from(MISTAKE_EXIT_CODE));
        }
        Err(report) => {
            output::print_stderr(report);
            return ExitCode::from(MISTAKE_EXIT_CODE);
        }
    };
    let text = if arguments.json {
        format!("{:#}\n", policy::describe_json(&loaded))
    } else {
        policy::describe(&loaded)
    };
    output::exit_code(output::print(text), ExitCode::SUCCESS)
}

/// Adds diagnostics about this machine to the warnings, and sorts both. If one of them is an error, all are returned as
/// an error.
fn check_machine(
    arguments: &Arguments,
    mut loaded: LoadedConfig,
) -> Result<LoadedConfig, DiagnosticReport> {
    let network_checks = match arguments.offline {
        true => NetworkChecks::Offline,
        false => NetworkChecks::Online,
    };
    let config_path = arguments.config.display().to_string();
    let machine_diagnostics = preflight::check(&loaded, &config_path, network_checks);
    let has_errors = machine_diagnostics
        .iter()
        .any(|diagnostic| diagnostic.severity == Severity::Error);
    loaded.warnings.extend(machine_diagnostics);
    diagnostic::sort_and_dedup(&mut loaded.warnings);
    if has_errors {
        return Err(DiagnosticReport {
            diagnostics: loaded.warnings,
            unlisted_errors: 0,
        });
    }
    Ok(loaded)
}
