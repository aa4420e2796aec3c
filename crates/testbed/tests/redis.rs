//! One Redis server: what it keeps, whom it lets in, and how it ends.

use std::net::{TcpListener, TcpStream};

use leasehold_testbed::redis::Server;
use leasehold_testbed::until;

fn is_alive(pid: u32) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap()
}

#[test]
fn a_server_answers_as_soon_as_it_has_started() {
    let server = Server::start().unwrap();
    assert_eq!(server.cli(&["PING"]), "PONG");
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
}

#[test]
fn each_server_is_another_and_the_shared_one_is_the_same() {
    let servers = [Server::start().unwrap(), Server::start().unwrap()];
    servers[0].cli(&["SET", "k", "0"]);
    assert_eq!(servers[1].cli(&["GET", "k"]), "");
    assert_eq!(Server::shared().pid(), Server::shared().pid());
}

#[test]
fn a_clock_of_its_own_can_be_set_while_a_server_runs() {
    let (server, other) = (Server::builder().own_clock().start().unwrap(), Server::start().unwrap());
    let lead = || -> i64 {
        let [own, machine] =
            [&server, &other].map(|server| server.cli(&["TIME"]).lines().next().unwrap().parse::<i64>().unwrap());
        own - machine
    };
    assert!(lead().abs() <= 1);
    server.cli(&["SET", "k", "v", "PX", "600000"]);
    server.set_clock_ahead(-3600);
    assert!((lead() + 3600).abs() <= 1);
    assert!(server.cli(&["PTTL", "k"]).parse::<i64>().unwrap() > 3_600_000);
    server.set_clock_ahead(3600);
    assert!((lead() - 3600).abs() <= 1);
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
    server.restart_empty().unwrap();
    assert!((lead() - 3600).abs() <= 1, "it keeps its clock");
}

#[test]
fn a_server_ends_when_it_is_dropped() {
    let server = Server::start().unwrap();
    let (pid, folder) = (server.pid().unwrap(), server.folder().to_owned());
    drop(server);
    assert!(!is_alive(pid) && !folder.exists());
}

#[test]
fn a_server_ends_when_the_test_panics() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let server = Server::start().unwrap();
        sender.send(server.pid().unwrap()).unwrap();
        panic!("as a failing test does");
    });
    let pid = receiver.recv().unwrap();
    assert!(test.join().is_err());
    assert!(!is_alive(pid));
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(|| Server::start().unwrap()).join().unwrap();
    assert_eq!(server.cli(&["PING"]), "PONG");
}

#[test]
fn a_server_that_was_stopped_ends_when_it_is_dropped() {
    let server = Server::start().unwrap();
    let pid = server.pid().unwrap();
    server.stop();
    drop(server);
    assert!(!is_alive(pid));
}

#[test]
fn a_killed_server_refuses_connections_until_it_restarts_on_its_port() {
    let server = Server::start().unwrap();
    let (pid, port) = (server.pid().unwrap(), server.port());
    server.kill();
    assert!(!is_alive(pid) && server.pid().is_none());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    server.restart().unwrap();
    assert_eq!((server.port(), server.cli(&["PING"])), (port, "PONG".into()));
    assert_ne!(server.pid(), Some(pid));
}

#[test]
fn a_port_that_somebody_took_is_told_from_other_failures() {
    let server = Server::start().unwrap();
    server.kill();
    let somebody = TcpListener::bind(("127.0.0.1", server.port())).unwrap();
    let failure = server.restart().unwrap_err().to_string();
    assert!(failure.contains("port taken"), "{failure}");
    drop(somebody);
    server.restart().unwrap();
}

#[test]
fn a_restart_loses_what_was_only_in_memory() {
    let server = Server::start().unwrap();
    server.cli(&["SET", "k", "v"]);
    server.restart().unwrap();
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
}

#[test]
fn a_persistent_server_that_is_killed_comes_back_with_its_data() {
    let server = Server::builder().persistent(true).start().unwrap();
    server.cli(&["SET", "k", "v"]);
    server.kill();
    server.restart().unwrap();
    assert_eq!(server.cli(&["GET", "k"]), "v");
    server.restart_empty().unwrap();
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
}

#[test]
fn a_persistent_server_that_is_shut_down_comes_back_with_its_data() {
    let server = Server::builder().persistent(true).start().unwrap();
    server.cli(&["SET", "k", "v"]);
    let pid = server.pid().unwrap();
    server.shutdown().unwrap();
    assert!(!is_alive(pid));
    server.restart().unwrap();
    assert_eq!(server.cli(&["GET", "k"]), "v");
}

#[test]
fn a_stopped_server_answers_once_it_goes_on() {
    let server = Server::start().unwrap();
    server.stop();
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| server.cli(&["PING"]));
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", server.pid().unwrap())).unwrap();
        until("the server is stopped", || state().contains(") T ")).unwrap();
        assert!(!answer.is_finished());
        server.cont();
        assert_eq!(answer.join().unwrap(), "PONG");
    });
}

#[test]
fn settings_reach_the_server_and_survive_its_restart() {
    let server = Server::builder().setting("maxmemory", "3mb").start().unwrap();
    let maxmemory = || server.cli(&["CONFIG", "GET", "maxmemory"]);
    assert_eq!(maxmemory(), "maxmemory\n3145728");
    server.restart().unwrap();
    assert_eq!(maxmemory(), "maxmemory\n3145728");
    server.restart_empty().unwrap();
    assert_eq!(maxmemory(), "maxmemory\n3145728");
}

#[test]
fn a_setting_that_the_server_refuses_is_told_with_its_log() {
    let failure = Server::builder().setting("no-such-setting", "1").start().unwrap_err().to_string();
    assert!(failure.contains("ended at once") && failure.contains("no-such-setting"), "{failure}");
}

#[test]
fn a_password_is_asked_of_others_and_is_part_of_the_url() {
    let server = Server::builder().password("a b/c").start().unwrap();
    assert_eq!(server.url(), format!("redis://default:a%20b%2Fc@127.0.0.1:{}", server.port()));
    let ping = |login: &[&str]| {
        let mut cli = std::process::Command::new("redis-cli");
        cli.args(["-p", &server.port().to_string()]).args(login).arg("PING");
        String::from_utf8(cli.output().unwrap().stdout).unwrap()
    };
    assert!(ping(&[]).starts_with("NOAUTH"));
    assert_eq!(ping(&["-u", &server.url()]), "PONG\n");
}

#[test]
fn a_user_may_do_what_its_rules_say() {
    let server = Server::builder().user("alice on >secret ~jobs:* +get +set").start().unwrap();
    let as_alice = |words: &[&str]| {
        let mut cli = std::process::Command::new("redis-cli");
        cli.args(["-p", &server.port().to_string(), "--user", "alice", "--pass", "secret", "--no-auth-warning"]);
        String::from_utf8(cli.args(words).output().unwrap().stdout).unwrap()
    };
    assert_eq!(as_alice(&["SET", "jobs:1", "v"]), "OK\n");
    assert!(as_alice(&["SET", "other", "v"]).starts_with("NOPERM"));
    assert!(as_alice(&["DEL", "jobs:1"]).starts_with("NOPERM"));
}
