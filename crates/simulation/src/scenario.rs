//! What a run is made of, read from a file: how many take part, what goes wrong, what is promised nevertheless.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::invariants::Invariant;

/// One kind of run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The file's name.
    #[serde(skip)]
    pub name: String,
    /// What it is about.
    pub about: String,
    /// How many seeds are tried of it, among all.
    pub seeds: u64,
    /// How many servers there are.
    #[serde(default = "three")]
    pub servers: usize,
    /// How many clients contend.
    #[serde(default = "three")]
    pub clients: usize,
    /// How many keys they contend for.
    #[serde(default = "one")]
    pub keys: usize,
    /// How many of the locks are shared ones.
    #[serde(default)]
    pub sharing: f64,
    /// How long they contend.
    #[serde(default = "ten")]
    pub seconds: u64,
    /// How requests and replies fare.
    #[serde(default)]
    pub network: Network,
    /// How clocks run.
    #[serde(default)]
    pub clocks: Clocks,
    /// What happens.
    #[serde(default)]
    pub troubles: Vec<Trouble>,
    /// Time between two troubles, at most.
    #[serde(default = "two_thousand")]
    pub trouble_every_ms: u64,
    /// How many servers may be without memory at a time. Beyond that the memory of the store is lost.
    #[serde(default = "one")]
    pub forgetful_max: usize,
    /// What is wrong with the servers.
    #[serde(default)]
    pub flaw: Option<Flaw>,
    /// What holds in every run.
    pub promised: Vec<Invariant>,
    /// What some run breaks; if none does, the simulation has gone blind.
    #[serde(default)]
    pub violated: Vec<Invariant>,
}

/// How requests and replies fare.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// How long a message takes at most, usually.
    pub delay_ms: u64,
    /// How many messages are slow.
    pub slow: f64,
    /// How long a slow one takes at most.
    pub slow_ms: u64,
    /// How many messages are lost, each way.
    pub lost: f64,
    /// How many requests fail at once, without or after having been carried out.
    pub broken: f64,
    /// How many requests are carried out twice.
    pub doubled: f64,
}

impl Default for Network {
    fn default() -> Self {
        Self { delay_ms: 3, slow: 0.0, slow_ms: 0, lost: 0.0, broken: 0.0, doubled: 0.0 }
    }
}

/// How clocks run.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Clocks {
    /// By how much the clocks of servers are too fast or too slow, in thousandths.
    pub server_drift: f64,
    /// By how much those of clients are.
    pub client_drift: f64,
    /// How far ahead of the others a client's wall clock can be.
    pub client_skew_ms: u64,
    /// How much faster the clocks of servers are than they should be; 1 is not at all.
    pub server_rate: Option<f64>,
}

/// Something that happens now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trouble {
    /// A client is stopped for a while, in the middle of anything.
    PauseClient,
    /// A client dies, and another takes its place.
    KillClient,
    /// A server is stopped for a while.
    StopServer,
    /// A client and a server cannot reach each other for a while.
    Partition,
    /// A server is restarted, and has forgotten everything.
    RestartBlank,
    /// A server is restarted, and remembers everything.
    RestartRemembering,
    /// A server is restarted, and has an old copy of what it knew.
    RestartSnapshot,
    /// A server forgets everything without being restarted.
    Flush,
    /// A server's clock jumps ahead, over some leases.
    ClockAhead,
    /// A server's clock is set back.
    ClockBack,
}

/// A rule that the servers do not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flaw {
    /// One that forgot goes on granting.
    ForgetfulVotes,
    /// One that came back with an old copy goes on granting.
    SnapshotVotes,
}

impl Scenario {
    /// How long a lease lives.
    pub const TTL: Duration = Duration::from_secs(2);

    /// All that there are, in the order of their names.
    pub fn all() -> Result<Vec<Self>, String> {
        let folder = Self::folder();
        let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut files: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
        files.sort();
        files.iter().map(|file| Self::read(file)).collect()
    }

    /// The one of that name.
    pub fn named(name: &str) -> Result<Self, String> {
        Self::read(&Self::folder().join(format!("{name}.toml")))
    }

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
    }

    fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut scenario: Self = toml::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        scenario.name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(both) = scenario.promised.iter().find(|promised| scenario.violated.contains(promised)) {
            return Err(format!("{}: {both:?} is both promised and violated", file.display()));
        }
        Ok(scenario)
    }
}

const fn one() -> usize {
    1
}

const fn three() -> usize {
    3
}

const fn ten() -> u64 {
    10
}

const fn two_thousand() -> u64 {
    2000
}
