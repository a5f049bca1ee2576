//! `tollgate check`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::output;
use super::output::MISTAKE;
use super::preflight::{self, Reach};
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
    let inspected = inspected.and_then(|loaded| tried(arguments, loaded));
    let loaded = match inspected {
        Ok(loaded) => loaded,
        Err(report) if arguments.json => {
            let printed = output::line(format_args!("{:#}", report.to_json()));
            return output::ended(printed, ExitCode::from(MISTAKE));
        }
        Err(report) => {
            output::tell(report);
            return ExitCode::from(MISTAKE);
        }
    };
    let text = if arguments.json {
        format!("{:#}\n", policy::describe_json(&loaded))
    } else {
        policy::describe(&loaded)
    };
    output::ended(output::print(text), ExitCode::SUCCESS)
}

/// What the machine has to say: with a mistake there is no run.
fn tried(arguments: &Arguments, mut loaded: Loaded) -> Result<Loaded, Report> {
    let reach = match arguments.offline {
        true => Reach::Offline,
        false => Reach::Online,
    };
    let config = arguments.config.display().to_string();
    let found = preflight::tries(&loaded, &config, reach);
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
