//! A test of the tests: breaks the code on purpose, one way at a time, and requires the tests to notice.
//!
//! A test that passes says little until it has been seen to fail. Each mutant names the tests that must fail on it, so
//! that a promise whose test has gone blind is found here. It works on a copy of the tree; the tree itself stays as it is.

mod etcd;
mod list;
mod postgres;
mod redis;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::{Result, interleavings, sh};

/// A broken variant of the code.
struct Mutant {
    name: &'static str,
    /// What is wrong with it, in a sentence.
    broken: &'static str,
    file: &'static str,
    /// Stands in the file exactly once.
    find: &'static str,
    replace: &'static str,
    suite: Suite,
    /// Those that must fail, by their full names. All of them.
    tests: &'static [&'static str],
}

/// A test program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Suite {
    /// Where its package lies.
    package: &'static str,
    /// How cargo is told to build it and nothing else.
    target: &'static str,
    /// Whether it is built to try thread schedules.
    interleaved: bool,
}

/// No run of the named tests takes longer, unless a mutant makes it hang.
const RUN_MAX: Duration = Duration::from_secs(120);

fn all() -> impl Iterator<Item = &'static Mutant> {
    list::MUTANTS.iter().chain(redis::MUTANTS).chain(etcd::MUTANTS).chain(postgres::MUTANTS)
}

pub(crate) fn run(names: &[&str]) -> Result {
    if let Some(unknown) = names.iter().find(|name| all().all(|mutant| mutant.name != **name)) {
        let known: Vec<&str> = all().map(|mutant| mutant.name).collect();
        return Err(format!("there is no mutant {unknown}; there are:\n  {}", known.join("\n  ")));
    }
    let wanted = |mutant: &&Mutant| names.is_empty() || names.contains(&mutant.name);
    let mutants: Vec<&Mutant> = all().filter(wanted).collect();
    refuse_stale_of(&mutants)?;
    let tree = Tree::copy()?;
    tree.control(&mutants)?;
    let width = mutants.iter().map(|mutant| mutant.name.len()).max().unwrap_or_default();
    let mut failures = Vec::new();
    for mutant in &mutants {
        let watch = sh::Stopwatch::start();
        let (word, by) = match tree.attempt(mutant) {
            Ok(Verdict::Caught) => ("caught", mutant.tests.join(", ")),
            Ok(Verdict::Hung) => ("caught", format!("a hang: no end within {} s", RUN_MAX.as_secs())),
            Ok(Verdict::Survived(passed)) => {
                failures.push(format!("{} survived: {} {} passed", mutant.name, mutant.broken, passed.join(" ")));
                ("SURVIVED", passed.join(" "))
            }
            Err(failure) => {
                failures.push(format!("{} is no fair mutant: {failure}", mutant.name));
                ("ERROR", "see below".into())
            }
        };
        eprintln!("  {:<width$}  {:>5.1} s  {word:<8}  {by}", mutant.name, watch.elapsed().as_secs_f64());
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Fails if the code has moved on under a mutant, so that it no longer says what it breaks.
pub(crate) fn refuse_stale() -> Result {
    refuse_stale_of(&all().collect::<Vec<_>>())
}

fn refuse_stale_of(mutants: &[&Mutant]) -> Result {
    let mut faults = Vec::new();
    for (nth, mutant) in mutants.iter().enumerate() {
        faults.extend(mutant.applied_to(&sh::read(&sh::root().join(mutant.file))?).err());
        if mutants[..nth].iter().any(|earlier| earlier.name == mutant.name) {
            faults.push(format!("two mutants are called {}", mutant.name));
        }
        if mutant.tests.is_empty() {
            faults.push(format!("{} names no test that must fail on it", mutant.name));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

impl Mutant {
    fn applied_to(&self, text: &str) -> Result<String> {
        match text.matches(self.find).count() {
            1 => Ok(text.replacen(self.find, self.replace, 1)),
            count => {
                let Self { name, file, find, .. } = self;
                Err(format!("stale mutant {name}: {file} has this {count} times and not once:\n{find}"))
            }
        }
    }
}

/// What became of a mutant.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Every named test failed.
    Caught,
    /// The tests did not end.
    Hung,
    /// These passed.
    Survived(Vec<&'static str>),
}

/// A copy of the workspace.
struct Tree {
    root: PathBuf,
    build: PathBuf,
}

impl Tree {
    /// Brings the copy up to date. Files that are the same keep their times, so that only what changed is rebuilt.
    fn copy() -> Result<Self> {
        let at = sh::target_dir().join("mutants");
        let tree = Self { root: at.join("tree"), build: at.join("build") };
        let files = sh::files()?;
        remove_all_but(&tree.root, Path::new(""), &files).map_err(|error| format!("{}: {error}", at.display()))?;
        for file in &files {
            let (from, to) = (sh::root().join(file), tree.root.join(file));
            let copied = || {
                let bytes = fs::read(&from)?;
                if fs::read(&to).is_ok_and(|old| old == bytes) {
                    return Ok(());
                }
                fs::create_dir_all(to.parent().expect("it lies in the tree"))?;
                fs::write(&to, bytes)
            };
            copied().map_err(|error| format!("cannot copy {}: {error}", file.display()))?;
        }
        Ok(tree)
    }

    /// The tests that mutants name must pass while nothing is broken: otherwise their failing says nothing.
    fn control(&self, mutants: &[&Mutant]) -> Result {
        let mut suites: BTreeMap<Suite, Vec<&'static str>> = BTreeMap::new();
        for mutant in mutants {
            suites.entry(mutant.suite).or_default().extend(mutant.tests);
        }
        for (suite, mut tests) in suites {
            tests.sort_unstable();
            tests.dedup();
            eprintln!("  unbroken: {} tests of {}", tests.len(), suite.target);
            let program = self.build(suite)?;
            let Some(output) = run_tests(&program, &self.root.join(suite.package), &tests)? else {
                return Err(format!("the unbroken tests of {} did not end", suite.target));
            };
            for test in tests {
                match outcome(&output, test) {
                    Some("ok") => {}
                    Some(_) => return Err(format!("{test} fails although nothing is broken:\n{output}")),
                    None => return Err(format!("{} has no test {test}", suite.target)),
                }
            }
        }
        Ok(())
    }

    fn attempt(&self, mutant: &Mutant) -> Result<Verdict> {
        let file = self.root.join(mutant.file);
        let unbroken = sh::read(&file)?;
        let write = |text: &str| fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()));
        write(&mutant.applied_to(&unbroken)?)?;
        let verdict = self.judge(mutant);
        write(&unbroken)?;
        verdict
    }

    fn judge(&self, mutant: &Mutant) -> Result<Verdict> {
        let program = self.build(mutant.suite)?;
        match run_tests(&program, &self.root.join(mutant.suite.package), mutant.tests)? {
            Some(output) => verdict(&output, mutant.tests),
            None => Ok(Verdict::Hung),
        }
    }

    /// Builds a suite and returns its program. A build has no time limit, and its failure is never a caught mutant.
    fn build(&self, suite: Suite) -> Result<PathBuf> {
        let mut cargo = sh::cargo("test --no-run --locked");
        cargo.args(suite.target.split_whitespace()).current_dir(&self.root);
        if suite.interleaved {
            interleavings::build_for(&mut cargo, &self.build.with_file_name("build-shuttle"));
        } else {
            cargo.env("CARGO_TARGET_DIR", &self.build).env("CARGO_PROFILE_DEV_DEBUG", "0");
        }
        let output = cargo.output().map_err(|error| format!("cannot run cargo: {error}"))?;
        let talk = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!("it does not build:\n{talk}"));
        }
        program(&talk).map(|at| self.root.join(at)).ok_or_else(|| format!("cargo named no program:\n{talk}"))
    }
}

/// Removes the files below `folder` that are not listed: they were deleted or renamed since the last copy.
fn remove_all_but(root: &Path, folder: &Path, listed: &[PathBuf]) -> std::io::Result<()> {
    if !root.join(folder).is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_all_but(root, &path, listed)?;
        } else if !listed.contains(&path) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The program in cargo's `Executable tests/memory.rs (target/debug/deps/memory-0123)`.
fn program(talk: &str) -> Option<&str> {
    let line = talk.lines().find(|line| line.trim_start().starts_with("Executable "))?;
    line.rsplit_once('(')?.1.strip_suffix(')')
}

/// Runs exactly these tests and returns what the program said; `None` if it did not end in time.
///
/// Not through cargo: the program is our own child then, and can be ended without leaving anything behind.
fn run_tests(program: &Path, package: &Path, tests: &[&str]) -> Result<Option<String>> {
    let cannot = |error| format!("cannot run {}: {error}", program.display());
    let mut child = Command::new(program)
        .arg("--exact")
        .args(tests)
        .current_dir(package)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(cannot)?;
    let mut stdout = child.stdout.take().expect("it is piped");
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut output = Vec::new();
        let read = stdout.read_to_end(&mut output).map(|_| String::from_utf8_lossy(&output).into_owned());
        let _ = sender.send(read); // nobody listens any more if it took too long
    });
    let output = receiver.recv_timeout(RUN_MAX);
    if output.is_err() {
        child.kill().map_err(cannot)?;
    }
    child.wait().map_err(cannot)?;
    output.ok().transpose().map_err(cannot)
}

/// What the test program said of a test.
fn outcome<'a>(output: &'a str, test: &str) -> Option<&'a str> {
    output.lines().find_map(|line| line.strip_prefix("test ")?.strip_prefix(test)?.strip_prefix(" ... "))
}

fn verdict(output: &str, tests: &[&'static str]) -> Result<Verdict> {
    let mut passed = Vec::new();
    for test in tests {
        match outcome(output, test) {
            Some("FAILED") => {}
            Some("ok") => passed.push(*test),
            _ => return Err(format!("{test} neither passed nor failed:\n{output}")),
        }
    }
    Ok(if passed.is_empty() { Verdict::Caught } else { Verdict::Survived(passed) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "running 2 tests\ntest a::one ... ok\ntest a::one_more ... FAILED\n\nfailures:\n";

    #[test]
    fn only_a_test_that_failed_by_its_name_catches_a_mutant() {
        assert_eq!(verdict(OUTPUT, &["a::one_more"]), Ok(Verdict::Caught));
        assert_eq!(verdict(OUTPUT, &["a::one_more", "a::one"]), Ok(Verdict::Survived(vec!["a::one"])));
        assert!(verdict(OUTPUT, &["a::none"]).is_err());
        assert!(verdict("", &["a::one"]).is_err());
    }

    #[test]
    fn a_mutant_must_fit_in_exactly_one_place() {
        let suite = Suite { package: "", target: "", interleaved: false };
        let mutant = Mutant { name: "m", broken: "", file: "f", find: "a", replace: "b", suite, tests: &[] };
        assert_eq!(mutant.applied_to("xay").as_deref(), Ok("xby"));
        assert!(mutant.applied_to("xy").is_err() && mutant.applied_to("aa").is_err());
    }

    #[test]
    fn the_program_is_read_from_what_cargo_says() {
        let talk = "   Compiling x\n    Finished `test` profile\n  Executable tests/memory.rs (/t/deps/memory-01)\n";
        assert_eq!(program(talk), Some("/t/deps/memory-01"));
        assert_eq!(program("    Finished `test` profile\n"), None);
    }
}
