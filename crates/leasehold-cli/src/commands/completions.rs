//! `leasehold completions SHELL`: what a shell needs to complete our command lines.

use std::io::Write;

use clap::Command;
use clap_complete::Shell;

pub(crate) fn run(mut program: Command, shell: Shell, out: &mut impl Write) -> anyhow::Result<()> {
    // Not straight into `out`: the generator panics when whoever reads it has gone.
    let mut script = Vec::new();
    let name = program.get_name().to_owned();
    clap_complete::generate(shell, &mut program, name, &mut script);
    out.write_all(&script)?;
    Ok(())
}
