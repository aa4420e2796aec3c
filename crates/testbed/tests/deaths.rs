//! What is left when the process that started a server ends in a bad way, or cannot start one.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use leasehold_testbed::until;

/// Another process that has started a server, and the server's port.
fn start_with_a_server() -> (Child, u16) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_testbed"));
    let mut child = program.arg("redis").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let port = url.trim_end().rsplit(':').next().unwrap().parse().unwrap();
    (child, port)
}

fn answers(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[test]
fn a_server_dies_with_a_process_that_is_killed() {
    let (mut child, port) = start_with_a_server();
    assert!(answers(port));
    child.kill().unwrap();
    child.wait().unwrap();
    until("its server is gone", || !answers(port)).unwrap();
}

#[test]
fn a_server_ends_with_a_process_that_returns() {
    let (mut child, port) = start_with_a_server();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(!answers(port));
}

#[test]
fn what_is_not_installed_is_a_failure_that_says_how_to_get_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_testbed")).arg("redis").env("PATH", "/nowhere").output().unwrap();
    let talk = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert_eq!(talk, "testbed: redis-cli is missing; `cargo xtask setup` installs it\n");
}
