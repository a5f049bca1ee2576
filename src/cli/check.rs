//! `tollgate check`.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use super::MISTAKE;
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
        Err(report) => {
            if arguments.json {
                println!("{:#}", report.to_json());
            } else {
                eprint!("{report}");
            }
            return ExitCode::from(MISTAKE);
        }
    };
    let unbuilt = loaded
        .notes
        .iter()
        .filter(|note| note.severity == Severity::Unbuilt)
        .count();
    if arguments.json {
        let mut described = policy::describe_json(&loaded);
        described["runs"] = json!(unbuilt == 0);
        println!("{described:#}");
    } else {
        print!("{}", policy::describe(&loaded));
        if unbuilt > 0 {
            println!(
                "a run refuses this configuration: {unbuilt} of its settings are not built yet"
            );
        }
    }
    if unbuilt == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
