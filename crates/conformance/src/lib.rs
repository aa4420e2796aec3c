//! The behaviour that every leasehold store must show, as tests.
//!
//! A store of your own joins by saying how a client connects to it:
//!
//! ```
//! use std::sync::Arc;
//!
//! use futures_core::future::BoxFuture;
//! use leasehold::backend::{Backend, memory::Memory};
//! use leasehold::clock::Clock;
//! use leasehold_conformance::{Fixture, Time, conformance};
//!
//! struct MyStore(Memory);
//!
//! impl Fixture for MyStore {
//!     fn time(&self) -> Time {
//!         Time::Real
//!     }
//!
//!     fn connect(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
//!         Box::pin(async { Arc::new(self.0.clone()) as Arc<dyn Backend> })
//!     }
//! }
//!
//! conformance!(my_store, |_clock| MyStore(Memory::new()));
//! # fn main() {}
//! ```
//!
//! Each case is a test of its own, with a sentence for a name: `my_store::fairness::waiters_are_served_in_order`. Cases
//! choose by the store's [capabilities](leasehold::backend::Capabilities); what a store cannot do, it must refuse.
#![allow(clippy::unwrap_used, reason = "a case fails by panicking")]

pub mod cases;
mod faults;
mod history;
mod kind;
mod model;
mod world;

pub use faults::{Fault, Faults, Verb};
pub use history::History;
pub use kind::{AnyGuard, AnyLock, Kind};
pub use world::{Client, Fixture, RECHECK_MAX, Time, World, run};

/// Makes a module of that name with a test for every case. The fixture is made anew for each test by a function that
/// gets the test's clock.
#[macro_export]
macro_rules! conformance {
    ($module:ident, $fixture:expr) => {
        mod $module {
            use super::*;

            $crate::for_each_kind! { $fixture; exclusive:
                two_holders_never_overlap_under_contention
                second_contender_waits_until_the_first_leaves
                try_refuses_while_held_and_takes_when_free
                try_does_not_overtake_a_waiter
                lock_within_gives_up_in_time_and_leaves_no_entry
                lock_within_that_ends_during_a_look_is_busy_and_no_error
                lock_within_no_time_only_tries
                a_waiter_is_granted_within_its_limit
                a_lock_that_comes_free_between_the_last_look_and_the_limit_is_not_missed
                busy_says_who_holds_it_since_when_and_how_many_wait
                dropped_guard_releases
                release_hands_over_without_waiting_for_the_recheck
                leaving_twice_is_harmless_to_the_next_holder
                release_after_expiry_says_lost_and_frees_nobody_elses_lock
                the_first_grant_costs_one_request_and_a_release_one
                a_hand_over_costs_the_waiter_no_further_request_to_enter
            }
            $crate::for_each_case! { $fixture; rule:
                every_answer_is_the_one_that_the_rule_gives
            }
            $crate::for_each_case! { $fixture; yielding:
                a_holder_is_told_at_once_that_somebody_wants_its_lock
                a_wish_that_was_not_heard_comes_with_the_next_renewal
                a_wish_for_an_entry_that_has_left_says_so_and_hits_nobody
                an_eviction_is_told_at_once
            }
            $crate::for_each_case! { $fixture; fairness:
                waiters_are_served_in_order
                later_arrivals_never_overtake
                a_dead_waiter_does_not_block_the_line
                order_survives_a_waiter_in_the_middle_giving_up
                a_waiter_paused_past_its_places_lease_lines_up_again_and_is_served_at_last
                a_waiter_whose_place_the_store_forgot_lines_up_again_and_is_served_at_last
            }
            $crate::for_each_case! { $fixture; relay:
                a_lock_is_passed_on_to_the_next_task_before_the_store_knows
                what_was_passed_on_is_lost_with_the_lease_that_it_was_passed_on_by
                what_was_passed_on_can_be_given_back_before_the_store_knows
                a_lock_is_not_passed_on_past_another_client
                a_turn_that_is_passed_on_to_somebody_who_gives_up_goes_to_the_next
                leadership_is_not_passed_on_before_the_store_knows
                a_crowd_of_two_clients_takes_turns_without_a_loss
            }
            $crate::for_each_case! { $fixture; waiting:
                a_missed_wake_up_costs_at_most_one_recheck
                an_erroring_wake_up_costs_time_and_never_the_lock
                whoever_is_refused_listens_until_the_key_is_free
                a_place_is_kept_if_the_store_comes_back_before_its_lease_ends
                an_unreachable_store_is_an_error_after_a_bounded_time
                a_store_that_comes_back_within_two_attempts_time_is_not_given_up_on
                a_try_on_an_unreachable_store_is_an_error_and_not_busy
                one_failed_request_to_enter_is_repeated_and_leaves_no_ghost
                a_grant_that_is_read_too_late_is_an_error_and_never_a_guard
                a_grant_whose_answer_takes_too_long_is_given_up_and_leaves_no_entry
                without_a_limit_a_waiter_waits_longer_than_any_lease
            }
            $crate::for_each_case! { $fixture; cancelling:
                cancelling_after_any_number_of_polls_leaves_no_entry
                cancelling_a_waiter_after_any_number_of_polls_leaves_no_entry
                a_request_that_arrives_after_its_sender_gave_up_leaves_no_entry
                a_look_that_arrives_after_the_release_brings_no_entry_back
                dropping_a_release_still_releases
                a_departure_that_fails_is_repeated_until_it_succeeds
                close_waits_until_everything_dropped_has_left
                closed_locks_refuse_to_be_taken
                a_guard_stays_held_and_renewed_when_its_locks_are_closed
                a_guard_stays_held_when_its_locks_are_dropped
            }
            $crate::for_each_case! { $fixture; sharing:
                readers_share
                a_writer_excludes_readers_and_writers
                writer_is_not_overtaken_by_later_readers
                readers_behind_a_writer_get_in_together_when_it_leaves
                a_crashed_reader_does_not_block_the_writer_for_longer_than_its_lease
                a_write_lock_and_a_mutex_of_one_name_exclude_each_other
                writers_are_alone_under_contention_with_readers
            }
            $crate::for_each_case! { $fixture; permits:
                permits_are_never_over_committed_under_contention
                nobody_sleeps_beside_a_free_permit
                a_wide_claim_is_not_starved_by_narrow_ones
                permits_come_back_after_a_drop
                permits_come_back_after_a_crash
                a_permit_is_counted_once_though_its_answer_was_lost
                a_capacity_that_disagrees_is_refused_and_changes_nothing
                another_capacity_is_fine_once_the_line_is_empty
            }
            $crate::for_each_case! { $fixture; expiry:
                expiry_hands_over_to_the_next_and_not_before_the_holder_stopped_believing
                holder_stops_believing_before_the_store_forgets
                a_slow_answer_shortens_the_belief
                a_waiter_that_is_told_late_believes_no_longer_than_its_place_was_leased
                a_store_clock_that_is_much_too_fast_lets_beliefs_overlap_but_tokens_still_grow
                a_paused_holder_is_told_at_its_first_check_after_the_deadline
                a_cut_off_holder_is_told_at_its_deadline
                renewing_keeps_a_lock_past_many_leases
            }
            $crate::for_each_case! { $fixture; refusal:
                a_key_in_use_as_a_lock_is_refused_as_a_semaphore
                a_key_in_use_as_a_semaphore_is_refused_as_a_lock
                what_the_store_lacks_is_refused_at_once_by_name
            }
            $crate::for_each_case! { $fixture; renewal:
                a_held_lock_outlives_its_ttl_many_times_over
                locks_of_one_client_are_renewed_in_few_large_batches
                one_failed_renewal_is_a_doubt_and_not_a_loss
                a_lock_that_cannot_be_renewed_is_lost_at_its_deadline_and_no_sooner
                the_place_of_a_waiter_is_renewed_too
                a_blocked_runtime_does_not_starve_renewal
                a_released_lock_is_not_renewed_again
                a_renewal_that_arrives_after_the_release_brings_nothing_back
                a_renewal_counts_from_when_it_was_sent
                a_renewal_does_not_bring_back_a_lease_that_is_over_on_the_store
            }
            $crate::for_each_case! { $fixture; loss:
                a_lost_lock_is_never_held_again
                a_late_confirmation_does_not_revive_a_lost_lock
                an_eviction_is_noticed_no_later_than_the_next_renewal
                a_release_after_an_eviction_is_an_error
                a_loss_names_its_key_and_its_reason
                a_loss_is_told_without_any_answer_from_the_store
                work_under_a_lock_is_dropped_when_the_lock_is_lost
                work_given_to_with_is_dropped_when_the_lock_is_lost
                a_clock_that_jumped_past_the_deadline_is_a_loss_at_once
                a_step_of_wall_time_is_a_doubt_until_the_store_confirms
                work_that_ends_after_the_deadline_is_not_work_under_the_lock
            }
            $crate::for_each_case! { $fixture; tokens:
                token_grows_across_release
                token_grows_across_expiry
                token_grows_across_eviction
                token_grows_across_a_new_client
                tokens_grow_in_the_order_of_grants_under_contention
                shares_and_permits_have_no_token
                a_gate_refuses_the_write_of_a_holder_that_woke_up_too_late
            }
            $crate::for_each_case! { $fixture; unknown:
                an_entry_whose_reply_was_lost_is_taken_out_again
                cleaning_up_after_a_lost_reply_goes_on_until_it_is_confirmed
                an_id_of_unknown_fate_is_not_used_again
                a_waiter_keeps_its_place_through_a_lost_reply
                a_release_whose_reply_is_lost_says_so_and_frees_the_key
                no_answer_is_an_error_and_not_busy
            }
            $crate::for_each_case! { $fixture; election:
                one_candidate_leads_at_a_time
                the_next_candidate_leads_when_the_leader_resigns
                the_next_candidate_leads_when_the_leadership_is_dropped
                the_next_candidate_leads_when_the_leader_is_gone
                the_leader_is_named_with_its_value_and_its_term
                a_leader_proclaims_and_everybody_sees_it
                only_the_leader_can_proclaim
                an_observer_sees_every_leader_in_order
                an_observer_sees_a_vacancy
                an_observer_sees_that_a_leader_died
                an_observer_does_not_give_up_a_watch_that_works
                an_observer_survives_a_broken_watch
                an_observer_is_told_at_once_what_a_leader_proclaims
                a_value_that_is_too_long_is_refused_and_nothing_is_stored
            }
            $crate::for_each_case! { $fixture; reentrant:
                an_owner_enters_again_at_once_under_the_same_token
                another_owner_waits_even_under_the_same_name
                it_is_free_only_after_the_last_guard
                contending_tasks_of_one_owner_take_it_once
                a_try_does_not_wait_for_another_task_of_its_owner
                a_lost_lock_is_not_entered_again
                the_name_of_the_owner_is_seen_by_others
                what_an_owner_holds_on_one_store_it_does_not_hold_on_another
                a_store_that_does_not_answer_is_an_error_to_an_owner_too
            }
            $crate::for_each_case! { $fixture; all_of:
                one_busy_key_means_that_none_is_taken
                crossing_orders_do_not_deadlock
                one_deadline_counts_for_all_keys
                keys_are_released_in_reverse
                losing_one_key_is_losing_all_and_names_it
                losing_an_early_key_while_waiting_for_a_late_one_is_a_loss
                a_key_named_twice_counts_once
                no_keys_are_refused
                cancelling_midway_leaves_nothing
                a_fault_midway_leaves_nothing
            }
            $crate::for_each_case! { $fixture; inspect:
                a_line_shows_who_holds_and_who_waits_and_since_when
                a_line_shows_what_each_entry_claims
                pages_are_complete_and_in_order
                a_namespace_does_not_see_the_keys_of_another
                an_eviction_names_an_entry_and_tells_what_it_was
                an_evicted_waiter_that_is_alive_lines_up_again
                an_empty_line_is_not_shown
            }
            $crate::for_each_case! { $fixture; names:
                odd_names_are_different_locks_and_found_again_byte_for_byte
                odd_names_are_handed_over
            }
            $crate::for_each_case! { $fixture; input:
                an_empty_or_over_long_name_is_refused
                a_setting_out_of_its_range_is_refused_by_name
                permits_that_could_never_be_granted_are_refused
                an_election_value_that_is_too_long_is_refused
                a_key_in_use_as_another_kind_is_refused_and_unharmed
                an_unknown_url_is_refused_without_its_secret
                a_url_without_a_scheme_does_not_show_what_stands_in_its_place
            }
        }
    };
}

/// The cases of one file, each as a test.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_case {
    ($fixture:expr; $file:ident: $($case:ident)*) => {
        mod $file {
            #[allow(unused_imports, reason = "not every fixture expression names something")]
            use super::*;
            $(
                #[test]
                fn $case() {
                    $crate::run($fixture, |world| Box::pin($crate::cases::$file::$case(world)));
                }
            )*
        }
    };
}

/// The cases of one file, each as a test for every kind of lock that one holder has at a time.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_kind {
    ($fixture:expr; $file:ident: $($case:ident)*) => {
        $crate::for_each_kind! { @kind mutex Mutex $fixture; $file: $($case)* }
        $crate::for_each_kind! { @kind write_lock WriteLock $fixture; $file: $($case)* }
        $crate::for_each_kind! { @kind semaphore_of_one SemaphoreOfOne $fixture; $file: $($case)* }
    };
    (@kind $module:ident $kind:ident $fixture:expr; $file:ident: $($case:ident)*) => {
        mod $module {
            #[allow(unused_imports, reason = "not every fixture expression names something")]
            use super::*;
            $(
                #[test]
                fn $case() {
                    $crate::run($fixture, |world| {
                        Box::pin(async move {
                            let kind = $crate::Kind::$kind;
                            if kind.is_offered(&world).await {
                                $crate::cases::$file::$case(world, kind).await;
                            }
                        })
                    });
                }
            )*
        }
    };
}
