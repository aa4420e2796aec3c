//! How soon the next process has a lock that another one lets go: `cargo bench -p leasehold-cli --bench hand_over`.
//!
//! Every holder and waiter is a process of its own, started from this very program. The clock they read counts from the
//! start of the machine, so a moment of one is comparable with a moment of another.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use leasehold::Locks;
use leasehold::clock::{Clock, Timer};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

/// How many hand-overs each process of a ring takes part in.
const TURNS: usize = 500;
/// How long a lock is held: time enough for everybody else to be in line again.
const HELD: Duration = Duration::from_millis(5);
/// How many programs stand in one line, and how many lines there are, one after the other.
const IN_LINE: usize = 25;
const LINES: usize = 8;

/// One turn: when it was asked for, had and let go, in nanoseconds; and its token, by which turns are in order.
struct Turn {
    token: u64,
    asked: u64,
    had: u64,
    let_go: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match arguments[..] {
        ["ring", store] => runtime.block_on(take_turns(store)),
        ["command"] => runtime.block_on(be_the_command()),
        _ => {
            for processes in [2, 8] {
                let turns = ring(processes);
                tell(&format!("release to next holder, a ring of {processes} processes"), turns);
            }
            let turns = runtime.block_on(programs());
            tell(&format!("end of a command to start of the next, {IN_LINE} `leasehold run` in line"), turns);
        }
    }
}

/// Nanoseconds since the machine started, the same for all processes.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

fn this_program(arguments: &[&str]) -> Command {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(arguments);
    program
}

async fn connect(store: &str) -> Locks {
    leasehold::connect(store).await.unwrap()
}

fn store_in(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("locks.db").display())
}

/// Processes that each take the lock again as soon as they have let it go.
fn ring(processes: usize) -> Vec<Turn> {
    let folder = TempDir::new().unwrap();
    let store = store_in(folder.path());
    let start = |_| this_program(&["ring", &store]).stdout(Stdio::piped()).spawn().unwrap();
    let ring: Vec<Child> = (0..processes).map(start).collect();
    ring.into_iter().flat_map(|child| turns(&child.wait_with_output().unwrap())).collect()
}

async fn take_turns(store: &str) {
    let (timer, mutex) = (Timer::on_callers_runtime(Clock::boot()), connect(store).await.mutex("k").unwrap());
    let mut turns = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        let asked = now();
        let guard = mutex.lock().await.unwrap();
        let (token, had) = (guard.token().get(), now());
        timer.sleep(HELD).await;
        let let_go = now();
        guard.release().await.unwrap();
        turns.push(Turn { token, asked, had, let_go });
    }
    turns.iter().for_each(print);
}

/// Programs that wait in line, each with a command that notes when it runs.
async fn programs() -> Vec<Turn> {
    let folder = TempDir::new().unwrap();
    let store = store_in(folder.path());
    let locks = connect(&store).await;
    let mut all = Vec::new();
    for line in 0..LINES {
        let key = format!("line {line}");
        let held = locks.mutex(&key).unwrap().lock().await.unwrap();
        let this = std::env::current_exe().unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        program.env("LEASEHOLD_URL", &store).args(["run", &key, "--"]).arg(this).arg("command");
        program.stdin(Stdio::null()).stdout(Stdio::piped());
        let waiting: Vec<Child> = (0..IN_LINE).map(|_| program.spawn().unwrap()).collect();
        while waiters(&locks, &key).await < IN_LINE {
            tokio::task::yield_now().await;
        }
        held.release().await.unwrap();
        let mut ran: Vec<Turn> =
            waiting.into_iter().flat_map(|child| turns(&child.wait_with_output().unwrap())).collect();
        // All were in line before the first one ran.
        ran.iter_mut().for_each(|turn| turn.asked = 0);
        all.extend(ran);
    }
    all
}

async fn waiters(locks: &Locks, key: &str) -> usize {
    locks.inspect(key).await.unwrap().and_then(|view| view.waiters).map_or(0, |waiters| waiters.len())
}

async fn be_the_command() {
    let had = now();
    let token = std::env::var("LEASEHOLD_TOKEN").unwrap().parse().unwrap();
    Timer::on_callers_runtime(Clock::boot()).sleep(HELD).await;
    print(&Turn { token, asked: had, had, let_go: now() });
}

fn print(Turn { token, asked, had, let_go }: &Turn) {
    println!("{token} {asked} {had} {let_go}");
}

fn turns(output: &Output) -> Vec<Turn> {
    assert!(output.status.success());
    let turn = |line: &str| {
        let mut numbers = line.split(' ').map(|number| number.parse().unwrap());
        let mut next = || numbers.next().unwrap();
        Turn { token: next(), asked: next(), had: next(), let_go: next() }
    };
    str::from_utf8(&output.stdout).unwrap().lines().map(turn).collect()
}

fn tell(what: &str, mut turns: Vec<Turn>) {
    turns.sort_unstable_by_key(|turn| turn.token);
    // Only if the next one stood in line already; and between two lines nobody hands anything over.
    let handed = turns.windows(2).filter(|pair| pair[1].asked < pair[0].let_go && pair[1].token == pair[0].token + 1);
    let mut took: Vec<_> = handed.map(|pair| Duration::from_nanos(pair[1].had - pair[0].let_go)).collect();
    took.sort_unstable();
    let (all, worst) = (took.len(), took.last().unwrap());
    println!("{what}: {:?} p50, {:?} p99, {worst:?} at most, of {all}", took[all / 2], took[all * 99 / 100]);
}
