//! Set-up, tests and checks of this repository, each a subcommand.

fn main() {}
