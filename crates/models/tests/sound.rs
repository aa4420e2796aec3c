//! The protocol as it is keeps its promises, in every order of steps within the bounds.
//!
//! Each search also has to come by what makes it worth something: all attempts granted, a second trip, a node re-admitted.

use leasehold_models::properties::{
    ALL_GRANTED, EXCLUSIVE, GROWING, HIGHEST, IN_ORDER, READMITTED, RENEWED, SECOND_TRIP, UNIQUE,
};
use leasehold_models::protocol::{Bounds, Protocol};
use leasehold_models::rules::{LateGrants, Planting, Rules};
use stateright::{Checker, Model};

/// Searches until there is nothing left, or until so many steps have been taken.
fn keeps<const N: usize, const A: usize>(protocol: Protocol<N, A>, steps_max: Option<usize>) {
    let mut search = protocol.checker().threads(2);
    if let Some(steps) = steps_max {
        search = search.target_state_count(steps);
    }
    let search = search.spawn_bfs().join();
    let (states, steps, depth) = (search.unique_state_count(), search.state_count(), search.max_depth());
    println!("{N} nodes, {A} attempts: {states} states, {steps} steps, {depth} deep");
    search.assert_properties();
}

const TOKENS: &[&str] = &[UNIQUE, GROWING, HIGHEST, ALL_GRANTED, SECOND_TRIP];
const TOKENS_AND_CRASH: &[&str] = &[UNIQUE, GROWING, HIGHEST, ALL_GRANTED, SECOND_TRIP, READMITTED];
const LOCKS: &[&str] = &[UNIQUE, GROWING, HIGHEST, IN_ORDER, EXCLUSIVE, ALL_GRANTED, SECOND_TRIP];
const LOCKS_AND_CRASH: &[&str] = &[UNIQUE, GROWING, HIGHEST, IN_ORDER, EXCLUSIVE, ALL_GRANTED, SECOND_TRIP, READMITTED];
const RENEWALS_AND_CRASH: &[&str] = &[UNIQUE, GROWING, HIGHEST, IN_ORDER, EXCLUSIVE, ALL_GRANTED, READMITTED, RENEWED];

#[test]
fn tokens_of_three_nodes_are_unique_and_grow_whatever_clocks_do() {
    keeps(Protocol::<3, 2> { rules: Rules::ALL, bounds: Bounds::CALM, promises: TOKENS }, None);
}

#[test]
fn tokens_of_three_nodes_are_unique_and_grow_although_a_request_is_doubled() {
    let bounds = Bounds { guess_max: 2, doubles: 1, ..Bounds::CALM };
    keeps(Protocol::<3, 2> { rules: Rules::ALL, bounds, promises: TOKENS }, None);
}

#[test]
fn tokens_of_three_nodes_are_unique_and_grow_although_fences_are_raised_by_those_who_do_not_have_the_lock() {
    let bounds = Bounds { strays: 2, ..Bounds::CALM };
    keeps(Protocol::<3, 2> { rules: Rules::ALL, bounds, promises: TOKENS }, None);
    let bounds = Bounds { guess_max: 2, strays: 1, ..Bounds::ONE_CRASH };
    keeps(Protocol::<3, 2> { rules: Rules::ALL, bounds, promises: TOKENS_AND_CRASH }, Some(6_000_000));
}

#[test]
fn tokens_of_three_nodes_are_unique_and_grow_although_one_forgets() {
    let bounds = Bounds { guess_max: 2, ..Bounds::ONE_CRASH };
    keeps(Protocol::<3, 2> { rules: Rules::ALL, bounds, promises: TOKENS_AND_CRASH }, None);
}

#[test]
fn tokens_of_three_nodes_are_unique_and_grow_although_two_clients_readmit_as_far_as_searched() {
    let bounds = Bounds { guess_max: 1, admitters: 2, ..Bounds::ONE_CRASH };
    keeps(Protocol::<3, 2> { rules: Rules::ALL, bounds, promises: TOKENS_AND_CRASH }, Some(6_000_000));
}

#[test]
fn tokens_of_three_nodes_are_unique_and_grow_although_nodes_forget_twice_as_far_as_searched() {
    let bounds = Bounds { guess_max: 1, crashes: 2, admitters: 2, ..Bounds::CALM };
    keeps(Protocol::<3, 2> { rules: Rules::ALL, bounds, promises: TOKENS_AND_CRASH }, Some(6_000_000));
}

#[test]
fn tokens_of_five_nodes_are_unique_and_grow_as_far_as_searched() {
    let bounds = Bounds { guess_max: 2, ..Bounds::CALM };
    keeps(Protocol::<5, 2> { rules: Rules::ALL, bounds, promises: TOKENS }, Some(6_000_000));
}

#[test]
fn one_of_three_attempts_holds_at_a_time_on_three_nodes() {
    let bounds = Bounds { guess_max: 1, ..Bounds::CALM };
    keeps(Protocol::<3, 3> { rules: Rules::WITH_SANE_CLOCKS, bounds, promises: LOCKS }, None);
}

#[test]
fn one_holds_at_a_time_on_three_nodes_although_one_forgets() {
    let rules = Rules::WITH_SANE_CLOCKS;
    keeps(Protocol::<3, 2> { rules, bounds: Bounds::ONE_CRASH, promises: LOCKS_AND_CRASH }, None);
}

#[test]
fn one_holds_at_a_time_through_renewals_although_one_forgets() {
    let bounds = Bounds { guess_max: 1, renewals: 1, ..Bounds::ONE_CRASH };
    keeps(Protocol::<3, 2> { rules: Rules::WITH_SANE_CLOCKS, bounds, promises: RENEWALS_AND_CRASH }, None);
}

#[test]
fn one_holds_at_a_time_on_five_nodes() {
    keeps(Protocol::<5, 2> { rules: Rules::WITH_SANE_CLOCKS, bounds: Bounds::CALM, promises: LOCKS }, None);
}

/// Not a rule of the protocol, but room that it leaves: a lock on a bare quorum survives the crash of one of its nodes if
/// a planted lock counts. It is safe because a blank node neither grants nor is planted on before it was re-admitted.
#[test]
fn a_planted_lock_may_count_towards_the_quorum_of_its_renewal() {
    let rules = Rules { planting: Planting::Counted, ..Rules::WITH_SANE_CLOCKS };
    let bounds = Bounds { guess_max: 1, renewals: 1, ..Bounds::ONE_CRASH };
    keeps(Protocol::<3, 2> { rules, bounds, promises: RENEWALS_AND_CRASH }, None);
}

/// More room: it is only *uncommitted* late grants that must not count.
#[test]
fn a_late_grant_may_count_once_it_is_committed() {
    let rules = Rules { late_grants: LateGrants::Committed, ..Rules::ALL };
    keeps(Protocol::<3, 2> { rules, bounds: Bounds::CALM, promises: TOKENS }, None);
}

/// A second line of defence: after the wait nobody is left to send a COMMIT of an earlier epoch that counts.
#[test]
fn the_epoch_of_a_commit_is_a_second_line_behind_the_wait() {
    let rules = Rules { epoch_test: false, ..Rules::ALL };
    let bounds = Bounds { guess_max: 1, ..Bounds::ONE_CRASH };
    keeps(Protocol::<3, 2> { rules, bounds, promises: TOKENS_AND_CRASH }, None);
}
