//! Every example, run as a test: each asserts what it claims.
#![expect(unreachable_pub, reason = "an example's `main` is public so that this file can call it")]

#[path = "../examples/all_of.rs"]
mod all_of;
#[path = "../examples/blocking.rs"]
mod blocking;
#[path = "../examples/election.rs"]
mod election;
#[path = "../examples/fencing.rs"]
mod fencing;
#[path = "../examples/losing.rs"]
mod losing;
#[path = "../examples/mutex.rs"]
mod mutex;
#[path = "../examples/reentrant.rs"]
mod reentrant;
#[path = "../examples/rw_lock.rs"]
mod rw_lock;
#[path = "../examples/semaphore.rs"]
mod semaphore;
#[path = "../examples/watching.rs"]
mod watching;

use leasehold::Result;

#[test]
fn additions_under_a_mutex_do_not_overwrite_each_other() -> Result<()> {
    mutex::main()
}

#[test]
fn a_later_reader_does_not_overtake_a_waiting_writer() -> Result<()> {
    rw_lock::main()
}

#[test]
fn no_more_calls_are_under_way_than_there_are_permits() -> Result<()> {
    semaphore::main()
}

#[test]
fn an_observer_sees_every_leader_and_what_it_proclaims() -> Result<()> {
    election::main()
}

#[test]
fn an_owner_takes_its_lock_again_under_the_same_token() -> Result<()> {
    reentrant::main()
}

#[test]
fn transfers_in_both_directions_do_not_wait_for_each_other_for_ever() -> Result<()> {
    all_of::main()
}

#[test]
fn a_holder_that_woke_up_too_late_is_refused_by_the_ledger() -> Result<()> {
    fencing::main()
}

#[test]
fn work_under_a_lost_lock_is_dropped_and_the_loss_is_final() -> Result<()> {
    losing::main()
}

#[test]
fn an_operator_sees_who_holds_and_who_waits_and_evicts_the_one_it_saw() -> Result<()> {
    watching::main()
}

#[test]
fn threads_without_a_runtime_take_turns_and_no_turn_is_interrupted() -> Result<()> {
    blocking::main()
}
