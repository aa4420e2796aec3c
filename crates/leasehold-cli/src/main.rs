//! The program `leasehold`.

fn main() {}
