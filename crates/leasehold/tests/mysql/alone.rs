//! Those who are alone in their line, and whoever comes just then.

use std::time::Duration;

use leasehold::Locks;
use leasehold_testbed::mysql::Server;
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;

use crate::{connect, own_questions, questions, soon, timer, until_waiting, warm_up};

/// How often the server has done that.
fn done(server: &Server, what: &str) -> usize {
    let shown = server.sql(&format!("SHOW GLOBAL STATUS LIKE '{what}'"));
    shown.rsplit('\t').next().unwrap().parse().unwrap()
}

/// Resolves when so many transactions wait for others.
async fn until_blocked(server: &Server, count: usize) {
    let waiting = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'";
    soon("they wait for locks of the server", async {
        while server.sql(waiting) != count.to_string() {
            // The server answers from memory whoever asks ten times a second.
            timer().sleep(Duration::from_millis(150)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_nobody_else_wants_is_taken_by_one_insert_and_given_back_by_one_delete() {
    const COUNTED: [&str; 4] = ["Com_insert", "Com_delete", "Com_call_procedure", "Com_commit"];
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    let mutex = locks.mutex("k").unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    let before = COUNTED.map(|what| done(&server, what));
    for _ in 0..50 {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    let after = COUNTED.map(|what| done(&server, what));
    assert_eq!([0, 1, 2, 3].map(|nth| after[nth] - before[nth]), [50, 50, 0, 0]);
}

/// The second is in the middle of joining, and cannot go on: somebody has the next slot of the line, and does not say yet
/// whether it is kept. Nobody asks for the second afterwards, as its client would.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_joins_while_the_first_is_leaving_is_let_in_by_it() {
    let server = Server::start().unwrap();
    let guard = connect(&server.url()).await.mutex("k").unwrap().lock().await.unwrap();
    let session = async || Conn::from_url(server.url()).await.unwrap();
    let (mut in_the_way, mut second) = (session().await, session().await);
    in_the_way.query_drop("START TRANSACTION").await.unwrap();
    in_the_way
        .query_drop(
            "INSERT INTO leasehold_entry (namespace, name, slot, entry, weight, capacity, holds, owner, host, pid, entered_at, \
             expires_at) VALUES ('lock', 'k', 1, x'0123456789abcdef0123456789abcdef', 1, 1, FALSE, '', '', 0, \
             UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))",
        )
        .await
        .unwrap();
    let joining = tokio::spawn(async move {
        second
            .query_drop(
                "CALL leasehold_enter('lock', 'k', x'fedcba9876543210fedcba9876543210', 4294967296, 4294967296, TRUE, FALSE, \
                 600000000, 600000000, '', '', 0, NULL, 100000)",
            )
            .await
            .unwrap();
    });
    until_blocked(&server, 1).await;
    let leaving = tokio::spawn(guard.release());
    until_blocked(&server, 2).await;
    in_the_way.query_drop("ROLLBACK").await.unwrap();
    soon("the second has joined", joining).await.unwrap();
    soon("the first has left", leaving).await.unwrap().unwrap();
    assert_eq!(server.sql("SELECT slot, holds FROM leasehold_entry"), "0\t1");
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
async fn a_reader_who_joins_another_one_keeps_writers_out_when_that_one_has_left() {
    let server = Server::start().unwrap();
    let client = async || connect(&server.url()).await;
    let clients = [client().await, client().await, client().await];
    let locks = clients.each_ref().map(|locks: &Locks| locks.rw_lock("k").unwrap());
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
    let mut leaving = Conn::from_url(server.url()).await.unwrap();
    leaving.query_drop("START TRANSACTION").await.unwrap();
    leaving.query_drop("DELETE FROM leasehold_entry WHERE alone").await.unwrap();
    let joining = tokio::spawn(async move { lock.try_read().await.unwrap().unwrap() });
    until_blocked(&server, 1).await;
    leaving.query_drop("COMMIT").await.unwrap();
    let second = soon("the second reads", joining).await.unwrap();
    let stranger = connect(&server.url()).await;
    assert!(stranger.rw_lock("k").unwrap().try_write().await.unwrap().is_none());
    second.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_who_is_refused_does_not_make_it_dearer_to_leave() {
    let server = Server::start().unwrap();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    assert!(other.mutex("k").unwrap().try_lock().await.unwrap().is_none());
    let before = done(&server, "Com_call_procedure");
    guard.release().await.unwrap();
    assert_eq!(done(&server, "Com_call_procedure") - before, 0);
}

/// A question, and one for who it is.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_found_a_line_does_not_try_again_whether_there_is_one() {
    let server = Server::start().unwrap();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    warm_up(&server, &other, 1).await;
    let mutex = other.mutex("k").unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    let before = questions(&server);
    for _ in 0..20 {
        assert!(mutex.try_lock().await.unwrap().is_none());
    }
    assert_eq!(questions(&server) - before - own_questions(&server), 40);
    guard.release().await.unwrap();
    mutex.try_lock().await.unwrap().expect("it is free").release().await.unwrap();
    let before = done(&server, "Com_call_procedure");
    mutex.try_lock().await.unwrap().expect("it is free").release().await.unwrap();
    assert_eq!(done(&server, "Com_call_procedure") - before, 0, "there is no line any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_when_nobody_holds_anything_does_not_forget_the_last_token() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    let mutex = locks.mutex("k").unwrap();
    let mut last = None;
    for _ in 0..10 {
        let guard = mutex.lock().await.unwrap();
        last = Some(guard.token());
        guard.release().await.unwrap();
    }
    server.restart().unwrap();
    assert_eq!(server.sql("SELECT COUNT(*) FROM leasehold_entry"), "0");
    let guard = soon("it can be had again", async {
        loop {
            if let Ok(guard) = mutex.lock().await {
                return guard;
            }
        }
    })
    .await;
    assert!(Some(guard.token()) > last);
}
