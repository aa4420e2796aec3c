//! Encrypted connections.

use leasehold::ErrorKind;
use leasehold_testbed::Tls;
use leasehold_testbed::redis::Server;

use crate::connect;

#[tokio::test]
async fn a_server_is_trusted_by_its_authority_and_not_without_it() {
    let tls = Tls::new().unwrap();
    let server = Server::builder().tls(&tls).start().unwrap();
    let url = format!("rediss://127.0.0.1:{}", server.port());
    let known = format!("{url}?ca={}", tls.ca().display());
    let guard = connect(&known).await.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(server.cli(&["EXISTS", "lock:k"]), "1");
    guard.release().await.unwrap();

    let stranger = Tls::new().unwrap();
    for url in [url, format!("rediss://127.0.0.1:{}?ca={}", server.port(), stranger.ca().display())] {
        let refused = leasehold::connect(&url).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused:?}");
        let cause = std::error::Error::source(&refused).unwrap().to_string();
        assert!(cause.contains("certificate"), "{cause}");
    }
    leasehold::connect(&format!("redis://127.0.0.1:{}", server.port())).await.unwrap_err();
    let plain = Server::start().unwrap();
    let downgraded = format!("rediss://127.0.0.1:{}?ca={}", plain.port(), tls.ca().display());
    leasehold::connect(&downgraded).await.unwrap_err();
}

#[tokio::test]
async fn a_user_and_a_password_of_the_url_are_used_within() {
    let tls = Tls::new().unwrap();
    let user = "alice on >p@ss/w:rd ~* &* +@all";
    let server = Server::builder().tls(&tls).password("of-default").user(user).start().unwrap();
    let url = |login: &str| format!("rediss://{login}127.0.0.1:{}?ca={}", server.port(), tls.ca().display());
    for login in ["alice:p%40ss%2Fw%3Ard@", ":of-default@", "default:of-default@"] {
        let locks = connect(&url(login)).await;
        let guard = locks.mutex("k").unwrap().lock().await.unwrap();
        let name = login.split(':').next().filter(|name| !name.is_empty()).unwrap_or("default");
        assert!(server.cli(&["CLIENT", "LIST"]).contains(&format!("user={name} ")), "{login}");
        guard.release().await.unwrap();
    }
    for login in ["", "alice:wrong@", ":wrong@"] {
        let refused = leasehold::connect(&url(login)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unusable, "{refused:?}");
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_the_one_of_the_url() {
    let tls = Tls::new().unwrap();
    let server = Server::builder().tls(&tls).setting("tls-auth-clients", "yes").start().unwrap();
    let url = format!("rediss://127.0.0.1:{}?ca={}", server.port(), tls.ca().display());
    leasehold::connect(&url).await.unwrap_err();
    let url = format!("{url}&cert={}&key={}", tls.certificate().display(), tls.key().display());
    connect(&url).await.mutex("k").unwrap().lock().await.unwrap();
}
