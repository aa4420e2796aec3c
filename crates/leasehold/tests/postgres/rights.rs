//! What a user must be allowed, and what one is told who is not.

use std::pin::pin;

use futures_util::StreamExt as _;
use leasehold::{ErrorKind, Locks};
use leasehold_testbed::postgres::Server;

use crate::{connect, held_and_awaited, soon};

/// The statements of the page, for a user by the name of `locks`.
fn documented_rights() -> String {
    let page = include_str!("../../../../docs/backends/postgres.md");
    let rights: Vec<&str> = page.lines().filter(|line| line.starts_with("GRANT ")).collect();
    assert!(!rights.is_empty());
    rights.join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_rights_of_the_page_may_do_all_that_locks_need_and_make_no_tables() {
    let server = Server::start().unwrap();
    drop(connect(&server.url()).await);
    server.sql("CREATE ROLE locks LOGIN");
    server.sql(&documented_rights());
    let url = server.url_of("locks");
    let (locks, guard, waiter) = held_and_awaited(&url, crate::TTL).await;
    crate::hand_over(guard, waiter).await;
    let office = locks.election("office").unwrap();
    let mut leaders = pin!(office.observe());
    assert!(soon("the vacancy", leaders.next()).await.unwrap().unwrap().is_none());
    let mut leadership = office.campaign("a").await.unwrap();
    assert!(soon("the leader", leaders.next()).await.unwrap().unwrap().is_some());
    leadership.proclaim("b").await.unwrap();
    assert_eq!(locks.inspect_all().await.unwrap().len(), 1);
    leadership.resign().await.unwrap();
    let findings = locks.checkup().await.unwrap();
    assert!(findings.iter().any(|finding| finding.to_string().contains("may do what locks need")), "{findings:?}");
    let refused = Locks::builder(&format!("{url}?schema=other")).connect().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unusable);
    assert!(refused.to_string().contains("leasehold schema postgres"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_a_right_is_told_which_page_to_read() {
    let server = Server::start().unwrap();
    drop(connect(&server.url()).await);
    server.sql("CREATE ROLE locks LOGIN");
    server.sql(&documented_rights());
    server.sql("REVOKE DELETE ON leasehold.entry FROM locks");
    let locks = connect(&server.url_of("locks")).await;
    let findings = locks.checkup().await.unwrap();
    assert!(!findings.iter().any(|finding| finding.to_string().contains("may do what locks need")), "{findings:?}");
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let refused = guard.release().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unusable);
    assert!(refused.to_string().contains("docs/backends/postgres.md"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_isolation_level_under_which_lines_could_not_be_trusted_is_refused_by_name() {
    let server = Server::builder().setting("default_transaction_isolation", "repeatable read").start().unwrap();
    let locks = connect(&server.url()).await;
    let refused = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unusable);
    assert!(refused.to_string().contains("default_transaction_isolation"), "{refused}");
    assert_eq!(server.sql("SELECT count(*) FROM leasehold.entry"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_an_error_that_does_not_show_it() {
    let server = Server::builder().password("hunter2").start().unwrap();
    drop(connect(&server.url()).await);
    let wrong = server.url().replace("hunter2", "hunter3");
    let refused = Locks::builder(&wrong).connect().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unusable);
    let shown = format!("{refused} {refused:?}");
    assert!(shown.contains("password") && !shown.contains("hunter"), "{shown}");
}
