//! Our figures beside those of the bare store.

use std::process::ExitCode;

/// As many workers as `#[tokio::main]` starts on a small machine, so that nobody is measured on a runtime of its own.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    leasehold_bench::run(|_, _| Box::pin(async { Vec::new() })).await
}
