//! A little of every store, beside the bare store alone: that nothing takes many times as long as it should, or sends more than
//! it should. One store at a time, so that none is measured beside another.

use std::process::Command;
use std::sync::{Mutex, PoisonError};

static MACHINE: Mutex<()> = Mutex::new(());

fn stays_within_limits(store: &str) {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let ran = Command::new(env!("CARGO_BIN_EXE_leasehold-bench")).args(["--short", store]).output().unwrap();
    let (table, complaints) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{table}\n{complaints}");
    assert!(table.contains("requests for a lock and its release") || store == "sqlite", "{table}");
}

macro_rules! stores {
    ($($store:ident)*) => {
        $(mod $store {
            #[test]
            fn a_lock_takes_no_more_time_and_no_more_requests_than_it_may() {
                super::stays_within_limits(stringify!($store));
            }
        })*
    };
}

stores! { sqlite redis redlock etcd zookeeper postgres mysql }
