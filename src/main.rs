//! The `livingrag` command. In: arguments. Out: data on standard output, all else on standard error, an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    livingrag::cli::main()
}
