//! The command `tollgate log`: queries the record through a running gateway. Only `verify` reads the files of the
//! record itself, and no query changes them. `render` formats the responses for terminals.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::cli::admin_client::{AdminAddress, percent_encode};
use crate::cli::output;
use crate::cli::output::MISTAKE_EXIT_CODE;
use crate::policy;
use crate::record;

mod render;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: LogCommand,
}

#[derive(Subcommand)]
enum LogCommand {
    /// Verify all checksums of the record, and every longer step against the shorter ones that it sums.
    Verify(VerifyArguments),
    /// Summarize series: total, rate and peak second, with a sparkline.
    Query(QueryArguments),
    /// List the keys with most refusals or most requests.
    Top(TopArguments),
    /// Explain refusals: which limit, which keys, and what had changed before.
    Explain(SpanArguments),
    /// Print series as JSON lines, one per step and series.
    Export(QueryArguments),
}

#[derive(clap::Args)]
struct SpanArguments {
    /// Start: seconds since 1970, or a span before now such as -90s, -1h, -7d.
    #[arg(long, default_value = "-10m", allow_hyphen_values = true)]
    from: String,
    /// End: as --from, or `now`.
    #[arg(long, default_value = "now", allow_hyphen_values = true)]
    to: String,
    /// Print the JSON of the gateway.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminAddress,
}

#[derive(clap::Args)]
struct QueryArguments {
    /// Selector of series, such as `tollgate_requests_total{route="shop"}`.
    series: String,
    /// Sum the series that agree in these labels; `--by ''` sums all.
    #[arg(long)]
    by: Option<String>,
    /// Maximum number of steps.
    #[arg(long, default_value_t = 60)]
    points: usize,
    #[command(flatten)]
    span: SpanArguments,
}

#[derive(clap::Args)]
struct TopArguments {
    /// Which requests to count: `refused`, or `asked` for all.
    #[arg(long, default_value = "refused")]
    of: String,
    /// Only keys of this limit.
    #[arg(long)]
    limit: Option<String>,
    /// Maximum number of keys.
    #[arg(long, default_value_t = 20)]
    most: usize,
    #[command(flatten)]
    span: SpanArguments,
}

#[derive(clap::Args)]
struct VerifyArguments {
    /// Gateway file, which names the folder of the record.
    #[arg(long, default_value = "tollgate.yaml")]
    config: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    match &arguments.command {
        LogCommand::Verify(arguments) => run_verify(arguments),
        LogCommand::Query(query) => {
            run_query(&query.span, &query.request_path(), render::render_curves)
        }
        LogCommand::Top(top) => run_query(&top.span, &top.request_path(), render::render_top),
        LogCommand::Explain(span) => run_query(
            span,
            &span.request_path("explain", &[]),
            render::render_explanation,
        ),
        LogCommand::Export(query) => {
            let is_summed = query.by.is_some();
            run_query(&query.span, &query.request_path(), |response| {
                render::render_lines(response, is_summed)
            })
        }
    }
}

/// Sends a query, and prints the response: as the JSON of the gateway if `--json` is set, else as `render` formats it.
fn run_query(span: &SpanArguments, path: &str, render: impl FnOnce(&Value) -> String) -> ExitCode {
    match span.admin.request("GET", path, "") {
        Ok(response) if span.json => output::exit_code(
            output::print_line(format_args!("{response:#}")),
            ExitCode::SUCCESS,
        ),
        Ok(response) => output::exit_code(output::print(render(&response)), ExitCode::SUCCESS),
        Err(error) => error.print(),
    }
}

impl SpanArguments {
    /// Returns the path and the query of a request for `resource` below `/v1/record/`, with the span and further
    /// parameters.
    fn request_path(&self, resource: &str, parameters: &[(&str, &str)]) -> String {
        let span_parameters = [("from", self.from.as_str()), ("to", self.to.as_str())];
        let mut path = format!("/v1/record/{resource}?");
        for (name, value) in span_parameters.iter().chain(parameters) {
            path += name;
            path.push('=');
            path += &percent_encode(value);
            path.push('&');
        }
        path.pop();
        path
    }
}

impl QueryArguments {
    fn request_path(&self) -> String {
        let points = self.points.to_string();
        let mut parameters = vec![("series", self.series.as_str()), ("points", &points)];
        parameters.extend(self.by.as_deref().map(|by| ("by", by)));
        self.span.request_path("range", &parameters)
    }
}

impl TopArguments {
    fn request_path(&self) -> String {
        let most = self.most.to_string();
        let mut parameters = vec![("of", self.of.as_str()), ("most", &most)];
        parameters.extend(self.limit.as_deref().map(|limit| ("limit", limit)));
        self.span.request_path("top", &parameters)
    }
}

/// Verifies the files of the record, and prints the faults. Exit code 0: the files are intact. 1: they are damaged or
/// cannot be read. 2: the configuration has a mistake, or its record has no folder.
fn run_verify(arguments: &VerifyArguments) -> ExitCode {
    let loaded = match policy::load(&arguments.config) {
        Ok(loaded) => loaded,
        Err(report) => {
            output::print_stderr(report);
            return ExitCode::from(MISTAKE_EXIT_CODE);
        }
    };
    let Some(folder) = loaded.process.record.and_then(|settings| settings.folder) else {
        output::print_stderr(
            "tollgate: the record has no folder: write `record: { dir: data/record }` in the gateway file",
        );
        return ExitCode::from(MISTAKE_EXIT_CODE);
    };
    let report = match record::verify(&folder) {
        Ok(report) => report,
        Err(error) => {
            output::print_stderr(format_args!(
                "tollgate: cannot read the record in `{}`: {error}",
                folder.display()
            ));
            return ExitCode::FAILURE;
        }
    };
    let exit_code = ExitCode::from(u8::from(!report.faults.is_empty()));
    if arguments.json {
        let faults = report.faults.iter();
        let faults: Vec<_> = faults
            .map(|fault| json!({ "file": fault.path.display().to_string(), "what": fault.description }))
            .collect();
        let report_json = json!({
            "files": report.file_count,
            "bytes": report.total_bytes,
            "compared": report.compared_buckets,
            "faults": faults,
        });
        return output::exit_code(
            output::print_line(format_args!("{report_json:#}")),
            exit_code,
        );
    }
    let mut text = String::new();
    for fault in &report.faults {
        text.push_str(&format!("{fault}\n"));
    }
    text.push_str(&format!(
        "{} files of {} bytes, {} buckets compared with the steps that they sum: {}\n",
        report.file_count,
        report.total_bytes,
        report.compared_buckets,
        match report.faults.len() {
            0 => String::from("no damage found"),
            1 => String::from("1 fault"),
            faults => format!("{faults} faults"),
        }
    ));
    output::exit_code(output::print(text), exit_code)
}
