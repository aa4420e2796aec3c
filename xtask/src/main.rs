//! Set-up, tests and checks of this repository, each a subcommand.

mod bench;
mod check;
mod interleavings;
mod mutants;
mod pictures;
mod setup;
mod sh;
mod simulate;
mod test;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask <command>

  test              everything below that only reads, all tests, and the documentation: what CI runs
  check             formatting, lints, dependencies and tidiness; changes nothing
  fix               rewrites what `check` would complain about, where a tool can
  setup             installs the tools that are missing
  bench [STORE…]    our figures beside those of the bare store and of the peers, on these stores or on all
  interleavings     tries the thread schedules of the lease machinery
  mutants [NAME…]   breaks the code on purpose and requires the tests to notice
  simulate [--scenario S] [--seed N]
                    runs the whole client over simulated servers: all seeds, or one with its trace
  pictures          draws the pictures of the guide anew, from what the program shows on a terminal
";

/// What went wrong, told to a person.
type Result<T = ()> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args.as_slice() {
        ["test"] => test::run(),
        ["check"] => check::run(),
        ["fix"] => check::fix(),
        ["setup"] => setup::run(),
        ["bench", stores @ ..] => bench::run(stores),
        ["interleavings"] => interleavings::run(),
        ["mutants", names @ ..] => mutants::run(names),
        ["simulate", args @ ..] => simulate::run(args),
        ["pictures"] => pictures::run(),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nxtask: {failure}");
            ExitCode::FAILURE
        }
    }
}
