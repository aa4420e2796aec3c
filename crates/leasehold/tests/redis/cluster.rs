//! Keys that are spread over the masters of a cluster.

use leasehold_testbed::redis::Cluster;

use crate::{connect, soon, until_waiting};

fn url(cluster: &Cluster) -> String {
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    format!("redis+cluster://{}", nodes.join(","))
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_lie_on_all_masters_and_are_handed_over_on_each() {
    let cluster = Cluster::start(3, 0).unwrap();
    let (one, other) = (connect(&url(&cluster)).await, connect(&url(&cluster)).await);
    let names: Vec<String> = (0..30).map(|nth| format!("k{nth}")).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(one.mutex(name).unwrap().lock().await.unwrap());
        assert!(other.mutex(name).unwrap().try_lock().await.unwrap().is_none(), "{name}");
    }
    for node in cluster.nodes() {
        let here = node.cli(&["KEYS", "lock:*"]);
        assert!(here.lines().count() > 0, "each has some: {here}");
    }
    assert_eq!(other.inspect_all().await.unwrap().len(), names.len());
    for (name, guard) in names.iter().zip(guards) {
        let mutex = other.mutex(name).unwrap();
        let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
        until_waiting(&one, name, 1).await.unwrap();
        guard.release().await.unwrap();
        soon("the waiter's turn", waiter).await.unwrap().release().await.unwrap();
    }
    assert_eq!(cluster.nodes()[0].cli(&["KEYS", "lock:*"]), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_with_braces_are_names_like_any_other() {
    let cluster = Cluster::start(3, 0).unwrap();
    let (one, other) = (connect(&url(&cluster)).await, connect(&url(&cluster)).await);
    let names = ["{a}", "{a}b", "{}", "}{", "{", "a{b}c{d}", "{{a}}", "{lock:a}:entries", "{lock:a}:tickets", "a"];
    for name in names {
        let readers = one.rw_lock(name).unwrap();
        let (first, second) = (readers.read().await.unwrap(), readers.read().await.unwrap());
        let writer = other.rw_lock(name).unwrap();
        let waiter = tokio::spawn(async move { writer.write().await.unwrap() });
        until_waiting(&other, name, 1).await.unwrap();
        first.release().await.unwrap();
        second.release().await.unwrap();
        let guard = soon("the writer's turn", waiter).await.unwrap();
        let seen = other.inspect_all().await.unwrap();
        assert_eq!(seen.iter().map(|view| view.key.name()).collect::<Vec<_>>(), [name.as_bytes()]);
        guard.release().await.unwrap();
    }
    let all = one.all_of(names).unwrap().lock().await.unwrap();
    assert_eq!(other.inspect_all().await.unwrap().len(), names.len());
    all.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_follows_its_slot_to_another_node() {
    let cluster = Cluster::start(3, 0).unwrap();
    let (one, other) = (connect(&url(&cluster)).await, connect(&url(&cluster)).await);
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    let mutex = other.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&one, "k", 1).await.unwrap();
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        cluster.nodes().iter().partition(|node| !node.cli(&["KEYS", "lock:k"]).is_empty());
    let (from, to) = (here[0], elsewhere[0]);
    let slot = from.cli(&["CLUSTER", "KEYSLOT", "lock:k"]);
    let (source, target) = (from.cli(&["CLUSTER", "MYID"]), to.cli(&["CLUSTER", "MYID"]));
    to.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
    from.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
    let keys = from.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
    let port = to.port().to_string();
    let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
    migrate.extend(keys.lines());
    assert_eq!(from.cli(&migrate), "OK");
    for node in [to, from] {
        node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
    }
    guard.check().unwrap();
    soon("leaving", guard.release()).await.unwrap();
    let guard = soon("the waiter's turn", waiter).await.unwrap();
    assert_eq!(to.cli(&["EXISTS", "lock:k"]), "1");
    guard.release().await.unwrap();
}
