//! A Redis Cluster: every slot is served, and a replica takes over.

use leasehold_testbed::redis::{Cluster, Server};
use leasehold_testbed::until;

/// What `redis-cli -c` prints, which goes where the slot is.
fn via(node: &Server, words: &[&str]) -> String {
    let mut cli = std::process::Command::new("redis-cli");
    let output = cli.args(["-c", "-p", &node.port().to_string()]).args(words).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn every_slot_is_served_through_every_node() {
    let cluster = Cluster::shared();
    assert_eq!(cluster.urls().len(), 3);
    for node in cluster.nodes() {
        assert!(node.cli(&["CLUSTER", "INFO"]).contains("cluster_slots_ok:16384"));
    }
    for nth in 0..30 {
        let key = format!("key-{nth}");
        assert_eq!(via(&cluster.nodes()[nth % 3], &["SET", &key, &key]), "OK");
        assert_eq!(via(&cluster.nodes()[(nth + 1) % 3], &["GET", &key]), key);
    }
    let keys: Vec<usize> = cluster.nodes().iter().map(|node| node.cli(&["DBSIZE"]).parse().unwrap()).collect();
    assert!(keys.iter().all(|count| *count > 0), "they share the slots, and each has some: {keys:?}");
}

#[test]
fn a_replica_takes_over_when_its_master_is_killed() {
    let cluster = Cluster::start(3, 1).unwrap();
    let role = |node: &Server| node.cli(&["ROLE"]).lines().next().unwrap().to_owned();
    let roles: Vec<String> = cluster.nodes().iter().map(role).collect();
    assert_eq!(roles, ["master", "master", "master", "slave", "slave", "slave"]);
    cluster.kill(0);
    until("a replica is a master", || cluster.nodes()[3..].iter().any(|node| role(node) == "master")).unwrap();
    until("every slot is served again", || {
        cluster.nodes()[1..].iter().all(|node| node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok"))
    })
    .unwrap();
}
