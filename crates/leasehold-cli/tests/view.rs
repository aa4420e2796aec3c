//! What the program shows of the locks, and what it does to those that somebody else has.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};
use tempfile::TempDir;

const COMMANDS: [&str; 12] =
    ["run", "elect", "ls", "show", "watch", "evict", "yield", "doctor", "bench", "schema", "completions", "man"];

/// A store in a file of its own.
struct Store {
    folder: TempDir,
}

impl Store {
    fn new() -> Self {
        // Not where temporary files are: that may be memory, which the doctor has something to say about.
        Self { folder: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        self.command_on(&format!("sqlite:{}", self.path("locks.db").display()), arguments)
    }

    fn command_on<S: AsRef<OsStr>>(&self, url: &str, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.env_remove("LEASEHOLD_URL").env_remove("NO_COLOR").env("XDG_CONFIG_HOME", self.folder.path());
        command.args(["--store", url]).args(arguments).stdin(Stdio::null());
        command
    }

    fn output<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What a command prints that succeeds.
    fn stdout<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Value {
        serde_json::from_str(&self.stdout(arguments)).unwrap()
    }

    /// A process that holds a key until it is let go.
    fn hold<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Process {
        let mut process = self.wait_for(arguments);
        assert_eq!(process.stdout.next().unwrap().unwrap(), "held");
        process
    }

    /// A process that holds a key until it is let go, once it is its turn.
    fn wait_for<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Process {
        let mut command = self.command(["run"]);
        command.args(arguments).args(["--", "sh", "-c", "echo held; exec cat"]);
        Process::start(command.stdin(Stdio::piped()))
    }

    /// Follows what happens. It looks so often that a broken test ends instead of waiting for ever.
    fn watch(&self) -> Process {
        Process::start(&mut self.command(["watch", "--every", "50ms", "--count", "1000"]))
    }
}

/// A process of ours. It does not outlive the test.
struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { child, stdin, stdout: BufReader::new(stdout).lines() }
    }

    /// The first line of JSON that tells of that event.
    fn event(&mut self, event: &str) -> Value {
        loop {
            let line = self.stdout.next().expect("the event comes before the watch ends").unwrap();
            let change: Value = serde_json::from_str(&line).unwrap();
            if change["event"] == event {
                return change;
            }
        }
    }

    /// Lets go, and says how it ended.
    fn end(mut self) -> Option<i32> {
        drop(self.stdin.take());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

#[test]
fn an_empty_store_prints_nothing_and_says_so_unless_told_to_be_quiet() {
    let store = Store::new();
    let loud = store.output(["ls"]);
    assert!(loud.status.success() && loud.stdout.is_empty(), "{loud:?}");
    assert!(text(&loud.stderr).starts_with("leasehold: nobody holds or awaits anything on sqlite:"), "{loud:?}");
    let quiet = store.output(["-q", "ls"]);
    assert!(quiet.status.success() && quiet.stdout.is_empty() && quiet.stderr.is_empty(), "{quiet:?}");
    assert_eq!(store.json(["ls", "--json"]), json!([]));
    assert!(text(&store.output(["ls", "a\u{7}"]).stderr).contains("anything that begins with \"a\\u{7}\" on sqlite:"));
    assert_eq!(store.json(["show", "a", "--json"]), Value::Null);
    assert!(text(&store.output(["show", "a"]).stderr).contains("nobody holds or awaits \"a\""));
}

#[test]
fn a_listing_names_holders_and_waiters_in_words_and_in_json() {
    let store = Store::new();
    let mut watch = store.watch();
    let holder = store.hold(["billing/close", "--label", "worker-7"]);
    let _waiter = store.wait_for(["billing/close", "--label", "worker-8"]);
    let _permit = store.hold(["gpu", "--permits", "2", "--of", "3"]);
    watch.event("waiting");

    let keys = store.json(["ls", "--json"]);
    let names: Vec<_> = keys.as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap()).collect();
    assert_eq!(names, ["billing/close", "gpu"]);
    let (key, gpu) = (&keys[0], &keys[1]);
    assert_eq!((&key["kind"], &key["capacity"]), (&json!("lock"), &Value::Null));
    assert_eq!((&gpu["kind"], &gpu["capacity"]), (&json!("semaphore"), &json!(3)));
    assert_eq!((&gpu["holders"][0]["claim"], &gpu["holders"][0]["permits"]), (&json!("permits"), &json!(2)));
    let (held, awaited) = (&key["holders"][0], &key["waiters"][0]);
    assert_eq!((&held["owner"], &held["pid"]), (&json!("worker-7"), &json!(holder.child.id())));
    assert_eq!((&held["claim"], &held["token"]), (&json!("exclusive"), &held["ticket"]));
    assert_eq!((&awaited["owner"], &awaited["token"]), (&json!("worker-8"), &Value::Null));
    let mut fields: Vec<_> = held.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    let known = "age_ms claim entry foreign host lease_left_ms owner permits pid ticket token value yield_asked";
    assert_eq!(fields.join(" "), known, "names of fields are stable");

    let table = store.stdout(["ls"]);
    let mut lines = table.lines();
    assert_eq!(
        lines.next().unwrap().split_whitespace().collect::<Vec<_>>().join(" "),
        "KEY KIND HELD BY WAITING TICKET AGE LEASE LEFT"
    );
    let row = lines.next().unwrap();
    let who = format!("worker-7 {}@", holder.child.id());
    assert!(row.starts_with("billing/close  lock") && row.contains(&who), "{row}");
    assert!(lines.next().unwrap().contains("semaphore 2 of 3"), "{table}");
    assert!(!store.stdout(["ls", "bill"]).contains("gpu"));

    let shown = store.stdout(["show", "billing/close"]);
    assert!(shown.contains("encoded    billing%2Fclose\n") && shown.contains("namespace  lock\n"), "{shown}");
    let place = |name: &str| shown.lines().find(|line| line.contains(name)).unwrap().split("  ").next().unwrap();
    assert_eq!((place("worker-7"), place("worker-8")), ("holds", "waits 1"), "{shown}");
    let shown = store.json(["show", "billing/close", "--json"]);
    assert_eq!((&shown["encoded"], &shown["namespace"]), (&json!("billing%2Fclose"), &json!("lock")));
    assert_eq!(shown["holders"][0]["entry"], held["entry"]);
}

#[test]
fn names_that_could_fool_a_terminal_are_escaped_everywhere() {
    let store = Store::new();
    let sneaky = "a\u{1b}]52;c\u{7}\u{202e}b\u{9b}2J";
    let _text = store.hold([sneaky, "--label", "\u{1b}[31mred\u{2066}"]);
    let _bytes = store.hold([OsStr::from_bytes(b"bytes\xff")]);
    for arguments in
        [&["ls"][..], &["show", sneaky], &["ls", "--json"], &["evict", sneaky, "abcdef"], &["yield", sneaky]]
    {
        let output = store.output(arguments);
        for stream in [&output.stdout, &output.stderr] {
            let harmful = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202e}' | '\u{2066}');
            assert!(!text(stream).contains(harmful), "{arguments:?}: {output:?}");
        }
    }
    assert!(store.stdout(["ls"]).contains(r"a\u{1b}]52;c\u{7}\u{202e}b\u{9b}2J  lock  \u{1b}[31mred\u{2066} "));
    let keys = store.json(["ls", "--json"]);
    assert_eq!(keys[0]["key"], sneaky);
    assert_eq!((&keys[1]["key"], &keys[1]["key_bytes"]), (&json!(r"bytes\xff"), &json!("6279746573ff")));
    assert_eq!(keys[0].get("key_bytes"), None);
    assert_eq!(keys[0]["holders"][0]["owner"], "\u{1b}[31mred\u{2066}");
}

#[test]
fn evict_needs_an_entry_and_prints_what_it_removed() {
    let store = Store::new();
    let holder = store.hold(["a", "--label", "stuck"]);
    let entry = store.json(["show", "a", "--json"])["holders"][0]["entry"].as_str().unwrap().to_owned();

    let unnamed = store.output(["evict", "a"]);
    assert_eq!(unnamed.status.code(), Some(64), "{unnamed:?}");
    assert!(text(&unnamed.stderr).contains(&entry[..12]) && unnamed.stdout.is_empty(), "{unnamed:?}");
    for (digits, code) in [(&entry[..5], 64), ("notahexnumber", 64), ("", 64), ("123456789abc", 1)] {
        assert_eq!(store.output(["evict", "a", digits]).status.code(), Some(code), "{digits:?}");
    }
    assert_eq!(store.output(["evict", "nobody", &entry]).status.code(), Some(1));
    assert_eq!(store.json(["ls", "--json"]).as_array().unwrap().len(), 1, "nobody was evicted so far");

    let evicted = store.stdout(["evict", "a", &entry[..8].to_uppercase()]);
    assert!(evicted.starts_with(&format!("evicted {} of stuck ", &entry[..12])), "{evicted}");
    assert!(evicted.contains("which held \"a\" (lock) with ticket "), "{evicted}");
    let mut holder = holder;
    assert_eq!(holder.child.wait().unwrap().code(), Some(76), "the holder learns that its lock is lost");
    assert_eq!(store.json(["ls", "--json"]), json!([]));
}

#[test]
fn a_waiter_can_be_evicted_and_the_holder_keeps_its_lock() {
    let store = Store::new();
    let mut watch = store.watch();
    let holder = store.hold(["a"]);
    let _waiter = store.wait_for(["a", "--label", "impatient"]);
    let entry = watch.event("waiting")["entry"].as_str().unwrap().to_owned();
    let evicted = store.json(["evict", "a", &entry, "--json"]);
    assert_eq!((&evicted["was"], &evicted["owner"]), (&json!("waiting"), &json!("impatient")));
    assert_eq!((&evicted["key"], &evicted["entry"]), (&json!("a"), &json!(entry)));
    assert_eq!(holder.end(), Some(0));
}

#[test]
fn yield_reaches_the_holder_which_decides() {
    let store = Store::new();
    let mut willing = store.hold(["a", "--on-yield", "term"]);
    let mut stubborn = store.hold(["b", "--on-yield", "ignore"]);
    let mut watch = store.watch();
    watch.event("holding");
    let asked = store.output(["yield", "a"]);
    assert!(text(&asked.stdout).starts_with("asked ") && text(&asked.stdout).ends_with("to let go of \"a\"\n"));
    assert!(text(&asked.stderr).contains("this is a wish"), "{asked:?}");
    assert_eq!(watch.event("left")["key"], "a");
    assert_eq!(willing.child.wait().unwrap().code(), Some(128 + 15));

    let entry = store.json(["show", "b", "--json"])["holders"][0]["entry"].as_str().unwrap().to_owned();
    let asked = store.json(["yield", "b", &entry[..6], "--json"]);
    assert_eq!((&asked["entry"], &asked["yield_asked"]), (&json!(entry), &json!(true)));
    assert_eq!(store.json(["show", "b", "--json"])["holders"][0]["yield_asked"], true);
    assert!(store.stdout(["show", "b"]).contains("asked to yield"));
    assert!(stubborn.child.try_wait().unwrap().is_none());
    assert_eq!(stubborn.end(), Some(0));
    assert_eq!(store.output(["yield", "b"]).status.code(), Some(1), "nobody is there to be asked");
}

#[test]
fn a_watch_without_a_terminal_tells_every_change_in_a_line_of_json() {
    let store = Store::new();
    let first = store.hold(["a", "--label", "first"]);
    let mut watch = store.watch();
    assert_eq!(watch.event("holding")["owner"], "first");
    let mut second = store.wait_for(["a", "--label", "second"]);
    assert_eq!(watch.event("waiting")["owner"], "second");
    store.stdout(["yield", "a"]);
    assert_eq!(watch.event("yield_asked")["owner"], "first");
    assert_eq!(first.end(), Some(0));
    let left = watch.event("left");
    assert_eq!((&left["key"], &left["owner"], &left["was"]), (&json!("a"), &json!("first"), &json!("holding")));
    let granted = watch.event("granted");
    assert_eq!((&granted["owner"], &granted["was"]), (&json!("second"), &json!("waiting")));
    assert_eq!(second.stdout.next().unwrap().unwrap(), "held");

    let once = store.stdout(["watch", "a", "b", "--count", "1"]);
    assert_eq!(once.lines().count(), 1, "{once}");
    assert_eq!(serde_json::from_str::<Value>(&once).unwrap()["event"], "holding");
}

#[test]
fn a_reader_that_leaves_early_ends_the_program_quietly() {
    let store = Store::new();
    let _holder = store.hold(["a"]);
    let commands: [&[&str]; 8] = [
        &["ls"],
        &["ls", "--json"],
        &["show", "a"],
        &["doctor"],
        &["man"],
        &["schema", "postgres"],
        &["completions", "bash"],
        // Nothing new happens, and it ends all the same.
        &["watch", "nobody", "--every", "50ms", "--count", "200"],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = store.command(arguments).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(128 + 13), "{arguments:?}");
    }
}

#[test]
fn the_manual_and_the_completions_name_every_command() {
    let store = Store::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = store.stdout(["completions", shell]);
        for command in COMMANDS {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    let page = store.stdout(["man"]);
    for command in COMMANDS {
        assert!(page.contains(&format!(".SH \"LEASEHOLD {}\"", command.to_uppercase())), "{command}");
    }
    for section in ["\"EXIT STATUS\"", "ENVIRONMENT", "FILES"] {
        assert!(page.contains(&format!(".SH {section}\n")), "{section}");
    }
    for word in ["LEASEHOLD_URL", "config.toml", "leasehold.db", "75"] {
        assert!(page.contains(word), "{word}");
    }
    let folder = store.path("pages");
    let written = store.stdout(["man".as_ref(), "--into".as_ref(), folder.as_os_str()]);
    assert_eq!(written.lines().count(), COMMANDS.len() + 1, "{written}");
    let page = std::fs::read_to_string(folder.join("leasehold-run.1")).unwrap();
    assert!(page.contains(".TH leasehold-run 1") && page.contains("Waits for the key"), "{page}");
}

#[test]
fn the_doctor_finds_nothing_wrong_with_a_new_file() {
    let store = Store::new();
    let checks = store.json(["doctor", "--json"]);
    let verdicts = |name: &str| -> Vec<String> {
        let named = checks.as_array().unwrap().iter().filter(|check| check["check"] == name);
        named.map(|check| check["verdict"].as_str().unwrap().into()).collect()
    };
    for check in ["store", "owner", "space", "clients", "round trip"] {
        assert_eq!(verdicts(check), ["ok"], "{checks}");
    }
    // A build folder in memory would be warned about, and rightly.
    assert_ne!(verdicts("file system"), ["bad"], "{checks}");
    assert_eq!(store.json(["ls", "--json"]), json!([]), "nothing of the round trip is left");

    let words = store.stdout(["doctor"]);
    assert_eq!(words.lines().count(), 6, "{words}");
    assert!(words.starts_with("ok    store        sqlite:"), "{words}");
}

#[test]
fn the_doctor_says_what_is_bad_and_what_to_do() {
    let store = Store::new();
    std::fs::write(store.path("locks.db"), "not a database, but long enough to be mistaken for one").unwrap();
    let sick = store.output(["doctor"]);
    assert_eq!(sick.status.code(), Some(1), "{sick:?}");
    assert!(text(&sick.stdout).starts_with("bad   store"), "{sick:?}");
    assert_eq!(text(&sick.stderr), "");

    let memory = store.command_on("memory:", ["doctor"]).output().unwrap();
    assert!(memory.status.success() && text(&memory.stdout).contains("no other process sees its locks"), "{memory:?}");
}

#[test]
fn the_doctor_warns_of_a_file_that_others_may_use() {
    use std::os::unix::fs::PermissionsExt;
    let store = Store::new();
    store.stdout(["-q", "ls"]);
    std::fs::set_permissions(store.path("locks.db"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let words = store.stdout(["doctor"]);
    assert!(words.contains("warn  owner") && words.contains("with mode 666; others may use its locks"), "{words}");
}

#[test]
fn a_store_that_cannot_be_used_is_one_line_and_code_69() {
    let store = Store::new();
    std::fs::write(store.path("text"), "not a database, but long enough to be mistaken for one").unwrap();
    std::fs::create_dir(store.path("folder")).unwrap();
    let file = |name: &str| format!("sqlite:{}", store.path(name).display());
    // Below a file there is no folder, and below /proc nobody can make one, whoever they are.
    let unusable = [file("folder"), file("text"), file("text/locks.db"), "sqlite:/proc/leasehold/locks.db".into()];
    let commands: [&[&str]; 5] = [&["ls"], &["show", "a"], &["watch"], &["evict", "a", "abcdef"], &["yield", "a"]];
    for url in &unusable {
        for arguments in commands {
            let output = store.command_on(url, arguments).output().unwrap();
            assert_eq!(output.status.code(), Some(69), "{url} {arguments:?}: {output:?}");
            let said = text(&output.stderr);
            assert!(output.stdout.is_empty() && said.starts_with("leasehold: ") && said.lines().count() == 1, "{said}");
        }
    }
}

#[test]
fn no_complaint_holds_what_could_fool_a_terminal() {
    let store = Store::new();
    let (sneaky, file) = ("\u{1b}[2J\u{202e}\nred", store.path("\u{1b}[2J.db"));
    std::fs::create_dir(&file).unwrap();
    std::fs::create_dir_all(store.path(&format!("{sneaky}/leasehold"))).unwrap();
    std::fs::write(store.path(&format!("{sneaky}/leasehold/config.toml")), "oops").unwrap();
    let below = format!("sqlite:/proc/{sneaky}/locks.db");
    let mut configured = store.command(["ls"]);
    configured.env("XDG_CONFIG_HOME", store.path(sneaky));
    let refused = [
        store.command_on(&below, ["ls"]),
        store.command_on(&below, ["doctor"]),
        store.command_on(&format!("sqlite:{}", file.display()), ["ls"]),
        store.command(["--store-file", sneaky, "ls"]),
        store.command(["man", "--into", &format!("/proc/{sneaky}")]),
        store.command([sneaky]),
        store.command(["run", "--ttl", sneaky, "k", "--", "true"]),
        store.command(["run", "k", "--", sneaky]),
        configured,
    ];
    for mut command in refused {
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{command:?}");
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        let harmful = |c: char| c.is_control() || c == '\u{202e}';
        assert!(said.ends_with('\n') && !said.trim_end_matches('\n').contains(harmful), "{command:?}: {said:?}");
    }
}

#[test]
fn whoever_names_no_command_is_told_which_there_are() {
    for mut bare in [Command::new(env!("CARGO_BIN_EXE_leasehold")), Store::new().command::<&str>([])] {
        let output = bare.output().unwrap();
        assert_eq!(output.status.code(), Some(64));
        let said = text(&output.stderr);
        assert!(said.lines().count() == 1 && COMMANDS.iter().all(|command| said.contains(command)), "{said}");
    }
}

/// What a command shows on a terminal of that width.
fn on_terminal(command: &mut Command, columns: u16) -> String {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let theirs = ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options().read(true).write(true).open(OsStr::from_bytes(theirs.to_bytes())).unwrap();
    tcsetwinsize(&theirs, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let mut child = command.stdout(theirs).stderr(Stdio::null()).spawn().unwrap();
    // Our copy of the other end, which would keep the terminal open.
    command.stdout(Stdio::null());
    let mut shown = Vec::new();
    // A terminal that everybody has left is an error to read.
    let _ = File::from(ours).read_to_end(&mut shown);
    child.wait().unwrap();
    String::from_utf8(shown).unwrap()
}

#[test]
fn tables_fit_the_terminal_and_are_whole_without_one() {
    let store = Store::new();
    let key = format!("a/{}/z", "very-long-name/".repeat(12));
    let _holder = store.hold([&key, "--label", &"somebody ".repeat(9)]);
    for arguments in [&["ls"][..], &["show", &key], &["watch", "--count", "1"], &["watch", &key, "--count", "1"]] {
        for columns in [40, 80, 200] {
            let shown = on_terminal(store.command(["--color", "never"]).args(arguments), columns);
            let table = shown.lines().skip_while(|line| !line.contains("KEY ") && !line.contains("PLACE"));
            let lines: Vec<_> = table.map(|line| line.trim_end().trim_end_matches("\x1b[K")).collect();
            assert!(lines.len() >= 2, "{arguments:?}: {shown:?}");
            assert!(columns < 80 || lines[0].contains("LEASE LEFT"), "long cells give way first: {lines:?}");
            for line in &lines {
                let clean = line.replace("\x1b[J", "").replace("\x1b[?25h", "");
                assert!(clean.chars().count() <= columns.into(), "{arguments:?} on {columns}: {line:?}");
            }
        }
    }
    assert!(store.stdout(["ls"]).contains(&key), "nothing is cut without a terminal");
}

#[test]
fn colour_only_repeats_what_the_words_say() {
    let store = Store::new();
    let _holder = store.hold(["a"]);
    for arguments in [["ls"], ["doctor"]] {
        let colored = on_terminal(&mut store.command(arguments), 200);
        assert!(colored.contains("\x1b["), "{colored:?}");
        let plain = on_terminal(store.command(arguments).env("NO_COLOR", "1"), 200);
        assert!(!plain.contains('\x1b'), "{plain:?}");
        assert!(!store.stdout(arguments).contains('\x1b'), "no terminal, no colours");
    }
    assert!(store.stdout(["ls", "--color", "always"]).starts_with("\x1b[1mKEY"));
}

#[test]
fn a_live_table_hides_the_cursor_and_brings_it_back() {
    let store = Store::new();
    let shown = on_terminal(&mut store.command(["watch", "--every", "50ms", "--count", "3"]), 80);
    assert!(shown.starts_with("\x1b[?25l") && shown.ends_with("\x1b[?25h"), "{shown:?}");
    assert_eq!(shown.matches("0 keys in use").count(), 3, "{shown:?}");
    assert_eq!(shown.matches("A\r").count(), 2, "it goes back up before every picture but the first: {shown:?}");
}
