//! `tollgate schema`.

use std::process::ExitCode;

use clap::ValueEnum;

use super::output;
use crate::policy;

#[derive(clap::Args)]
pub struct Arguments {
    /// Which file's.
    #[arg(value_enum, default_value = "policy")]
    file: File,
}

#[derive(Clone, Copy, ValueEnum)]
enum File {
    Gateway,
    Policy,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let schema = match arguments.file {
        File::Gateway => policy::schema::gateway(),
        File::Policy => policy::schema::policy(),
    };
    output::ended(output::line(format_args!("{schema:#}")), ExitCode::SUCCESS)
}
