//! What can be said on the command line.

#![expect(clippy::doc_markdown, reason = "these comments are the help, which is read as plain text")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum};
use rustix::process::Signal;

use crate::exit;

const STYLES: Styles =
    Styles::styled().header(AnsiColor::Green.on_default().bold()).usage(AnsiColor::Green.on_default().bold());

/// Locks that commands on many machines share.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, styles = STYLES, after_help = exit::HELP, max_term_width = 110)]
#[command(propagate_version = true, infer_subcommands = false, arg_required_else_help = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Store and output")]
pub(crate) struct Global {
    /// The store that the locks are on, such as sqlite:/path/to/file.db or redis://host
    ///
    /// sqlite:/path/to/file.db is for the processes of one machine. Several machines share redis://host:6379,
    /// redis+sentinel://host:26379,host/name (the master that sentinels name) or redis+cluster://host:6379,host;
    /// rediss in place of redis encrypts the connection. So do those who reach etcd://host:2379,host,host, with etcds.
    /// postgres://host/database and mysql://host/database keep them in tables.
    /// zookeeper://host:2181,host,host/folder is a ZooKeeper ensemble, zookeepers the same, encrypted.
    ///
    /// Without it, the environment variable LEASEHOLD_URL names the store, then "store" in
    /// $XDG_CONFIG_HOME/leasehold/config.toml; else it is the file of this user, "sqlite:". What is written here can be
    /// seen by everybody on this machine, so a URL with a password belongs into LEASEHOLD_URL or a file.
    #[arg(long, global = true, value_name = "URL", conflicts_with = "store_file")]
    pub(crate) store: Option<String>,

    /// A file whose first line is the store's URL
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) store_file: Option<PathBuf>,

    /// What stands before every key on the store [default: lock]
    #[arg(long, global = true, value_name = "TEXT")]
    pub(crate) namespace: Option<String>,

    /// Print JSON, one value on each line
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Say more on stderr
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,

    /// Say nothing on stderr but errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,

    /// When to use colour; NO_COLOR is respected
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    // Without words here: those of a variant would replace the longer ones of its arguments.
    Run(Box<Run>),
    Elect(Box<Elect>),
    Ls(Ls),
    Show(Show),
    Watch(Watch),
    Evict(Evict),
    Yield(Yield),
    Doctor(Doctor),
    Bench(Bench),
    Schema(Schema),
    Completions(Completions),
    Man(Man),
}

/// Run a command while holding a lock
///
/// Waits for the key, runs the command, gives the key up, and ends with the command's own exit code (128+n if signal n
/// ended it). The command is started directly, without a shell, in a process group of its own, and inherits stdin,
/// stdout and stderr. Every signal that reaches this program is passed on to that group.
///
/// The command finds LEASEHOLD_KEY, LEASEHOLD_DEADLINE (until when the lock is believed in at the start, in Unix
/// seconds; it is renewed) and, if it holds the key alone, LEASEHOLD_TOKEN: a number larger than that of every holder
/// before, by which a resource can refuse whoever comes too late.
///
/// If the lock is lost, the command's group gets SIGTERM, then SIGKILL once the grace is over, and the exit code is 76
/// whatever the command said. When renewals fail, this starts early, while the lease is still good: so also a command
/// that ignores SIGTERM is gone before anybody else can get the lock. If this program itself is killed, the command is
/// killed with it; what the command has started may live on, and then keeps the lock until it ends or the lease does.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "leasehold run [OPTIONS] KEY -- COMMAND [ARGUMENTS]...\n       leasehold run [OPTIONS] KEY -c COMMAND"
)]
pub(crate) struct Run {
    /// What to lock: any 1 to 512 bytes
    #[arg(value_name = "KEY")]
    pub(crate) key: OsString,

    #[command(flatten)]
    pub(crate) wait: Wait,

    /// Share the key with others who say so: a read lock
    #[arg(short, long)]
    pub(crate) shared: bool,

    /// Take so many permits of those that --of names [default: 1]
    #[arg(long, value_name = "N", requires = "of", conflicts_with = "shared")]
    pub(crate) permits: Option<u32>,

    /// How many permits the key has; everybody who uses it must name the same number
    #[arg(long, value_name = "M", conflicts_with = "shared")]
    pub(crate) of: Option<u32>,

    #[command(flatten)]
    pub(crate) lease: LeaseOptions,

    #[command(flatten)]
    pub(crate) child: ChildOptions,

    /// Let $SHELL, or else /bin/sh, run this line
    #[arg(short = 'c', long = "command", value_name = "COMMAND", conflicts_with = "command")]
    pub(crate) line: Option<OsString>,

    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// How long to wait for the key.
#[derive(Args, Clone, Debug)]
pub(crate) struct Wait {
    /// Do not wait: if the key is taken, end with code 75
    #[arg(short, long = "nonblock", visible_alias = "try", conflicts_with = "wait")]
    pub(crate) nonblock: bool,

    /// Wait no longer than this, such as 2.5, 90s or 5m: then end with code 75
    #[arg(short, long, visible_alias = "timeout", value_name = "SECONDS", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// The exit code if the key stays taken, instead of 75
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::BUSY, hide_default_value = true)]
    pub(crate) conflict_exit_code: u8,
}

/// How the key is held.
#[derive(Args, Clone, Debug)]
pub(crate) struct LeaseOptions {
    /// How long the lock stays taken once this machine is gone, from 1s to a day [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,

    /// Who we are, for whoever looks at the lock
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

/// What is done to the command.
#[derive(Args, Clone, Debug)]
pub(crate) struct ChildOptions {
    /// How long the command has between SIGTERM and SIGKILL when the lock is lost: no longer than the lease lasts, and
    /// when renewals fail no longer than a third of the TTL
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    pub(crate) grace: Duration,

    /// What to do when the lock is lost: the exit code is 76 in any case
    #[arg(long, value_name = "ACTION", default_value = "term")]
    pub(crate) on_lost: OnLost,

    /// What to do when somebody asks for the lock: term, signal (SIGUSR1), signal=NAME, or ignore, which only says so
    #[arg(long, value_name = "ACTION", default_value = "ignore", value_parser = on_yield)]
    pub(crate) on_yield: OnYield,
}

/// What to do when the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// SIGTERM, and SIGKILL after the grace
    Term,
    /// SIGKILL at once
    Kill,
    /// Let the command go on without the lock
    Ignore,
}

/// What to do when somebody asks for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnYield {
    Signal(Signal),
    Ignore,
}

/// Lead while nobody else does, or tell who leads
///
/// Waits until every candidate ahead has had its term, says so on stdout, and leads until a signal ends it: then it
/// resigns and ends with 0. If the office is lost, it ends with 76. With a command, the command is run as by
/// `leasehold run` for as long as we lead.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "leasehold elect [OPTIONS] KEY VALUE [-- COMMAND [ARGUMENTS]...]\n       leasehold elect --listen KEY"
)]
pub(crate) struct Elect {
    /// The office
    #[arg(value_name = "KEY")]
    pub(crate) key: OsString,

    /// What we stand for, such as an address: at most 1024 bytes
    #[arg(value_name = "VALUE", required_unless_present = "listen")]
    pub(crate) value: Option<OsString>,

    /// Print who leads, now and after every change, instead of standing for the office
    #[arg(short, long, conflicts_with_all = ["value", "command", "nonblock", "wait"])]
    pub(crate) listen: bool,

    #[command(flatten)]
    pub(crate) wait: Wait,

    #[command(flatten)]
    pub(crate) lease: LeaseOptions,

    #[command(flatten)]
    pub(crate) child: ChildOptions,

    /// A command to run as the leader, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// List the keys that somebody holds or awaits
#[derive(Args, Clone, Debug)]
pub(crate) struct Ls {
    /// Only keys that begin so
    #[arg(value_name = "PREFIX")]
    pub(crate) prefix: Option<OsString>,
}

/// Show who holds a key and who waits for it
#[derive(Args, Clone, Debug)]
pub(crate) struct Show {
    /// The key
    #[arg(value_name = "KEY")]
    pub(crate) key: OsString,
}

/// Follow who holds and who waits
///
/// On a terminal it is a table that is kept up to date. Otherwise, and with --json, it is one line of JSON for every
/// change, those first that are in line already.
#[derive(Args, Clone, Debug)]
pub(crate) struct Watch {
    /// Only these keys
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<OsString>,

    /// How long from one look to the next
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "500ms")]
    pub(crate) every: Duration,

    /// End after so many looks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

/// Take an entry out of its line
///
/// It names an entry, as `leasehold show KEY` lists them, so that it cannot hit whoever came after the one you meant.
/// A holder learns of it at once; a waiter that is alive lines up again at the end. Without an entry it evicts nobody
/// and lists those to choose from.
#[derive(Args, Clone, Debug)]
pub(crate) struct Evict {
    /// The key
    #[arg(value_name = "KEY")]
    pub(crate) key: OsString,

    /// The entry's id, or at least 6 digits of its beginning that no other entry of the key shares
    #[arg(value_name = "ENTRY")]
    pub(crate) entry: Option<String>,
}

/// Ask a holder to let go
///
/// The holder decides: `leasehold run --on-yield` says what it does.
#[derive(Args, Clone, Debug)]
pub(crate) struct Yield {
    /// The key
    #[arg(value_name = "KEY")]
    pub(crate) key: OsString,

    /// The entry's id, or at least 6 digits of its beginning that no other entry of the key shares [default: all holders]
    #[arg(value_name = "ENTRY")]
    pub(crate) entry: Option<String>,
}

/// Check that the store and this machine are fit for locks
#[derive(Args, Clone, Debug)]
pub(crate) struct Doctor {}

/// Measure how fast locks are on the store, and how many of them it keeps renewed
///
/// Takes and releases locks alone, beside others and behind others, then holds more and more of them with leases of 3s,
/// and ends with a table. The store has to do what it can meanwhile: whoever uses it too will notice.
///
/// It uses the key leasehold-bench and those that begin with leasehold-bench/, refuses to begin if somebody else does
/// (code 75), and gives everything back in the end, also if a signal ends it early. Run it on the machine that will take
/// the locks: what is measured is the way from there to the store and back.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  leasehold bench --store redis://cache-2
  leasehold bench --store sqlite:/var/lib/shop/locks.db --time 10s
  LEASEHOLD_URL=postgres://shop-db/shop leasehold bench --keys 1000 --json")]
pub(crate) struct Bench {
    /// How long to measure, from 8s to 1h; giving everything back may take some seconds more
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    pub(crate) time: Duration,

    /// How many keys to use, and so how many locks to hold, at most: from 16 to 100000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=100_000), default_value = "10000")]
    pub(crate) keys: u32,
}

/// Print the statements that make the tables of a database
///
/// The library makes them itself where its user may. Where it may not, somebody applies these who may, once.
#[derive(Args, Clone, Debug)]
pub(crate) struct Schema {
    /// The kind of database
    #[arg(value_name = "STORE")]
    pub(crate) database: Database,
    /// The schema that the tables are to be in, as with ?schema= in a URL of PostgreSQL; or what their names begin with, as
    /// with ?prefix= in a URL of MySQL
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// How locks are written, as with ?layout= in a URL
    #[arg(long, value_name = "LAYOUT", default_value = "canonical")]
    pub(crate) layout: TableLayout,
}

/// How locks are written in tables.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum TableLayout {
    /// In tables of our own
    Canonical,
    /// In the table of Spring Integration's `JdbcLockRegistry` too
    Spring,
}

/// A store that keeps locks in tables.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Database {
    Mysql,
    Postgres,
}

/// Print the completions for a shell
#[derive(Args, Clone, Debug)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page
#[derive(Args, Clone, Debug)]
pub(crate) struct Man {
    /// Write the page and one for each command into this folder instead
    #[arg(long, value_name = "FOLDER")]
    pub(crate) into: Option<PathBuf>,
}

/// Seconds with or without a fraction, or numbers with units: `2.5`, `90s`, `1m 30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let plain = text.trim();
    if let Ok(seconds) = plain.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|_| "a duration is not negative and has an end".into());
    }
    humantime::parse_duration(plain)
        .map_err(|_| "write seconds, such as 2.5, or units, such as 90s, 500ms or 5m".into())
}

fn on_yield(text: &str) -> Result<OnYield, String> {
    match text {
        "ignore" => Ok(OnYield::Ignore),
        "term" => Ok(OnYield::Signal(Signal::TERM)),
        "signal" => Ok(OnYield::Signal(Signal::USR1)),
        _ => {
            let name = text.strip_prefix("signal=").ok_or("write term, signal, signal=NAME or ignore")?;
            signal(name).map(OnYield::Signal).ok_or_else(|| format!("there is no signal {name:?}"))
        }
    }
}

/// The signal of that name, with or without `SIG`, or of that number.
fn signal(name: &str) -> Option<Signal> {
    const NAMES: [(&str, Signal); 16] = [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("KILL", Signal::KILL),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("ALRM", Signal::ALARM),
        ("TERM", Signal::TERM),
        ("CONT", Signal::CONT),
        ("STOP", Signal::STOP),
        ("TSTP", Signal::TSTP),
        ("URG", Signal::URG),
        ("WINCH", Signal::WINCH),
        ("PIPE", Signal::PIPE),
        ("ABRT", Signal::ABORT),
        ("IO", Signal::IO),
    ];
    if let Ok(number) = name.parse() {
        return Signal::from_named_raw(number);
    }
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_duration_is_seconds_or_has_units() {
        assert_eq!(duration("2.5"), Ok(Duration::from_millis(2500)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["-1", "nan", "inf", "", "soon", "1e300"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_signal_goes_by_its_name_or_number() {
        assert_eq!(on_yield("signal=usr2"), Ok(OnYield::Signal(Signal::USR2)));
        assert_eq!(on_yield("signal=SIGHUP"), Ok(OnYield::Signal(Signal::HUP)));
        assert_eq!(on_yield("signal=1"), Ok(OnYield::Signal(Signal::HUP)));
        assert_eq!(on_yield("signal"), Ok(OnYield::Signal(Signal::USR1)));
        assert!(on_yield("signal=NONE").is_err() && on_yield("stop").is_err());
    }
}
