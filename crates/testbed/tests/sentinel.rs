//! Sentinels: they name the master, and replace it.

use leasehold_testbed::redis::Sentinel;

#[test]
fn every_sentinel_names_the_master() {
    let sentinel = Sentinel::shared();
    assert_eq!(sentinel.sentinel_addresses().len(), 3);
    assert_eq!(sentinel.master_port(), sentinel.nodes()[0].port());
    assert!(sentinel.master().cli(&["ROLE"]).starts_with("master"));
}

#[test]
fn a_replica_becomes_the_master_when_the_master_is_killed() {
    let sentinel = Sentinel::builder().password("secret").start().unwrap();
    assert!(sentinel.master().url().contains(":secret@"));
    let old = sentinel.kill_master();
    let new = sentinel.wait_for_failover(old).unwrap();
    assert_ne!(old, new);
    assert_eq!(sentinel.master_port(), new);
    assert_eq!(sentinel.master().cli(&["SET", "k", "v"]), "OK");
}
