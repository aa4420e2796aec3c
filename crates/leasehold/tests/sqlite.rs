//! What is particular to the file: who may have it, what it refuses, and what survives a power cut.
#![cfg(feature = "sqlite")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use leasehold::{Error, ErrorKind, FencingToken, Locks};
use rusqlite::Connection;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("leasehold-{:016x}", fastrand::u64(..)));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("state/locks.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn connect(file: &Path) -> Result<Locks, Error> {
    leasehold::connect(&format!("sqlite:{}", file.display())).await
}

async fn refused(file: &Path, why: &str) {
    let error = connect(file).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unusable, "{error}");
    assert!(error.to_string().contains(why), "{error}");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_new_file_and_all_beside_it_is_private_to_its_owner() {
    let folder = Folder::new();
    let file = folder.file();
    let locks = connect(&file).await.unwrap();
    let _guard = locks.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(mode(file.parent().unwrap()), 0o700);
    for entry in walk(file.parent().unwrap()) {
        let others = mode(&entry) & 0o077;
        assert_eq!(others, 0, "{} can be used by others", entry.display());
    }
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { [walk(&path), vec![path]].concat() } else { vec![path] }).collect()
}

#[tokio::test]
async fn nothing_of_a_client_is_left_beside_the_file_when_it_has_gone() {
    let folder = Folder::new();
    let file = folder.file();
    let locks = connect(&file).await.unwrap();
    let pipes = file.with_file_name("locks.db-clients");
    assert_eq!(walk(&pipes).len(), 2);
    locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
    drop(locks);
    while !walk(&pipes).is_empty() {
        tokio::task::yield_now().await;
    }
}

/// As if the process had been killed that holds the key: the row is there, and nobody's pipe.
fn orphan(file: &Path, token: FencingToken) {
    let connection = Connection::open(file).unwrap();
    let ticket = i64::try_from(token.get()).unwrap();
    assert_eq!(connection.execute("UPDATE entry SET client = 'nobody' WHERE ticket = ?1", [ticket]).unwrap(), 1);
}

#[tokio::test]
async fn whoever_looks_at_a_key_takes_out_the_dead_and_hands_it_over() {
    let folder = Folder::new();
    let file = folder.file();
    let (dead, living) = (connect(&file).await.unwrap(), connect(&file).await.unwrap());
    let gone = dead.mutex("k").unwrap().lock().await.unwrap();
    let other = dead.mutex("other").unwrap().lock().await.unwrap();
    orphan(&file, other.token());
    assert!(living.inspect("other").await.unwrap().is_none());
    let waiting = tokio::spawn({
        let mutex = living.mutex("k").unwrap();
        async move { mutex.lock().await.unwrap() }
    });
    while living.inspect("k").await.unwrap().and_then(|view| view.waiters).is_none_or(|waiters| waiters.is_empty()) {
        tokio::task::yield_now().await;
    }
    orphan(&file, gone.token());
    let views = living.inspect_all().await.unwrap();
    let [view] = &views[..] else { panic!("{views:?}") };
    assert_eq!((view.holders.len(), view.waiters.as_ref().map(Vec::len)), (1, Some(0)));
    assert_eq!(waiting.await.unwrap().token(), view.holders[0].token.unwrap(), "it was told");
}

#[tokio::test]
async fn looking_writes_nothing_as_long_as_nobody_has_died() {
    let folder = Folder::new();
    let file = folder.file();
    let (one, two) = (connect(&file).await.unwrap(), connect(&file).await.unwrap());
    let _held = [one.mutex("a").unwrap().lock().await.unwrap(), one.mutex("b").unwrap().lock().await.unwrap()];
    let log = || std::fs::read(file.with_file_name("locks.db-wal")).unwrap();
    let before = log();
    assert_eq!(two.inspect_all().await.unwrap().len(), 2);
    assert!(two.inspect("a").await.unwrap().is_some() && two.inspect("c").await.unwrap().is_none());
    assert!(log() == before);
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    let file = folder.0.join("other.db");
    Connection::open(&file).unwrap().execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (7)").unwrap();
    refused(&file, "another program").await;
    let tables: i64 =
        Connection::open(&file).unwrap().query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1);
}

#[tokio::test]
async fn a_file_of_a_newer_program_is_refused_by_its_version() {
    let folder = Folder::new();
    let file = folder.file();
    drop(connect(&file).await.unwrap());
    Connection::open(&file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    refused(&file, "layout 99").await;
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    let file = folder.0.join("letter.txt");
    let text = "Dear reader, ".repeat(500);
    std::fs::write(&file, &text).unwrap();
    refused(&file, "no SQLite file").await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[tokio::test]
async fn a_folder_or_a_place_where_no_file_can_be_made_is_refused_by_name() {
    let folder = Folder::new();
    refused(&folder.0, "this is a folder").await;
    refused(Path::new("/proc/self/locks.db"), "/proc/self/locks.db").await;
}

/// What the file looks like after a power cut: the last commits are missing, and the machine has booted anew.
#[tokio::test]
async fn after_a_power_cut_nothing_is_held_and_tokens_go_on_above_all_that_were_handed_out() {
    let folder = Folder::new();
    let file = folder.file();
    let locks = connect(&file).await.unwrap();
    let mutex = locks.mutex("k").unwrap();
    for _ in 0..5 {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    let held = mutex.lock().await.unwrap();
    let before = held.token();
    std::mem::forget(held); // nobody releases it
    drop((mutex, locks));
    let connection = Connection::open(&file).unwrap();
    connection.execute("UPDATE store SET boot = 'another', ticket = 1", []).unwrap();
    drop(connection);

    let locks = connect(&file).await.unwrap();
    let guard = locks.mutex("k").unwrap().try_lock().await.unwrap().expect("nobody lives through a boot");
    assert!(guard.token() > before, "token {} after {before}", guard.token());
}

/// The ceiling must be on disk before a token below it is handed out; it moves long before it is reached by much.
#[tokio::test]
async fn no_token_is_ever_above_the_ceiling_that_is_on_disk() {
    let folder = Folder::new();
    let file = folder.file();
    let locks = connect(&file).await.unwrap();
    let connection = Connection::open(&file).unwrap();
    connection.execute("UPDATE store SET ticket = 20000, ceiling = 20001", []).unwrap();
    for _ in 0..3 {
        let guard = locks.mutex("k").unwrap().lock().await.unwrap();
        let ceiling: i64 = connection.query_row("SELECT ceiling FROM store", [], |row| row.get(0)).unwrap();
        assert!(guard.token().get() <= u64::try_from(ceiling).unwrap(), "token {} is above {ceiling}", guard.token());
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn the_log_stays_short_though_every_client_takes_one_lock_and_ends() {
    let folder = Folder::new();
    let file = folder.file();
    // Whoever closes the file last would take the log along.
    let _stays = connect(&file).await.unwrap();
    let length = || std::fs::metadata(file.with_file_name("locks.db-wal")).unwrap().len();
    let mut longest = 0;
    for _ in 0..200 {
        let locks = connect(&file).await.unwrap();
        locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
        longest = longest.max(length());
    }
    assert!(longest < 300 * 1024, "{longest} bytes");
}

/// Somebody was stopped in the middle of a transaction, and keeps everybody else out.
#[tokio::test]
async fn a_file_that_somebody_keeps_busy_for_too_long_is_unreachable_and_not_waited_for_for_ever() {
    let folder = Folder::new();
    let file = folder.file();
    drop(connect(&file).await.unwrap());
    let door = std::fs::File::open(file.with_file_name("locks.db-door")).unwrap();
    door.lock().unwrap();
    let error = connect(&file).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    door.unlock().unwrap();
    connect(&file).await.unwrap();
}
