//! Runs the simulation, built to be quick.

use crate::{Result, sh};

pub(crate) fn run(args: &[&str]) -> Result {
    let cargo = "run --quiet --package leasehold-simulation --release --locked --";
    sh::run(sh::cargo(cargo).args(args))
}
