//! The program `leasehold`. Its commands are to come; today it can only say so.

use std::process::ExitCode;

/// What `sysexits.h` calls a command used wrongly.
const USAGE: u8 = 64;

const HELP: &str = "\
Locks that commands on many machines share.

Usage: leasehold [--help | --version]

This version has no commands yet: the locks are there for Rust programs, as the library `leasehold`.
";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.iter().map(|argument| argument.to_str()).collect::<Option<Vec<_>>>().as_deref() {
        Some([] | ["--help" | "-h"]) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Some(["--version" | "-V"]) => {
            println!("leasehold {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("leasehold: no such command or option; see leasehold --help");
            ExitCode::from(USAGE)
        }
    }
}
