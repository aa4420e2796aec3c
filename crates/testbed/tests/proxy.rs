//! What the proxy does to connections, and that it undoes it.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold_testbed::redis::Server;
use leasehold_testbed::{PATIENCE, Proxy, until};

/// How long nothing must come where nothing should. A mistake would show in less than a millisecond.
const SILENCE: Duration = Duration::from_millis(150);

/// A server that answers with what it hears, and a proxy to it.
fn echo() -> Proxy {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            std::thread::spawn(move || std::io::copy(&mut &client, &mut &client));
        }
    });
    Proxy::start(address).unwrap()
}

fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).unwrap()
}

/// What comes within the limit: nothing at all, an end, or some bytes.
fn heard(mut client: &TcpStream, limit: Duration) -> Option<Vec<u8>> {
    let mut bytes = [0; 100];
    client.set_read_timeout(Some(limit)).unwrap();
    loop {
        match client.read(&mut bytes) {
            Ok(count) => return Some(bytes[..count].to_vec()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Some(Vec::new()),
        }
    }
}

fn say(mut client: &TcpStream, words: &str) {
    client.write_all(words.as_bytes()).unwrap();
}

fn is_answered(client: &TcpStream) -> bool {
    say(client, "hello");
    heard(client, PATIENCE) == Some(b"hello".to_vec())
}

fn has_ended(client: &TcpStream) -> bool {
    heard(client, PATIENCE) == Some(Vec::new())
}

#[test]
fn what_is_said_arrives_and_is_answered() {
    let proxy = echo();
    let clients = [connect(&proxy), connect(&proxy)];
    assert!(clients.iter().all(is_answered) && clients.iter().all(is_answered));
}

#[test]
fn a_client_that_does_not_listen_is_heard() {
    let server = Server::builder().setting("client-output-buffer-limit", "normal 0 0 0").start().unwrap();
    server.cli(&["SETRANGE", "long", "60000000", "x"]);
    let proxy = Proxy::start(("127.0.0.1", server.port())).unwrap();
    let client = connect(&proxy);
    say(&client, "GET long\r\n");
    assert_eq!(heard(&connect(&proxy), SILENCE * 4), None, "by now all buffers are full");
    say(&client, "INCR n\r\n");
    until("the second request has arrived", || server.cli(&["GET", "n"]) == "1").unwrap();
}

#[test]
fn who_hangs_up_is_heard_on_the_other_side() {
    let proxy = echo();
    let client = connect(&proxy);
    say(&client, "last words");
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(heard(&client, PATIENCE), Some(b"last words".to_vec()));
    assert!(has_ended(&client));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the proxy lives in real time; that it took too long is no failure")]
fn a_delay_holds_back_what_is_said_and_loses_nothing() {
    let proxy = echo();
    let client = connect(&proxy);
    assert!(is_answered(&client));
    proxy.delay(SILENCE);
    let said = Instant::now();
    say(&client, "late");
    assert_eq!(heard(&client, PATIENCE), Some(b"late".to_vec()));
    assert!(said.elapsed() >= SILENCE * 2, "it takes its time in both directions");
    proxy.heal();
    assert!(is_answered(&client));
}

#[test]
fn a_black_hole_accepts_and_answers_nobody_until_it_is_healed() {
    let proxy = echo();
    let early = connect(&proxy);
    assert!(is_answered(&early));
    proxy.blackhole();
    let late = connect(&proxy);
    say(&early, "hello?");
    say(&late, "hello?");
    assert_eq!((heard(&early, SILENCE), heard(&late, SILENCE)), (None, None), "neither words nor an end");
    proxy.heal();
    assert!(has_ended(&early) && has_ended(&late), "a connection does not go on behind a hole");
    assert!(is_answered(&connect(&proxy)));
}

#[test]
fn a_connection_that_lost_nothing_in_a_black_hole_goes_on() {
    let proxy = echo();
    let client = connect(&proxy);
    assert!(is_answered(&client));
    proxy.blackhole();
    proxy.heal();
    assert!(is_answered(&client));
}

#[test]
fn a_black_hole_hides_the_death_of_the_server() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(("127.0.0.1", server.port())).unwrap();
    let client = connect(&proxy);
    say(&client, "PING\r\n");
    assert_eq!(heard(&client, PATIENCE), Some(b"+PONG\r\n".to_vec()));
    proxy.blackhole();
    server.kill();
    assert_eq!(heard(&client, SILENCE), None);
    proxy.heal();
    assert!(has_ended(&client));
}

#[test]
fn a_cut_closes_what_is_open_and_nothing_else() {
    let proxy = echo();
    let clients = [connect(&proxy), connect(&proxy)];
    assert!(clients.iter().all(is_answered));
    proxy.cut();
    assert!(clients.iter().all(has_ended));
    assert!(is_answered(&connect(&proxy)));
}

#[test]
fn a_refusal_meets_new_connections_only() {
    let proxy = echo();
    let early = connect(&proxy);
    assert!(is_answered(&early));
    proxy.refuse();
    let refused = TcpStream::connect(proxy.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert!(is_answered(&early));
    proxy.heal();
    assert!(is_answered(&connect(&proxy)));
}

#[test]
fn a_refusal_is_one_even_while_other_processes_are_started() {
    let proxy = echo();
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| {
            for _ in 0..200 {
                Command::new("true").status().unwrap();
            }
        });
        while !starting.is_finished() {
            proxy.refuse();
            assert!(TcpStream::connect(proxy.address()).is_err());
            proxy.heal();
        }
    });
}

#[test]
fn a_dropped_reply_leaves_the_client_in_doubt_and_the_server_changed() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(("127.0.0.1", server.port())).unwrap();
    let idle = connect(&proxy);
    let listener = connect(&proxy);
    say(&listener, "SUBSCRIBE news\r\n");
    assert!(heard(&listener, PATIENCE).unwrap().ends_with(b":1\r\n"));
    for count in 1..=2 {
        proxy.drop_replies(1);
        server.cli(&["PUBLISH", "news", "none"]);
        assert!(heard(&listener, PATIENCE).unwrap().ends_with(b"none\r\n"), "what nobody asked for is no reply");
        let client = connect(&proxy);
        say(&client, "INCR n\r\n");
        assert!(has_ended(&client), "it hears an end, and no answer");
        assert_eq!(server.cli(&["GET", "n"]), count.to_string());
    }
    say(&idle, "INCR n\r\n");
    assert_eq!(heard(&idle, PATIENCE), Some(b":3\r\n".to_vec()), "who had asked nothing is not cut");
}

#[test]
fn a_target_may_come_and_go() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(("127.0.0.1", server.port())).unwrap();
    server.kill();
    assert!(has_ended(&connect(&proxy)));
    server.restart().unwrap();
    let client = connect(&proxy);
    say(&client, "PING\r\n");
    assert_eq!(heard(&client, PATIENCE), Some(b"+PONG\r\n".to_vec()));
}

#[test]
fn a_dropped_proxy_leaves_no_connection() {
    let proxy = echo();
    let client = connect(&proxy);
    assert!(is_answered(&client));
    let address = proxy.address();
    proxy.blackhole();
    drop(proxy);
    assert!(has_ended(&client));
    until("nobody listens", || TcpStream::connect(address).is_err()).unwrap();
}
