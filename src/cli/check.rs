//! `tollgate check`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::output;
use super::output::MISTAKE;
use super::preflight::{self, NetworkChecks};
use crate::policy::{self, Loaded, Report, Severity, diagnostic};

#[derive(clap::Args)]
pub struct Arguments {
    /// The gateway file.
    #[arg(long, default_value = "tollgate.yaml")]
    config: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// Looks up no names and does not ask the store.
    #[arg(long)]
    offline: bool,
}

/// Exit code 0: it can be run. 2: it has mistakes, or asks for what this machine does not have.
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

/// What the machine has to say: with a mistake there is no run.
fn checked(arguments: &Arguments, mut loaded: Loaded) -> Result<Loaded, Report> {
    let network_checks = match arguments.offline {
        true => NetworkChecks::Offline,
        false => NetworkChecks::Online,
    };
    let config = arguments.config.display().to_string();
    let found = preflight::check(&loaded, &config, network_checks);
    let failed = found.iter().any(|found| found.severity == Severity::Error);
    loaded.notes.extend(found);
    diagnostic::sort(&mut loaded.notes);
    if failed {
        return Err(Report {
            diagnostics: loaded.notes,
            unlisted: 0,
        });
    }
    Ok(loaded)
}
