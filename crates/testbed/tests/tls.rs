//! A Redis server behind TLS.

use std::process::Command;

use leasehold_testbed::Tls;
use leasehold_testbed::redis::Server;

fn ping(server: &Server, options: &[&str]) -> String {
    let mut cli = Command::new("redis-cli");
    let output = cli.args(["-p", &server.port().to_string()]).args(options).arg("PING").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_server_with_a_certificate_is_believed_by_those_who_trust_its_authority() {
    let tls = Tls::new().unwrap();
    let server = Server::builder().tls(&tls).start().unwrap();
    let authority = tls.ca();
    drop(tls);
    assert_eq!(server.url(), format!("rediss://127.0.0.1:{}", server.port()));
    assert_eq!(server.cli(&["PING"]), "PONG");
    assert_eq!(ping(&server, &["--tls", "--sni", "localhost", "--cacert", authority.to_str().unwrap()]), "PONG\n");
    let stranger = Tls::new().unwrap();
    assert_eq!(ping(&server, &["--tls", "--cacert", stranger.ca().to_str().unwrap()]), "");
    assert_eq!(ping(&server, &[]), "", "it does not speak without TLS");
    server.restart().unwrap();
}

#[test]
fn a_server_may_ask_its_clients_for_a_certificate() {
    let tls = Tls::new().unwrap();
    let server = Server::builder().tls(&tls).setting("tls-auth-clients", "yes").start().unwrap();
    let (authority, certificate, key) = (tls.ca(), tls.certificate(), tls.key());
    let trusting = ["--tls", "--cacert", authority.to_str().unwrap()];
    let proven = ["--cert", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()];
    assert!(!ping(&server, &trusting).contains("PONG"));
    assert_eq!(ping(&server, &[&trusting[..], &proven].concat()), "PONG\n");
}
