//! The `tollgate` command.

use std::process::ExitCode;

// A request allocates about thirty times; measured beside the system's allocator, see benches/README.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tollgate::cli::main()
}
