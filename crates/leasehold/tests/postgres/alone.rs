//! Those who are alone in their line, and whoever comes just then.

use futures_util::StreamExt as _;
use leasehold::backend::postgres::Postgres;
use leasehold::backend::{Backend as _, KeyView};
use leasehold::{Key, Namespace};
use leasehold_testbed::postgres::Server;
use tokio_postgres::{Client, NoTls};

use crate::{connect, soon, timer, until_waiting};

/// A server that writes down what it is asked.
fn server() -> Server {
    Server::builder().setting("log_statement", "all").start().unwrap()
}

async fn session(server: &Server) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Resolves when so many sessions wait for others.
async fn until_blocked(server: &Server, count: usize) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    soon("they wait for locks of the server", async {
        while server.sql(waiting) != count.to_string() {
            timer().sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
}

fn holders(view: Option<leasehold::Result<KeyView>>) -> usize {
    view.unwrap().unwrap().holders.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_nobody_else_wants_is_taken_by_one_insert_and_given_back_by_one_delete() {
    const ASKED: [&str; 4] = ["INSERT INTO", "DELETE FROM", "enter(", "leave("];
    let server = server();
    let locks = connect(&server.url()).await;
    let mutex = locks.mutex("k").unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    let before = ASKED.map(|words| server.statements_with(words));
    for _ in 0..50 {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    let after = ASKED.map(|words| server.statements_with(words));
    assert_eq!([0, 1, 2, 3].map(|nth| after[nth] - before[nth]), [50, 50, 0, 0]);
}

/// The second is in the middle of joining, and cannot go on: somebody uses its id, and does not say yet whether it is kept. Nobody
/// asks for the second afterwards, as its client would.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_joins_while_the_first_is_leaving_is_let_in_by_it() {
    let server = Server::start().unwrap();
    let guard = connect(&server.url()).await.mutex("k").unwrap().lock().await.unwrap();
    let (in_the_way, second) = (session(&server).await, session(&server).await);
    in_the_way
        .batch_execute(
            "BEGIN; INSERT INTO leasehold.entry (namespace, name, ticket, slot, entry, client, hears, weight, capacity, holds, owner, \
             host, pid, entered_at, expires_at) VALUES ('lock', 'another', 1, 0, '\\xfedcba9876543210fedcba9876543210', 'x', \
             false, 1, 1, false, '', '', 0, clock_timestamp(), clock_timestamp())",
        )
        .await
        .unwrap();
    let joining = tokio::spawn(async move {
        let join = "SELECT standing FROM leasehold.enter('lock', 'k', '\\xfedcba9876543210fedcba9876543210', 'second', false, \
                    4294967296, 4294967296, true, false, 600000000, 600000000, '', '', 0, NULL, 100000)";
        second.query_one(join, &[]).await.unwrap().get::<_, String>(0)
    });
    until_blocked(&server, 1).await;
    let leaving = tokio::spawn(guard.release());
    until_blocked(&server, 2).await;
    in_the_way.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(soon("the second has joined", joining).await.unwrap(), "waiting");
    soon("the first has left", leaving).await.unwrap().unwrap();
    assert_eq!(server.sql("SELECT client, holds FROM leasehold.entry"), "second|t");
}

/// It is in line for the line's own lock when somebody begins to follow, and what it sees of the tables is older.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_begins_to_follow_just_before_a_lock_is_taken_is_told_of_it() {
    let server = Server::start().unwrap();
    let (locks, watching) = (connect(&server.url()).await, Postgres::connect(&server.url()).await.unwrap());
    let in_the_way = session(&server).await;
    in_the_way.batch_execute("BEGIN; SELECT leasehold.lock_line('lock', 'k')").await.unwrap();
    let mut views = watching.watch(&Key::new(&Namespace::default(), "k").unwrap());
    let first = tokio::spawn(async move { (holders(views.next().await), views) });
    until_blocked(&server, 1).await;
    let mutex = locks.mutex("k").unwrap();
    let taking = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_blocked(&server, 2).await;
    in_the_way.batch_execute("COMMIT").await.unwrap();
    let (nobody, mut views) = soon("the state that it begins with", first).await.unwrap();
    assert_eq!(nobody, 0);
    let guard = soon("the lock", taking).await.unwrap();
    assert_eq!(holders(soon("the news of it", views.next()).await), 1);
    guard.release().await.unwrap();
    assert_eq!(holders(soon("the news of its end", views.next()).await), 0);
}

/// It is leaving when somebody begins to follow, and has not left yet; or it does not leave after all, and does so later.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_begins_to_follow_while_a_lock_is_given_back_is_told_of_it() {
    for (end, left) in [("COMMIT", true), ("ROLLBACK", false)] {
        let server = Server::start().unwrap();
        let (locks, watching) = (connect(&server.url()).await, Postgres::connect(&server.url()).await.unwrap());
        let guard = locks.mutex("k").unwrap().lock().await.unwrap();
        let leaving = session(&server).await;
        leaving.batch_execute("BEGIN; DELETE FROM leasehold.entry WHERE alone").await.unwrap();
        let mut views = watching.watch(&Key::new(&Namespace::default(), "k").unwrap());
        let first = tokio::spawn(async move { (holders(views.next().await), views) });
        until_blocked(&server, 1).await;
        leaving.batch_execute(end).await.unwrap();
        let (holding, mut views) = soon("the state that it begins with", first).await.unwrap();
        assert_eq!(holding, usize::from(!left));
        if !left {
            guard.release().await.unwrap();
            assert_eq!(holders(soon("the news of its end", views.next()).await), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_who_is_refused_does_not_make_it_dearer_to_leave() {
    let server = server();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    assert!(other.mutex("k").unwrap().try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert_eq!(server.statements_with("leave("), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_found_a_line_does_not_try_again_whether_there_is_one() {
    let server = server();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let (guard, mutex) = (one.mutex("k").unwrap().lock().await.unwrap(), other.mutex("k").unwrap());
    assert!(mutex.try_lock().await.unwrap().is_none());
    let before = server.statements_with("INSERT INTO");
    for _ in 0..20 {
        assert!(mutex.try_lock().await.unwrap().is_none());
    }
    assert_eq!(server.statements_with("INSERT INTO"), before);
    guard.release().await.unwrap();
    mutex.try_lock().await.unwrap().expect("it is free").release().await.unwrap();
    mutex.try_lock().await.unwrap().expect("it is free").release().await.unwrap();
    assert_eq!(server.statements_with("INSERT INTO"), before + 1, "there is no line any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_somebody_evicts_is_told_though_it_was_alone() {
    let server = Server::start().unwrap();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    let view = other.inspect("k").await.unwrap().unwrap();
    other.evict(&view.holders[0]).await.unwrap();
    soon("it hears of it", guard.lost()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_behind_somebody_who_was_alone_is_let_in() {
    let server = Server::start().unwrap();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    let mutex = other.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&one, "k", 1).await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(server.sql("SELECT holds FROM leasehold.entry"), "t", "the one who left has let it in");
    soon("its turn", waiter).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_who_joins_another_one_keeps_writers_out_when_that_one_has_left() {
    let server = Server::start().unwrap();
    let client = async || connect(&server.url()).await;
    let locks = [client().await, client().await, client().await].map(|locks| locks.rw_lock("k").unwrap());
    let first = locks[0].try_read().await.unwrap().unwrap();
    let second = locks[1].try_read().await.unwrap().unwrap();
    first.release().await.unwrap();
    assert!(locks[2].try_write().await.unwrap().is_none());
    second.release().await.unwrap();
    assert!(client().await.rw_lock("k").unwrap().try_write().await.unwrap().is_some());
}

/// It counts on the first, finds that there is room for both, and then that the first is gone: whoever comes next must see that
/// there is a line.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_who_joins_one_that_is_just_leaving_keeps_writers_out() {
    let server = Server::start().unwrap();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let _first = one.rw_lock("k").unwrap().try_read().await.unwrap().unwrap();
    let lock = other.rw_lock("k").unwrap();
    assert!(lock.try_write().await.unwrap().is_none());
    let leaving = session(&server).await;
    leaving.batch_execute("BEGIN; DELETE FROM leasehold.entry WHERE alone").await.unwrap();
    let joining = tokio::spawn(async move { lock.try_read().await.unwrap().unwrap() });
    until_blocked(&server, 1).await;
    leaving.batch_execute("COMMIT").await.unwrap();
    let second = soon("the second reads", joining).await.unwrap();
    let stranger = connect(&server.url()).await;
    assert!(stranger.rw_lock("k").unwrap().try_write().await.unwrap().is_none());
    second.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_overtakes_those_who_are_left_when_the_first_has_gone() {
    let server = Server::start().unwrap();
    let clients = [connect(&server.url()).await, connect(&server.url()).await, connect(&server.url()).await];
    let mutexes = clients.each_ref().map(|locks| locks.mutex("k").unwrap());
    let guard = mutexes[0].lock().await.unwrap();
    let waiter = |nth: usize| {
        let mutex = mutexes[nth].clone();
        tokio::spawn(async move { mutex.lock().await.unwrap() })
    };
    let second = waiter(1);
    until_waiting(&clients[0], "k", 1).await.unwrap();
    let third = waiter(2);
    until_waiting(&clients[0], "k", 2).await.unwrap();
    guard.release().await.unwrap();
    let stranger = async || {
        // It does not know yet that there is a line.
        let locks = connect(&server.url()).await;
        locks.mutex("k").unwrap().try_lock().await.unwrap()
    };
    assert!(stranger().await.is_none());
    soon("the second's turn", second).await.unwrap().release().await.unwrap();
    assert!(stranger().await.is_none());
    let third = soon("the third's turn", third).await.unwrap();
    assert!(stranger().await.is_none());
    third.release().await.unwrap();
    assert!(stranger().await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_follows_a_key_is_told_of_every_holder_and_leaves_nothing_when_it_stops() {
    let server = Server::start().unwrap();
    let (locks, watching) = (connect(&server.url()).await, Postgres::connect(&server.url()).await.unwrap());
    let mut views = watching.watch(&Key::new(&Namespace::default(), "k").unwrap());
    assert_eq!(holders(soon("the state that it begins with", views.next()).await), 0);
    for _ in 0..3 {
        let guard = locks.mutex("k").unwrap().lock().await.unwrap();
        assert_eq!(holders(soon("the news of it", views.next()).await), 1);
        guard.release().await.unwrap();
        assert_eq!(holders(soon("the news of its end", views.next()).await), 0);
    }
    assert!(locks.inspect("k").await.unwrap().is_none() && locks.inspect_all().await.unwrap().is_empty());
    drop(views);
    soon("nothing is left of it", async {
        while server.sql("SELECT count(*) FROM leasehold.entry") != "0" {
            timer().sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// As when the whole client was suspended for longer than a watch lasts.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_did_not_keep_its_watch_in_time_follows_anew() {
    let server = Server::start().unwrap();
    let (locks, watching) = (connect(&server.url()).await, Postgres::connect(&server.url()).await.unwrap());
    let mut views = watching.watch(&Key::new(&Namespace::default(), "k").unwrap());
    assert_eq!(holders(soon("the state that it begins with", views.next()).await), 0);
    server.sql("UPDATE leasehold.watcher SET expires_at = clock_timestamp()");
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(holders(soon("it looks anew", views.next()).await), 1);
    guard.release().await.unwrap();
    assert_eq!(holders(soon("the news of its end", views.next()).await), 0);
}
