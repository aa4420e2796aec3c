//! A crawler of many processes: each domain is crawled by one worker at a time, a crashed worker's domain is taken over,
//! and what a worker writes too late is refused.
//!
//! ```sh
//! cargo run --features sqlite-bundled --example crawler                            # on a file, nothing to install
//! cargo run --features redis,sqlite-bundled --example crawler redis://localhost    # on a server that machines share
//! ```
//!
//! The first process starts the workers and is the archive that they write to: they ask it on stdout and are answered on
//! stdin. It also plays the world's part. It kills one worker in the middle of a domain, and stops another for longer than
//! its lease, while what that one has written is still on its way.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Barrier, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use leasehold::fence::Gate;
use leasehold::{Error, ErrorKind, FencingToken, Locks, Result};
use rustix::process::{Pid, Signal, kill_process};

const DOMAINS: [&str; 6] = ["ada.example", "bob.example", "cy.example", "dee.example", "eve.example", "fay.example"];
const WORKERS: usize = 4;
const PAGES: usize = 25;

/// How long a domain stays with a worker whose machine is gone. A worker that is merely killed frees it at once on a file.
const TTL: Duration = Duration::from_secs(2);

/// Who is killed, and who is stopped: each while it wants to store this page of the domain that it begins with.
const KILLED: usize = 0;
const STOPPED: usize = 1;
const FATEFUL_PAGE: usize = 10;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The store's URL, the namespace and the number of a worker. Not arguments: those can be seen by everybody.
const VARIABLES: [&str; 3] = ["CRAWLER_URL", "CRAWLER_NAMESPACE", "CRAWLER_WORKER"];

/// Crawls on the store that the first argument names, or on a file.
pub fn main() -> Result<()> {
    if is_worker() {
        return work();
    }
    match std::env::args().nth(1) {
        Some(url) => crawl(&url),
        None => on_a_file(crawl),
    }
}

/// Whether this process was started as a worker.
pub fn is_worker() -> bool {
    std::env::var_os(VARIABLES[2]).is_some()
}

/// Does something with the URL of a new file.
pub fn on_a_file(job: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    let folder: PathBuf = std::env::temp_dir().join(format!("crawler-{}", std::process::id()));
    let done = job(&format!("sqlite:{}", folder.join("locks.db").display()));
    let _ = std::fs::remove_dir_all(folder);
    done
}

/// What a worker does: with every domain in turn, whatever the archive still lacks of it.
#[tokio::main(flavor = "current_thread")]
async fn work() -> Result<()> {
    let [url, namespace, number] = VARIABLES.map(|name| std::env::var(name).expect("the archive sets it"));
    let number: usize = number.parse().expect("the archive sets it");
    let locks = Locks::builder(&url).namespace(namespace).ttl(TTL).label(format!("worker-{number}")).connect().await?;
    for nth in 0..DOMAINS.len() {
        let domain = DOMAINS[(number + nth) % DOMAINS.len()];
        // Once more if the lock is lost on the way: somebody else may be lost after us.
        while !visit(&locks, domain).await? {}
    }
    locks.close().await;
    Ok(())
}

/// Crawls a domain while it is ours; `false` if it was lost.
async fn visit(locks: &Locks, domain: &str) -> Result<bool> {
    let guard = locks.mutex(format!("crawl/{domain}"))?.lock().await?;
    // The token is shown at the first contact: from now on nobody who had the domain before us can write.
    let mut answer = ask(&format!("open {domain} {} 0", guard.token()));
    while let Some(page) = answer.strip_prefix("next ") {
        if guard.check().is_err() {
            return Ok(false);
        }
        // Here a page would be fetched. However long that takes, and even if it blocks this thread, the lock is renewed.
        answer = ask(&format!("store {domain} {} {page}", guard.token()));
    }
    match answer.as_str() {
        "complete" => guard.release().await.map(|()| true),
        _ => Ok(false),
    }
}

/// Asks the archive.
fn ask(question: &str) -> String {
    println!("{question}");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).expect("the archive is there");
    answer.trim_end().into()
}

/// What the crawl is for.
#[derive(Default)]
struct Archive {
    domains: Mutex<BTreeMap<String, Domain>>,
    changed: Condvar,
}

#[derive(Default)]
struct Domain {
    gate: Gate,
    /// Who stored each page, in order, and under which token.
    pages: Vec<(usize, FencingToken)>,
    refusals: Vec<(usize, Error)>,
}

impl Archive {
    fn domains(&self) -> MutexGuard<'_, BTreeMap<String, Domain>> {
        self.domains.lock().expect("nobody panicked")
    }

    /// Opens a domain, or stores its next page. It judges the token and writes in one step.
    fn answer(&self, worker: usize, asked: &Asked) -> String {
        let mut domains = self.domains();
        let domain = domains.entry(asked.domain.clone()).or_default();
        if let Err(stale) = domain.gate.admit(asked.token) {
            domain.refusals.push((worker, stale));
            return "stale".into();
        }
        if asked.stores {
            assert_eq!(asked.page, domain.pages.len(), "two workers were in {} at once", asked.domain);
            domain.pages.push((worker, asked.token));
            self.changed.notify_all();
        }
        if domain.pages.len() == PAGES { "complete".into() } else { format!("next {}", domain.pages.len()) }
    }

    /// Waits until others have finished a domain.
    fn wait_for(&self, domain: &str) {
        let unfinished =
            |domains: &mut BTreeMap<String, Domain>| domains.get(domain).is_none_or(|found| found.pages.len() < PAGES);
        let waited = self.changed.wait_timeout_while(self.domains(), PATIENCE, unfinished).expect("nobody panicked");
        assert!(!waited.1.timed_out(), "nobody took over {domain}");
    }
}

/// What a worker asks.
struct Asked {
    stores: bool,
    domain: String,
    token: FencingToken,
    page: usize,
}

impl Asked {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (verb, domain) = (words.next()?, words.next()?.to_owned());
        let (token, page) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { stores: verb == "store", domain, token, page })
    }
}

/// A worker. It does not outlive the archive.
struct Worker {
    number: usize,
    process: Child,
}

impl Worker {
    fn start(number: usize, url: &str, namespace: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().map_err(|cause| os_error(&cause))?);
        command.envs(VARIABLES.into_iter().zip([url, namespace, &number.to_string()]));
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|cause| os_error(&cause))?;
        Ok(Self { number, process })
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.id().cast_signed()).expect("a process has a number");
        kill_process(pid, signal).expect("it has not been waited for");
    }

    /// Answers it until it ends. Nobody is answered before all workers have a domain, so that each has its fate.
    fn serve(mut self, archive: &Archive, all_began: &Barrier) {
        let mut questions = BufReader::new(self.process.stdout.take().expect("it is a pipe")).lines();
        let mut answers: ChildStdin = self.process.stdin.take().expect("it is a pipe");
        let first = questions.next();
        all_began.wait();
        for question in first.into_iter().chain(questions) {
            let asked = question.ok().and_then(|line| Asked::read(&line)).expect("a worker asks in whole lines");
            let fateful = asked.stores && asked.page == FATEFUL_PAGE && asked.domain == DOMAINS[self.number];
            if fateful && self.number == KILLED {
                self.signal(Signal::KILL);
                break;
            }
            let late = fateful && self.number == STOPPED;
            if late {
                self.signal(Signal::STOP);
                archive.wait_for(&asked.domain);
            }
            let answer = archive.answer(self.number, &asked);
            if late {
                self.signal(Signal::CONT);
            }
            // A worker that has gone needs no answer.
            let _ = writeln!(answers, "{answer}");
        }
        let ended = self.process.wait().expect("it is ours to wait for");
        assert!(ended.success() || self.number == KILLED, "worker-{} failed", self.number);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn os_error(cause: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unusable, format!("no worker can be started: {cause}"))
}

/// Crawls every domain with workers on that store, and says how it went.
pub fn crawl(url: &str) -> Result<()> {
    let (archive, namespace) = (Archive::default(), format!("crawler-{:x}", fastrand::u64(..)));
    let all_began = Barrier::new(WORKERS);
    std::thread::scope(|scope| {
        for number in 0..WORKERS {
            let worker = Worker::start(number, url, &namespace)?;
            scope.spawn(|| worker.serve(&archive, &all_began));
        }
        Ok::<_, Error>(())
    })?;

    let domains = archive.domains();
    for (name, domain) in domains.iter() {
        println!("{name}");
        for crawled in domain.pages.chunk_by(|one, other| one == other) {
            let (worker, token) = crawled[0];
            println!("  {:>2} pages by worker-{worker}, token {token}", crawled.len());
        }
        for (worker, why) in &domain.refusals {
            println!("  refused what worker-{worker} wrote too late: {why}");
        }
        let tokens = domain.pages.iter().map(|(_, token)| token);
        assert!(tokens.is_sorted() && domain.pages.len() == PAGES, "every page of {name} is stored once, in turns");
    }
    let crawled_by = |name: &str, page: usize| domains[name].pages[page].0;
    for (worker, fate) in [(KILLED, "was killed"), (STOPPED, "slept through its lease")] {
        let domain = DOMAINS[worker];
        let heir = crawled_by(domain, FATEFUL_PAGE);
        assert!(heir != worker, "somebody else went on");
        println!("worker-{worker} {fate} in {domain}, and worker-{heir} took over");
    }
    let late = &domains[DOMAINS[STOPPED]].refusals;
    assert!(late.iter().any(|(worker, why)| *worker == STOPPED && why.kind() == ErrorKind::Stale), "it was too late");
    println!("{} domains of {PAGES} pages, each page stored once", domains.len());
    Ok(())
}
