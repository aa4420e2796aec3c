//! A holder is stopped and overtaken, and goes on to write. The table that it writes to remembers the highest token it has seen.

mod stage;

use std::fs;
use std::process::{Command, Stdio};

use leasehold::fence::sql;
use leasehold_testbed::{mysql, postgres};
use rustix::process::Signal;

use stage::{Running, Stage, until};

/// How a script that finds its token stale ends.
const STALE: &str = "3";

/// A holder is stopped when it is about to write as `late`; another one comes after it and writes as `next`; then the first one
/// goes on. Locks are at `url`. `write` is a command of the shell that writes as `$who` under `$LEASEHOLD_TOKEN`.
fn is_overtaken_and_refused(stage: &Stage, url: &str, write: &str) {
    let run = |script: &str| {
        let mut program = stage.bare();
        program.args(["--store", url, "run", "--ttl", "2s", "ledger", "--", "sh", "-c", script]);
        Running::start(program.stdout(Stdio::null()).stderr(Stdio::null()))
    };
    let late = run(&format!("echo > holds; while [ ! -e go ]; do sleep 0.02; done; who=late; {write}\necho $? > late"));
    until("it holds", || stage.line_in("holds").is_some());
    late.signal(Signal::STOP);
    assert_eq!(run(&format!("who=next; {write}")).code(), Some(0));
    fs::write(stage.path("go"), "").unwrap();
    until("it has tried to write", || stage.line_in("late").is_some());
    assert_eq!(stage.line_in("late").as_deref(), Some(STALE));
}

#[test]
fn a_table_of_postgres_refuses_the_write_of_a_holder_that_was_stopped_and_overtaken() {
    let (stage, server) = (Stage::new(), postgres::Server::shared());
    server.sql("CREATE TABLE ledger (writer text); INSERT INTO ledger VALUES ('nobody')");
    server.sql(sql::postgres::TABLE);
    // Without a row there is nothing to remember, which is a failure.
    let script = format!(
        "PREPARE admit (text, bigint) AS {};\n\
         BEGIN;\n\
         EXECUTE admit('ledger', :token) \\gset\n\
         UPDATE ledger SET writer = :'who';\n\
         COMMIT;\n",
        sql::postgres::ADMIT
    );
    fs::write(stage.path("write.sql"), script).unwrap();
    let psql = format!("psql '{}' -X -q -v ON_ERROR_STOP=1", server.url());
    is_overtaken_and_refused(
        &stage,
        &server.url(),
        &format!("{psql} -v token=$LEASEHOLD_TOKEN -v who=$who -f write.sql"),
    );
    assert_eq!(server.sql("SELECT writer FROM ledger"), "next");
}

#[test]
fn a_table_of_mysql_refuses_the_write_of_a_holder_that_was_stopped_and_overtaken() {
    let (stage, server) = (Stage::new(), mysql::Server::shared());
    server.sql("CREATE TABLE ledger (writer text); INSERT INTO ledger VALUES ('nobody')");
    server.sql(sql::mysql::TABLE);
    let bound = |statement: &str, values: &[&str]| {
        values.iter().fold(statement.to_owned(), |bound, value| bound.replacen('?', value, 1))
    };
    // The shell puts token and name in; a stale token ends the session, and with it the transaction.
    let script = format!(
        "DELIMITER //\n\
         BEGIN NOT ATOMIC\n\
         START TRANSACTION;\n\
         {};\n\
         IF NOT EXISTS ({}) THEN SIGNAL SQLSTATE '45000'; END IF;\n\
         UPDATE ledger SET writer = '$who';\n\
         COMMIT;\n\
         END //\n",
        bound(sql::mysql::REMEMBER, &["'ledger'", "$LEASEHOLD_TOKEN", "$LEASEHOLD_TOKEN"]),
        bound(sql::mysql::ADMIT, &["'ledger'", "$LEASEHOLD_TOKEN"]),
    );
    let client = format!("mariadb --no-defaults -h127.0.0.1 -P{} -ulocks shop", server.port());
    let write = format!("{client} <<-END || (exit {STALE})\n{script}END\n");
    is_overtaken_and_refused(&stage, &server.url(), &write);
    assert_eq!(server.sql("SELECT writer FROM ledger"), "next");
}

#[test]
fn a_table_of_sqlite_refuses_the_write_of_a_holder_that_was_stopped_and_overtaken() {
    let stage = Stage::new();
    let script = format!(
        "import sqlite3, sys\n\
         db = sqlite3.connect('ledger.db', isolation_level=None)\n\
         db.execute('CREATE TABLE IF NOT EXISTS ledger (writer)')\n\
         db.execute('{}')\n\
         if len(sys.argv) == 1:\n    \
             print(db.execute('SELECT group_concat(writer) FROM ledger').fetchone()[0])\n    \
             sys.exit()\n\
         db.execute('BEGIN IMMEDIATE')\n\
         if not db.execute('{}', ('ledger', int(sys.argv[1]))).fetchone():\n    \
             sys.exit({STALE})\n\
         db.execute('INSERT INTO ledger VALUES (?)', (sys.argv[2],))\n\
         db.execute('COMMIT')\n",
        sql::sqlite::TABLE,
        sql::sqlite::ADMIT
    );
    fs::write(stage.path("write.py"), script).unwrap();
    let url = format!("sqlite:{}", stage.path("locks.db").display());
    is_overtaken_and_refused(&stage, &url, "python3 write.py $LEASEHOLD_TOKEN $who");
    let read = Command::new("python3").arg("write.py").current_dir(stage.path("")).output().unwrap();
    assert_eq!(read.stdout, b"next\n", "{read:?}");
}
