//! Each rule is needed: without it the search finds where the protocol fails.
//!
//! The same search that finds nothing wrong with all rules in place has to find something here. Each test prints how many
//! steps the shortest such course has, and takes them.

use leasehold_models::properties::{EXCLUSIVE, GROWING, HIGHEST, IN_ORDER, UNIQUE};
use leasehold_models::protocol::{Bounds, Protocol};
use leasehold_models::rules::{Admitting, Clocks, Collected, Collecting, LateGrants, Renewal, Restart, Rules};
use stateright::{Checker, HasDiscoveries, Model};

/// Fails unless each of the promises of the protocol is found to be broken.
fn breaks<const N: usize, const A: usize>(protocol: Protocol<N, A>) {
    for promise in protocol.promises {
        let protocol = Protocol { promises: std::slice::from_ref(promise), ..protocol };
        // One thread looks at the states in the order of their depth, so what it finds first is the shortest.
        let search = protocol.checker().finish_when(HasDiscoveries::AnyFailures).threads(1).spawn_bfs().join();
        let states = search.unique_state_count();
        let Some(course) = search.discovery(promise) else {
            panic!(
                "nothing was found against \"{promise}\" in {states} states: the search is blind, or the rule is not needed"
            )
        };
        let steps: Vec<_> = course.into_actions();
        println!("not so that {promise}, after {} steps ({states} states seen):", steps.len());
        for step in steps {
            println!("    {step:?}");
        }
    }
}

fn without_crash(rules: Rules, promises: &'static [&'static str]) {
    breaks(Protocol::<3, 2> { rules, bounds: Bounds::CALM, promises });
}

fn with_one_crash(rules: Rules, promises: &'static [&'static str]) {
    breaks(Protocol::<3, 2> { rules, bounds: Bounds::ONE_CRASH, promises });
}

#[test]
fn a_token_that_is_not_written_back_is_handed_out_twice() {
    without_crash(Rules { write_back: false, ..Rules::ALL }, &[UNIQUE, HIGHEST]);
}

#[test]
fn a_guess_that_is_not_written_is_handed_out_twice() {
    without_crash(Rules { guess_is_written: false, ..Rules::ALL }, &[UNIQUE, GROWING, HIGHEST]);
}

#[test]
fn a_guess_that_equals_the_fence_is_handed_out_twice() {
    without_crash(Rules { strict_guess: false, ..Rules::ALL }, &[UNIQUE, GROWING, HIGHEST]);
}

/// The owner's test stands before the strict one, unless a GRANT that comes twice gives the lock back to its owner.
#[test]
fn a_commit_that_equals_the_fence_is_handed_out_twice() {
    let rules = Rules { strict_commit: false, ..Rules::ALL };
    let bounds = Bounds { guess_max: 1, doubles: 2, ..Bounds::CALM };
    breaks(Protocol::<3, 2> { rules, bounds, promises: &[UNIQUE] });
}

#[test]
fn a_commit_on_a_lock_of_somebody_else_shuts_its_holder_out() {
    without_crash(Rules { owner_test: false, ..Rules::ALL }, &[HIGHEST]);
}

#[test]
fn a_commit_with_neither_test_is_handed_out_twice() {
    without_crash(Rules { owner_test: false, strict_commit: false, ..Rules::ALL }, &[UNIQUE, HIGHEST]);
}

#[test]
fn late_grants_that_count_hand_a_token_out_twice() {
    without_crash(Rules { late_grants: LateGrants::Counted, ..Rules::ALL }, &[UNIQUE, HIGHEST]);
}

#[test]
fn a_forgetful_node_that_votes_hands_a_token_out_twice() {
    with_one_crash(Rules { restart: Restart::Voting, ..Rules::ALL }, &[UNIQUE, GROWING]);
}

#[test]
fn a_node_that_returns_with_a_snapshot_hands_a_token_out_twice() {
    with_one_crash(Rules { restart: Restart::Snapshot, ..Rules::ALL }, &[UNIQUE, GROWING]);
}

#[test]
fn collecting_before_the_wait_hands_a_token_out_twice() {
    with_one_crash(Rules { collecting: Collecting::BeforeTheWait, ..Rules::ALL }, &[UNIQUE, GROWING]);
}

#[test]
fn collecting_without_a_wait_hands_a_token_out_twice() {
    with_one_crash(Rules { collecting: Collecting::WithoutAWait, ..Rules::ALL }, &[UNIQUE, GROWING]);
}

#[test]
fn collecting_from_fewer_than_a_quorum_hands_a_token_out_twice() {
    with_one_crash(Rules { collected: Collected::Fewer, ..Rules::ALL }, &[UNIQUE, GROWING]);
}

#[test]
fn collecting_from_blank_nodes_hands_a_token_out_twice() {
    let rules = Rules { collected: Collected::BlankOnesToo, ..Rules::ALL };
    let bounds = Bounds { guess_max: 1, crashes: 2, ..Bounds::ONE_CRASH };
    breaks(Protocol::<3, 2> { rules, bounds, promises: &[UNIQUE, GROWING] });
}

#[test]
fn a_second_admission_that_overwrites_the_first_hands_a_token_out_twice() {
    let rules = Rules { admitting: Admitting::AnyNode, ..Rules::ALL };
    let bounds = Bounds { guess_max: 1, admitters: 2, ..Bounds::ONE_CRASH };
    breaks(Protocol::<3, 2> { rules, bounds, promises: &[UNIQUE, GROWING] });
}

#[test]
fn an_admission_of_a_node_that_has_forgotten_once_more_hands_a_token_out_twice() {
    let rules = Rules { admitting: Admitting::AnyBlankNode, ..Rules::ALL };
    let bounds = Bounds { guess_max: 1, crashes: 2, admitters: 2, ..Bounds::CALM };
    breaks(Protocol::<3, 2> { rules, bounds, promises: &[UNIQUE, GROWING] });
}

#[test]
fn a_clock_that_jumps_lets_two_hold_and_a_late_answer_bring_a_lower_token() {
    without_crash(Rules { clocks: Clocks::Jumping, ..Rules::ALL }, &[EXCLUSIVE, IN_ORDER]);
}

#[test]
fn a_forgetful_node_that_votes_lets_two_hold() {
    with_one_crash(Rules { restart: Restart::Voting, ..Rules::WITH_SANE_CLOCKS }, &[EXCLUSIVE]);
}

#[test]
fn an_admission_without_a_wait_lets_two_hold() {
    with_one_crash(Rules { collecting: Collecting::WithoutAWait, ..Rules::WITH_SANE_CLOCKS }, &[EXCLUSIVE]);
}

#[test]
fn a_renewal_by_fewer_than_a_quorum_lets_two_hold() {
    let rules = Rules { renewal: Renewal::Fewer, ..Rules::WITH_SANE_CLOCKS };
    let bounds = Bounds { guess_max: 1, renewals: 1, ..Bounds::CALM };
    breaks(Protocol::<3, 2> { rules, bounds, promises: &[EXCLUSIVE] });
}
