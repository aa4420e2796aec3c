//! Encrypted connections, and passwords that nobody sees.

use leasehold::ErrorKind;
use leasehold_testbed::Tls;
use leasehold_testbed::redis::Server;

const SECRET: &str = "s3cret-do-not-print";

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_trusted_by_their_authority_and_not_without_it() {
    let tls = Tls::new().unwrap();
    let servers: Vec<Server> = (0..3).map(|_| Server::builder().tls(&tls).start().unwrap()).collect();
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let url = format!("redlocks://{}?blank=accept", hosts.join(","));
    let locks = leasehold::connect(&format!("{url}&ca={}", tls.ca().display())).await.unwrap();
    locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
    let refused = leasehold::connect(&url).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused:?}");
    leasehold::connect(&url.replace("redlocks", "redlock")).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_refused_and_none_is_shown() {
    let servers: Vec<Server> = (0..3).map(|_| Server::builder().password("right").start().unwrap()).collect();
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let at = |login: &str| format!("redlock://{login}@{}?blank=accept", hosts.join(","));
    let refused = leasehold::connect(&at(&format!(":{SECRET}"))).await.unwrap_err();
    let cause = std::error::Error::source(&refused).map(ToString::to_string).unwrap_or_default();
    let said = format!("{refused} {refused:?} {cause}");
    assert!(!said.contains(SECRET), "{said}");
    assert!(cause.contains("refused the user or the password"), "{said}");
    let locks = leasehold::connect(&at(":right")).await.unwrap();
    assert!(!format!("{locks} {locks:?}").contains("right"));
    locks.mutex("k").unwrap().lock().await.unwrap();
}
