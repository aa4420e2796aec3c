//! An etcd server for tests, and `etcdctl`, which locks beside us.

use crate::sh;

/// What of it is missing. The server's package may start a service; tests do not use it.
pub(super) fn packages() -> Vec<&'static str> {
    let missing = |(program, _): &(&str, &str)| sh::find(program).is_none();
    [("etcd", "etcd-server"), ("etcdctl", "etcd-client")]
        .into_iter()
        .filter(missing)
        .map(|(_, package)| package)
        .collect()
}
