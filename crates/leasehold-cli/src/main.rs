//! The program `leasehold`: runs commands under locks, and shows and mends the locks.

mod args;
mod commands;
mod exit;
mod output;
mod settings;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Cli, Command};
use commands::{bench, completions, doctor, elect, evict, ls, man, run, schema, show, watch, yield_};
use settings::Settings;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(step) = run::is_step(&arguments) {
        let Err(error) = run::become_command(step);
        return exit::report(&error);
    }
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return say_usage(&error),
    };
    // On this very thread: what it starts dies with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(dispatch(cli)),
        Err(error) => Err(error.into()),
    };
    done.map_or_else(|error| exit::report(&error), ExitCode::from)
}

async fn dispatch(cli: Cli) -> anyhow::Result<u8> {
    let lease = match &cli.command {
        Command::Run(args) => Some(&args.lease),
        Command::Elect(args) => Some(&args.lease),
        _ => None,
    };
    let settings = || Settings::gather(&cli.global, lease);
    let out = &mut io::stdout();
    match &cli.command {
        Command::Run(args) => return Box::pin(run::run(&settings()?, args)).await,
        Command::Elect(args) => return Box::pin(elect::run(&settings()?, args)).await,
        Command::Ls(args) => {
            let settings = settings()?;
            let prefix = args.prefix.as_deref().unwrap_or_default();
            ls::run(&settings.connect().await?, prefix.as_bytes(), settings.look, out).await?;
        }
        Command::Show(args) => {
            let settings = settings()?;
            show::run(&settings.connect().await?, args.key.as_bytes(), settings.look, out).await?;
        }
        Command::Watch(args) => {
            let settings = settings()?;
            let keys = args.keys.iter().map(|key| key.as_bytes().to_vec()).collect();
            let options = watch::Options { keys, every: args.every, count: args.count };
            let ended = watch::run(&settings.connect().await?, &options, settings.look, out).await?;
            return Ok(ended.map_or(0, |signal| exit::by_signal(signal.as_raw_value())));
        }
        Command::Evict(args) => {
            let settings = settings()?;
            let entry = args.entry.as_deref();
            evict::run(&settings.connect().await?, args.key.as_bytes(), entry, settings.look, out).await?;
        }
        Command::Yield(args) => {
            let settings = settings()?;
            let entry = args.entry.as_deref();
            yield_::run(&settings.connect().await?, args.key.as_bytes(), entry, settings.look, out).await?;
        }
        Command::Doctor(_) => {
            let settings = settings()?;
            doctor::run(settings.connect().await, settings.url(), settings.look, out).await?;
        }
        Command::Bench(args) => return Box::pin(bench::run(&settings()?, args)).await,
        Command::Schema(args) => schema::run(args, out)?,
        Command::Completions(args) => completions::run(Cli::command(), args.shell, out)?,
        Command::Man(args) => man::run(Cli::command(), args.into.as_deref(), out)?,
    }
    Ok(0)
}

/// Help goes to stdout, complaints to stderr; neither shows what an argument may have held in confidence.
fn say_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let complaint = text.split("\nUsage:").next().unwrap_or(&text);
    let complaint = complaint.split("\nFor more information").next().unwrap_or(complaint);
    let complaint = complaint.strip_prefix("error: ").unwrap_or(complaint).split_whitespace();
    exit::say(&format!("{} (see --help)", complaint.collect::<Vec<_>>().join(" ")));
    ExitCode::from(exit::USAGE)
}
