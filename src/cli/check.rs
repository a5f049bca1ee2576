//! `tollgate check`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::{MISTAKE, output};
use crate::policy::diagnostic::{self, Diagnostic, Excerpt};
use crate::policy::settings::LogTo;
use crate::policy::{self, Loaded, Report, Severity};
use crate::serve::access;

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
    let inspected = policy::inspect(&arguments.config)
        .and_then(|loaded| can_be_logged(&arguments.config, loaded));
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

/// The access log's file is no part of the configuration, but without it there is no run.
fn can_be_logged(config: &Path, loaded: Loaded) -> Result<Loaded, Report> {
    let LogTo::File { path: log, .. } = &loaded.process.access_log.to else {
        return Ok(loaded);
    };
    let Err(why) = access::usable(log) else {
        return Ok(loaded);
    };
    let name = config.display().to_string();
    let mut files = loaded.ruleset.files.iter();
    let text = files
        .find(|(path, _)| *path == name)
        .map_or("", |(_, text)| text);
    let mut lines = text.lines().zip(1..);
    let found = lines.find(|(line, _)| line.starts_with("access_log"));
    let (line, number) = found.unwrap_or(("", 1));
    let mut diagnostics = loaded.notes;
    diagnostics.push(Diagnostic {
        severity: Severity::Error,
        file: name.into(),
        line: number,
        column: 1,
        message: format!("cannot write the access log `{}`: {why}", log.display()),
        help: Some("name a file that can be written, in a folder that exists".into()),
        excerpt: found.map(|_| Excerpt::cut(line, 1, 10)),
    });
    diagnostic::sort(&mut diagnostics);
    Err(Report {
        diagnostics,
        unlisted: 0,
    })
}
