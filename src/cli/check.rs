//! `tollgate check`.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use super::{MISTAKE, output};
use crate::policy::{self, Severity};

#[derive(clap::Args)]
pub struct Arguments {
    /// The gateway file.
    #[arg(long, default_value = "tollgate.yaml")]
    config: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Exit code 0: it can be run. 1: it is right, but asks for what is not built yet, so that a run
/// refuses it. 2: it has mistakes.
pub fn run(arguments: &Arguments) -> ExitCode {
    let loaded = match policy::inspect(&arguments.config) {
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
    let unbuilt = loaded
        .notes
        .iter()
        .filter(|note| note.severity == Severity::Unbuilt)
        .count();
    let mut text = if arguments.json {
        let mut described = policy::describe_json(&loaded);
        described["runs"] = json!(unbuilt == 0);
        format!("{described:#}\n")
    } else {
        policy::describe(&loaded)
    };
    if unbuilt == 0 {
        return output::ended(output::print(text), ExitCode::SUCCESS);
    }
    if !arguments.json {
        text.push_str(&format!(
            "a run refuses this configuration: {unbuilt} of its settings are not built yet\n"
        ));
    }
    output::ended(output::print(text), ExitCode::FAILURE)
}
