//! ZooKeeper servers of the testbed.

use leasehold_testbed::until;
use leasehold_testbed::zookeeper::{Ensemble, Server};

#[test]
fn a_server_answers_and_comes_back_on_its_port() {
    let server = Server::start().unwrap();
    assert!(server.asked("srvr").contains("Mode: standalone"));
    let port = server.port();
    server.kill();
    assert_eq!(server.asked("srvr"), "");
    server.restart().unwrap();
    assert_eq!(server.port(), port);
    assert!(server.asked("srvr").contains("Mode: standalone"));
}

#[test]
fn a_member_that_is_cut_off_serves_nobody_and_follows_again_once_it_is_not() {
    let ensemble = Ensemble::start_isolable(3).unwrap();
    assert_eq!(ensemble.members().iter().filter(|member| member.leads()).count(), 1);
    let cut_off = (ensemble.leader() + 1) % 3;
    let follows = || ensemble.members()[cut_off].asked("srvr").contains("Mode: follower");
    assert!(follows());
    ensemble.isolate(cut_off);
    until("it serves nobody", || !follows()).unwrap();
    assert!(ensemble.members()[ensemble.leader()].leads());
    ensemble.heal(cut_off);
    until("it follows again", follows).unwrap();
}
