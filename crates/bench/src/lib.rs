//! Our figures beside those of the bare store and of the peers: in one run, in turns, as ratios.
//!
//! `cargo xtask bench` measures everything, and `docs/performance/` keeps what came of it. `cargo xtask test` measures little
//! of it, beside the bare store alone, and compares that with wide limits (`src/limits.rs`): so that nobody makes something many
//! times slower, or has it send more, and does not notice.
//!
//! Other lock crates are not built here, but in a workspace of their own that calls [`run`].

mod contender;
mod document;
mod limits;
mod machine;
mod plot;
mod program;
mod progress;
mod sample;
mod stores;
mod table;
mod works;

use std::path::PathBuf;
use std::process::ExitCode;

use futures_core::future::BoxFuture;

pub use contender::{Connect, Contender, Lock, POLL, Rival, TTL};
use sample::Figures;
use stores::NAMES;
use works::{Bench, Plan};

const HELP: &str = "\
leasehold-bench [--short] [--into FOLDER] [STORE…]

  --short         measures little, beside the bare store alone, and fails if a limit is exceeded
  --into FOLDER   keeps what was measured there: JSON, plots, and a page with all of it
";

/// Who is measured beside us, each with its version.
const PEERS: &str = "LEASEHOLD_PEERS";

/// Lock crates that are measured beside us on the store of that name, at that URL of ours.
pub type Peers = fn(&str, &str) -> BoxFuture<'static, Vec<Rival>>;

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    short: bool,
    into: Option<PathBuf>,
    stores: Vec<String>,
}

impl Asked {
    fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut asked = Self::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--short" => asked.short = true,
                "--into" => asked.into = Some(args.next().ok_or("--into needs a folder")?.into()),
                store if NAMES.contains(&store) || store == program::NAME => asked.stores.push(arg),
                other => {
                    let names = NAMES.join(", ");
                    return Err(format!("there is no store {other:?}: name some of {names}, {}", program::NAME));
                }
            }
        }
        Ok(asked)
    }

    fn includes(&self, store: &str) -> bool {
        self.stores.is_empty() || self.stores.iter().any(|asked| asked == store)
    }
}

/// Measures what the arguments of this process ask for.
pub async fn run(peers: Peers) -> ExitCode {
    let asked = match Asked::parse(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(wrong) => {
            eprint!("{wrong}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let mut exceeded = Vec::new();
    for name in NAMES.into_iter().filter(|name| asked.includes(name)) {
        let figures = measure(name, asked.short, peers).await;
        print!("{}", table::of(&figures));
        if asked.short {
            exceeded.extend(limits::exceeded(&figures));
        }
        keep(&asked, &figures);
    }
    if !asked.short && asked.includes(program::NAME) {
        let figures = program::measure();
        print!("{}", table::of(&figures));
        keep(&asked, &figures);
    }
    for exceeded in &exceeded {
        eprintln!("{exceeded}");
    }
    if exceeded.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn measure(name: &str, short: bool, peers: Peers) -> Figures {
    progress::show(&format!("{name}: starting"));
    let (store, plan) = (stores::start(name), if short { Plan::short() } else { Plan::whole() });
    let mut rivals = vec![contender::Ours::rival(&store.url()).await, store.bare().await];
    if !short {
        rivals.extend(peers(name, &store.url()).await);
        rivals.extend(store.peers().await);
    }
    let mut bench = Bench::new(&plan, &*store);
    bench.run(&mut rivals).await;
    progress::clear();
    let samples = bench.samples;
    Figures { store: name.into(), server: store.server(), machine: machine::describe(), samples }
}

/// Each store has a file of its own, so that one can be measured anew. The page and the plots are of all of them.
fn keep(asked: &Asked, figures: &Figures) {
    let Some(folder) = &asked.into else { return };
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let text = serde_json::to_string_pretty(figures)? + "\n";
        std::fs::write(folder.join(format!("{}.json", figures.store)), text)?;
        let mut all = Vec::new();
        for name in NAMES.into_iter().chain([program::NAME]) {
            match std::fs::read_to_string(folder.join(format!("{name}.json"))) {
                Ok(text) => all.push(serde_json::from_str(&text)?),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        document::write(&all, &std::env::var(PEERS).unwrap_or_default(), folder)
    };
    if let Err(error) = write() {
        progress::say(&format!("cannot keep the figures in {}: {error}", folder.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_there_is_not_is_named() {
        let parse = |words: &[&str]| Asked::parse(words.iter().map(ToString::to_string));
        assert!(parse(&["redis", "oracle"]).unwrap_err().contains("\"oracle\""));
        assert!(parse(&["--into"]).unwrap_err().contains("folder"));
        assert_eq!(parse(&["--short", "etcd"]), Ok(Asked { short: true, into: None, stores: vec!["etcd".into()] }));
    }
}
