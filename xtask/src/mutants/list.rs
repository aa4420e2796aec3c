//! The mutants: mistakes that lock libraries have been found to make, and some that this one could.

use super::{Mutant, Suite};

/// The library's own unit tests.
const UNIT: Suite = Suite { package: "crates/leasehold", target: "--package leasehold --lib", interleaved: false };
/// The races of guards, keeper and store.
const RACES: Suite = Suite { interleaved: true, ..UNIT };
/// The conformance suite on the store in memory. Its cases in virtual time take milliseconds.
const MEMORY: Suite = Suite {
    package: "crates/conformance",
    target: "--package leasehold-conformance --test memory",
    interleaved: false,
};

/// What a quorum decides.
const QUORUM: Suite = Suite { target: "--package leasehold --lib --features redis,tls", ..UNIT };
/// A majority of real Redis servers.
const REDLOCK: Suite = Suite { target: "--package leasehold --test redlock --features redis,tls", ..UNIT };

pub(super) const MUTANTS: &[Mutant] = &[
    // When to stop believing.
    Mutant {
        name: "deadline_counted_from_the_reply",
        broken: "A grant is believed in from when its answer came, while the store has counted since it was asked.",
        file: "crates/leasehold/src/acquire.rs",
        find: "let hold = self.hold_until(&lease, sent_at);",
        replace: "let hold = self.hold_until(&lease, client.now());",
        suite: MEMORY,
        tests: &["memory::waiting::a_grant_that_is_read_too_late_is_an_error_and_never_a_guard"],
    },
    Mutant {
        name: "no_allowance_for_drift",
        broken: "A lease is believed in to its last nanosecond, as if both clocks ran at the same rate.",
        file: "crates/leasehold/src/lease/deadline.rs",
        find: "sent_at.after((ttl - ttl / 100).saturating_sub(ROUNDING))",
        replace: "sent_at.after(ttl)",
        suite: MEMORY,
        tests: &["memory::expiry::holder_stops_believing_before_the_store_forgets"],
    },
    Mutant {
        name: "check_reads_a_flag",
        broken: "A guard is asked for its state and repeats what the keeper last noted, whatever the clock says.",
        file: "crates/leasehold/src/guard.rs",
        find: "self.hold.state(self.client.now())",
        replace: "self.hold.state(crate::clock::Moment::from_nanos(0))",
        suite: MEMORY,
        tests: &["memory::expiry::a_paused_holder_is_told_at_its_first_check_after_the_deadline", "memory::loss::a_clock_that_jumped_past_the_deadline_is_a_loss_at_once"],
    },
    Mutant {
        name: "late_grant_is_returned",
        broken: "A grant whose answer took most of its lease is returned as a guard.",
        file: "crates/leasehold/src/acquire.rs",
        find: "if hold.remaining(client.now()) < deadline::least_useful(lease.ttl) {",
        replace: "if false {",
        suite: MEMORY,
        tests: &["memory::waiting::a_grant_that_is_read_too_late_is_an_error_and_never_a_guard"],
    },
    Mutant {
        name: "release_of_a_lost_lock_is_ok",
        broken: "Releasing a lock that was lost meanwhile says that all went well.",
        file: "crates/leasehold/src/guard.rs",
        find: "(Err(loss), _) => Err(self.lost_error(loss)),",
        replace: "(Err(_), _) => Ok(()),",
        suite: MEMORY,
        tests: &["memory::mutex::release_after_expiry_says_lost_and_frees_nobody_elses_lock"],
    },
    // Renewing.
    Mutant {
        name: "keeper_on_the_callers_runtime",
        broken: "Leases are renewed on the runtime of whoever made the locks, which may be blocked.",
        file: "crates/leasehold/src/lease/driver.rs",
        find: "if clock.follows_runtime() {",
        replace: "if clock.follows_runtime() || Handle::try_current().is_ok() {",
        suite: MEMORY,
        tests: &["memory_in_real_time::renewal::a_blocked_runtime_does_not_starve_renewal"],
    },
    Mutant {
        name: "failed_renewal_is_a_loss",
        broken: "A lock is lost as soon as one renewal fails, with most of its lease left.",
        file: "crates/leasehold/src/lease/agenda.rs",
        find: "                hold.doubt();\n                hold.deadline()",
        replace: "                hold.lose(Loss::Gone);\n                hold.deadline()",
        suite: MEMORY,
        tests: &["memory::renewal::one_failed_renewal_is_a_doubt_and_not_a_loss"],
    },
    Mutant {
        name: "failed_renewal_is_the_last",
        broken: "One renewal that fails ends the renewing of that lease.",
        file: "crates/leasehold/src/lease/agenda.rs",
        find: "hold.deadline().map(|deadline| now.after(deadline::retry_in(hold.ttl(), kept.failures)).min(deadline))",
        replace: "hold.deadline()",
        suite: MEMORY,
        tests: &["memory::renewal::one_failed_renewal_is_a_doubt_and_not_a_loss"],
    },
    Mutant {
        name: "eviction_is_only_doubt",
        broken: "The store says that an entry is gone, and its holder believes in it until the deadline.",
        file: "crates/leasehold/src/lease/agenda.rs",
        find: "                hold.lose(Loss::Gone);\n                None",
        replace: "                hold.doubt();\n                hold.deadline()",
        suite: MEMORY,
        tests: &["memory::loss::an_eviction_is_noticed_no_later_than_the_next_renewal"],
    },
    Mutant {
        name: "released_lease_is_still_kept",
        broken: "A release does not stop the renewals.",
        file: "crates/leasehold/src/guard.rs",
        find: "self.client.forget(&self.hold);",
        replace: "",
        suite: MEMORY,
        tests: &["memory::renewal::a_released_lock_is_not_renewed_again"],
    },
    Mutant {
        name: "renewals_go_one_by_one",
        broken: "Every lease is renewed by a request of its own.",
        file: "crates/leasehold/src/lease/keeper.rs",
        find: "const BATCH_MAX: usize = 1000;",
        replace: "const BATCH_MAX: usize = 1;",
        suite: MEMORY,
        tests: &["memory::renewal::locks_of_one_client_are_renewed_in_few_large_batches"],
    },
    Mutant {
        name: "stepped_wall_clock_goes_unnoticed",
        broken: "Wall time moves against boot time, and no lease is doubted.",
        file: "crates/leasehold/src/lease/keeper.rs",
        find: "agenda.doubt_all(now);",
        replace: "",
        suite: MEMORY,
        tests: &["memory::loss::a_step_of_wall_time_is_a_doubt_until_the_store_confirms"],
    },
    Mutant {
        name: "the_end_is_not_final",
        broken: "What was said to be lost or released can be extended.",
        file: "crates/leasehold/src/lease/hold.rs",
        find: "if word < FINAL { change(word) } else { None }",
        replace: "change(if word < FINAL { word } else { 0 })",
        suite: RACES,
        tests: &["interleavings::what_was_once_said_to_be_lost_is_never_held_again"],
    },
    Mutant {
        name: "renewal_makes_a_new_entry",
        broken: "A renewal that finds no entry makes one, and a released lock comes back.",
        file: "crates/leasehold/src/backend/memory.rs",
        find: "            None => Renewal::Lost,
",
        replace: "            None => {
                let ticket = Ticket(self.shared.last_ticket.fetch_add(1, Relaxed) + 1);
                let (id, claim, note) = (place.entry, Claim::Exclusive, Note::default());
                let expires_at = now.after(lease.ttl);
                let (client, yield_asked) = (self.client, false);
                let entry = Entry { id, client, ticket, claim, note, entered_at: now, expires_at, yield_asked, version: 0, waker: None };
                state.join(&place.key, entry);
                Renewal::Renewed { ttl: lease.ttl, yield_asked: false }
            }
",
        suite: RACES,
        tests: &["interleavings::a_renewal_racing_a_release_brings_nothing_back"],
    },
    Mutant {
        name: "deadline_waits_for_the_answer",
        broken: "While a renewal is under way nobody watches the deadline.",
        file: "crates/leasehold/src/lease/agenda.rs",
        find: "            due.renew.push(kept.hold.clone());
            self.place(kept, deadline);",
        replace: "            due.renew.push(kept.hold.clone());
            self.place(kept, Moment::FAR);",
        suite: MEMORY,
        tests: &["memory::loss::a_loss_is_told_without_any_answer_from_the_store"],
    },
    // Leaving.
    Mutant {
        name: "leave_without_owner_check",
        broken: "A departure takes the first entry out of its line, whoever's it is.",
        file: "crates/leasehold/src/backend/memory.rs",
        find: "let Some((line, at)) = state.find(place) else { return Departure::WasGone };",
        replace: "let Some(line) = state.lines.get_mut(&place.key) else { return Departure::WasGone };\n            let at = 0;",
        suite: MEMORY,
        tests: &["memory::mutex::leaving_twice_is_harmless_to_the_next_holder", "memory::fairness::order_survives_a_waiter_in_the_middle_giving_up"],
    },
    Mutant {
        name: "dropped_guard_stays",
        broken: "Dropping a guard leaves its entry in the line.",
        file: "crates/leasehold/src/guard.rs",
        find: "self.client.part_from(self.hold.place.clone(), None, false);",
        replace: "",
        suite: MEMORY,
        tests: &["memory::mutex::dropped_guard_releases"],
    },
    Mutant {
        name: "cancelled_attempt_stays",
        broken: "Dropping the future of an attempt leaves its entry in the line.",
        file: "crates/leasehold/src/acquire.rs",
        find: "    fn drop(&mut self) {\n        self.leave();",
        replace: "    fn drop(&mut self) {",
        suite: MEMORY,
        tests: &["memory::cancelling::cancelling_after_any_number_of_polls_leaves_no_entry", "memory::cancelling::cancelling_a_waiter_after_any_number_of_polls_leaves_no_entry"],
    },
    Mutant {
        name: "unanswered_request_counts_as_not_made",
        broken: "After an unknown outcome the entry is taken to be nowhere, and nobody takes it out of the line.",
        file: "crates/leasehold/src/acquire.rs",
        find: "if self.trace == Trace::Unknown {\n",
        replace: "if self.trace == Trace::Unknown {\n            self.trace = Trace::None;\n",
        suite: MEMORY,
        tests: &["memory::permits::a_permit_is_counted_once_though_its_answer_was_lost", "memory::unknown::an_id_of_unknown_fate_is_not_used_again"],
    },
    Mutant {
        name: "departure_is_tried_once",
        broken: "A departure that the store did not confirm is not tried again.",
        file: "crates/leasehold/src/lease/parting.rs",
        find: "Some(Err(error)) => last_error = Some(error),",
        replace: "Some(Err(_)) => return,",
        suite: MEMORY,
        tests: &["memory::cancelling::a_departure_that_fails_is_repeated_until_it_succeeds"],
    },
    Mutant {
        name: "late_request_is_not_awaited",
        broken: "A departure overtakes the request to enter that is still under way, whose entry then belongs to nobody.",
        file: "crates/leasehold/src/lease/parting.rs",
        find: "if let Some(entering) = entering {",
        replace: "if let Some(entering) = entering.filter(|_| false) {",
        suite: MEMORY,
        tests: &["memory::cancelling::a_request_that_arrives_after_its_sender_gave_up_leaves_no_entry"],
    },
    Mutant {
        name: "entry_id_is_used_again",
        broken: "After an unknown outcome the next try goes under the id that is being cleaned up.",
        file: "crates/leasehold/src/acquire.rs",
        find: "self.place.entry = self.client.chance.entry();",
        replace: "",
        suite: MEMORY,
        tests: &["memory::unknown::an_id_of_unknown_fate_is_not_used_again"],
    },
    // Waiting.
    Mutant {
        name: "change_before_the_subscription_is_missed",
        broken: "A waiter hears of changes since it subscribed and not since it looked.",
        file: "crates/leasehold/src/backend/memory.rs",
        find: "Box::pin(poll_fn(|cx| self.poll_changed(place, *seen, cx.waker()).map(Ok)))",
        replace: "let mut since = None;
        Box::pin(poll_fn(move |cx| {
            let current = || {
                self.at(&place.key, |state, _| state.find(place).map_or(*seen, |(line, at)| Version(line.entries[at].version)))
            };
            self.poll_changed(place, *since.get_or_insert_with(current), cx.waker()).map(Ok)
        }))",
        suite: RACES,
        tests: &["interleavings::a_release_between_a_waiters_look_and_its_sleep_wakes_it"],
    },
    Mutant {
        name: "nobody_is_woken",
        broken: "A departure wakes nobody; the next in line finds out when it looks again.",
        file: "crates/leasehold/src/backend/memory.rs",
        find: "waker.wake();",
        replace: "drop(waker);",
        suite: MEMORY,
        tests: &["memory::mutex::release_hands_over_without_waiting_for_the_recheck"],
    },
    Mutant {
        name: "waiter_never_looks_again",
        broken: "A waiter relies on being woken, and a wake-up that is lost costs it the lock.",
        file: "crates/leasehold/src/acquire.rs",
        find: "look_at.min(give_up_at.unwrap_or(Moment::FAR))",
        replace: "give_up_at.unwrap_or(Moment::FAR)",
        suite: MEMORY,
        tests: &["memory::waiting::a_missed_wake_up_costs_at_most_one_recheck"],
    },
    Mutant {
        name: "dead_waiter_blocks_the_line",
        broken: "A place in line has no lease to speak of.",
        file: "crates/leasehold/src/backend/memory.rs",
        find: "else { terms.waiting };",
        replace: "else { terms.waiting * 1000 };",
        suite: MEMORY,
        tests: &["memory::fairness::a_dead_waiter_does_not_block_the_line"],
    },
    Mutant {
        name: "place_in_line_is_not_renewed",
        broken: "A waiter has no lease that the keeper knows of, and loses its place between two looks.",
        file: "crates/leasehold/src/acquire.rs",
        find: "self.hold_until(&lease, sent_at);
                }
                Ok(Entered::Waiting",
        replace: "let _ = lease;
                }
                Ok(Entered::Waiting",
        suite: MEMORY,
        tests: &["memory::renewal::the_place_of_a_waiter_is_renewed_too"],
    },
    Mutant {
        name: "expiry_ahead_is_not_awaited",
        broken: "A waiter does not look again when a lease ahead of it runs out, which nobody announces.",
        file: "crates/leasehold/src/queue.rs",
        find: ".min(shortest_lease_ahead)",
        replace: "",
        suite: UNIT,
        tests: &["queue::tests::a_waiter_looks_again_when_a_lease_ahead_runs_out"],
    },
    Mutant {
        name: "whoever_fits_goes_ahead",
        broken: "Late readers overtake a waiting writer, and narrow permits a wide one.",
        file: "crates/leasehold/src/backend/memory.rs",
        find: "line.entries.push(entry);",
        replace: "let beside = line.weights().take(line.holders).chain([entry.claim.weight()]);
        let fits = queue::holders(line.capacity, beside) > line.holders;
        let at = if fits { line.holders } else { line.entries.len() };
        line.entries.insert(at, entry);",
        suite: MEMORY,
        tests: &["memory::sharing::writer_is_not_overtaken_by_later_readers"],
    },
    Mutant {
        name: "last_come_first_served",
        broken: "Whoever arrives goes to the head of the line.",
        file: "crates/leasehold/src/backend/memory.rs",
        find: "line.entries.push(entry);",
        replace: "line.entries.insert(line.holders, entry);",
        suite: MEMORY,
        tests: &["memory::fairness::waiters_are_served_in_order", "memory::fairness::later_arrivals_never_overtake"],
    },
    // Tokens and capacity.
    Mutant {
        name: "tokens_begin_again",
        broken: "Tickets start anew once a line was deserted, and an old token passes for a new one.",
        file: "crates/leasehold/src/backend/memory.rs",
        find: "let ticket = Ticket(self.shared.last_ticket.fetch_add(1, Relaxed) + 1);",
        replace: "if !state.lines.contains_key(&place.key) {
                    self.shared.last_ticket.store(0, Relaxed);
                }
                let ticket = Ticket(self.shared.last_ticket.fetch_add(1, Relaxed) + 1);",
        suite: MEMORY,
        tests: &["memory::tokens::token_grows_across_release", "memory::tokens::token_grows_across_a_new_client"],
    },
    Mutant {
        name: "gate_forgets",
        broken: "A gate lets the token of a holder pass that woke up too late.",
        file: "crates/leasehold/src/fence.rs",
        find: "self.highest.fetch_max(token.get(), Ordering::SeqCst);",
        replace: "self.highest.swap(token.get(), Ordering::SeqCst).min(token.get());",
        suite: UNIT,
        tests: &["fence::tests::a_gate_refuses_a_token_lower_than_the_highest_seen_and_accepts_an_equal_one"],
    },
    Mutant {
        name: "capacity_is_what_anybody_says",
        broken: "A key in use with three permits takes claims on another number.",
        file: "crates/leasehold/src/backend/memory.rs",
        find: "line.capacity.admits(*claim, &place.key)?;",
        replace: "",
        suite: MEMORY,
        tests: &["memory::permits::a_capacity_that_disagrees_is_refused_and_changes_nothing"],
    },
    // Primitives.
    Mutant {
        name: "re_entry_takes_the_lock_anew",
        broken: "An owner that has the lock waits for it like anybody else.",
        file: "crates/leasehold/src/primitive/reentrant.rs",
        find: ".filter(|guard| guard.check().is_ok())",
        replace: ".filter(|_| false)",
        suite: MEMORY,
        tests: &["memory::reentrant::an_owner_enters_again_at_once_under_the_same_token"],
    },
    Mutant {
        name: "lost_lock_is_re_entered",
        broken: "An owner re-enters a lock that it has lost, with a stale token.",
        file: "crates/leasehold/src/primitive/reentrant.rs",
        find: ".filter(|guard| guard.check().is_ok())",
        replace: "",
        suite: MEMORY,
        tests: &["memory::reentrant::a_lost_lock_is_not_entered_again"],
    },
    Mutant {
        name: "all_of_takes_keys_as_named",
        broken: "Two callers who name the same keys in different orders wait for each other.",
        file: "crates/leasehold/src/primitive/multi.rs",
        find: "accesses.sort_unstable_by(|a, b| a.key().cmp(b.key()));",
        replace: "",
        suite: MEMORY,
        tests: &["memory::all_of::crossing_orders_do_not_deadlock"],
    },
    Mutant {
        name: "all_of_keeps_what_it_got",
        broken: "When the last key is busy, those taken before it stay taken.",
        file: "crates/leasehold/src/primitive/multi.rs",
        find: "Attempt::Busy(busy) => return Ok(Attempt::Busy(busy)),",
        replace: "Attempt::Busy(busy) => {\n                    std::mem::forget(all);\n                    return Ok(Attempt::Busy(busy));\n                }",
        suite: MEMORY,
        tests: &["memory::all_of::one_busy_key_means_that_none_is_taken"],
    },
    Mutant {
        name: "all_of_waits_anew_for_each_key",
        broken: "The limit counts for each key and not for all of them.",
        file: "crates/leasehold/src/primitive/multi.rs",
        find: "let left = give_up_at.map(|at| timer.now().until(at));",
        replace: "let left = give_up_at.and(limit);",
        suite: MEMORY,
        tests: &["memory::all_of::one_deadline_counts_for_all_keys"],
    },
    Mutant {
        name: "dead_leader_is_still_observed",
        broken: "An observer waits to be told that the leader's lease ran out, and nobody tells it.",
        file: "crates/leasehold/src/primitive/election.rs",
        find: "self.look_in = lease_left(&view);",
        replace: "self.look_in = None;",
        suite: MEMORY,
        tests: &["memory::election::an_observer_sees_that_a_leader_died"],
    },
    Mutant {
        name: "renewal_counted_from_the_reply",
        broken: "A renewal is believed in from when its answer came.",
        file: "crates/leasehold/src/lease/agenda.rs",
        find: "hold.extend(now, deadline::believe_until(sent_at, *ttl))",
        replace: "hold.extend(now, deadline::believe_until(now, *ttl))",
        suite: MEMORY,
        tests: &["memory::renewal::a_renewal_counts_from_when_it_was_sent"],
    },
    Mutant {
        name: "finished_work_is_believed",
        broken: "Work that blocked its thread past the deadline counts as done under the lock.",
        file: "crates/leasehold/src/guard.rs",
        find: "            check()?;\n            Ok(output)",
        replace: "            drop(check);\n            Ok(output)",
        suite: MEMORY,
        tests: &["memory::loss::work_that_ends_after_the_deadline_is_not_work_under_the_lock"],
    },
    Mutant {
        name: "expired_lease_is_renewed",
        broken: "The store renews a lease that is over, because nobody has looked at the line since.",
        file: "crates/leasehold/src/backend/memory.rs",
        find: "let LeaseId::Entry(place) = &lease.id;\n        self.at(&place.key, |state, now| match",
        replace: "let LeaseId::Entry(place) = &lease.id;\n        let run = |work: &dyn Fn(&mut State, Moment) -> Renewal| work(&mut locked(&self.shared.state), self.shared.clock.now());\n        run(&|state, now| match",
        suite: MEMORY,
        tests: &["memory::renewal::a_renewal_does_not_bring_back_a_lease_that_is_over_on_the_store"],
    },
    Mutant {
        name: "look_makes_the_entry_anew",
        broken: "A look at a place that is gone makes the entry again, even after its departure.",
        file: "crates/leasehold/src/backend/memory.rs",
        find: "if *returns {",
        replace: "if *returns && false {",
        suite: MEMORY,
        tests: &["memory::cancelling::a_look_that_arrives_after_the_release_brings_no_entry_back"],
    },
    Mutant {
        name: "proclamation_is_not_told",
        broken: "Observers do not hear what a leader proclaims.",
        file: "crates/leasehold/src/backend/memory.rs",
        find: "line.entries[at].note = note.clone();\n                state.publish(&place.key, now);",
        replace: "line.entries[at].note = note.clone();",
        suite: MEMORY,
        tests: &["memory::election::an_observer_is_told_at_once_what_a_leader_proclaims"],
    },
    Mutant {
        name: "notices_are_ignored",
        broken: "What the store says by itself waits for the next renewal.",
        file: "crates/leasehold/src/lease/keeper.rs",
        find: "Event::Notice(notice) => self.hear(clock.now(), notice),",
        replace: "Event::Notice(_) => {}",
        suite: MEMORY,
        tests: &["memory::yielding::a_holder_is_told_at_once_that_somebody_wants_its_lock", "memory::yielding::an_eviction_is_told_at_once"],
    },

    // A majority of servers.
    Mutant {
        name: "quorum_takes_a_token_that_is_taken",
        broken: "A guess counts as the token though a server's fence is there already: two grants have one token.",
        file: "crates/leasehold/src/backend/redlock/quorum.rs",
        find: "*prior < self.guess",
        replace: "*prior <= self.guess",
        suite: QUORUM,
        tests: &["backend::redlock::quorum::tests::a_guess_that_another_has_made_before_is_no_token"],
    },
    Mutant {
        name: "quorum_counts_late_grants",
        broken: "A server commits that granted after the token was fixed, and whose fence nobody looked at.",
        file: "crates/leasehold/src/backend/redlock/quorum.rs",
        find: "            && commits[server] == Some(Commit::Awaited)\n",
        replace: "",
        suite: QUORUM,
        tests: &["backend::redlock::quorum::tests::a_grant_that_comes_after_the_token_was_fixed_does_not_count"],
    },
    Mutant {
        name: "quorum_of_those_who_answer",
        broken: "A renewal needs a majority of the servers that answer, and not of all that there are.",
        file: "crates/leasehold/src/backend/redlock/quorum.rs",
        find: "let needed = majority(self.of);",
        replace: "let needed = majority(self.yes + self.no);",
        suite: QUORUM,
        tests: &["backend::redlock::quorum::tests::a_tally_is_decided_by_a_majority_of_all_and_not_of_those_who_answer"],
    },
    Mutant {
        name: "redlock_lets_a_forgetful_server_in_at_once",
        broken: "A server that forgot takes part again while leases that it granted are still believed in.",
        file: "crates/leasehold/src/backend/redlock/admission.rs",
        find: "self.timer.sleep_until(over_at).await;",
        replace: "let _ = over_at;",
        suite: REDLOCK,
        tests: &["memory::servers_that_were_never_used_begin_after_one_longest_lease_unless_told_otherwise"],
    },
    Mutant {
        name: "redlock_forgets_the_fences_of_the_others",
        broken: "A server that forgot is let in with fences that begin anew.",
        file: "crates/leasehold/src/backend/redlock/admission.rs",
        find: "self.admit_now(server, mark, floor, self.longest_of(&memories))",
        replace: "self.admit_now(server, mark, floor.min(1), self.longest_of(&memories))",
        suite: REDLOCK,
        tests: &["memory::tokens_grow_though_every_server_forgets_in_its_turn"],
    },
    Mutant {
        name: "redlock_trusts_an_old_copy",
        broken: "A server that was restarted from an old copy is believed to remember.",
        file: "crates/leasehold/src/backend/redlock/scripts/greet.lua",
        find: "redis.call('HDEL', KEYS[1], 'epoch', 'run', 'blank')",
        replace: "",
        suite: REDLOCK,
        tests: &["memory::a_server_that_comes_back_with_an_old_copy_has_forgotten"],
    },
    Mutant {
        name: "redlock_takes_what_others_hold",
        broken: "A lock of another program does not keep us out.",
        file: "crates/leasehold/src/backend/redlock/scripts/grant.lua",
        find: "  if mark then return { BUSY",
        replace: "  if owner_of(mark) then return { BUSY",
        suite: REDLOCK,
        tests: &["interop::whoever_writes_keys_as_redsync_does_and_we_exclude_each_other"],
    },
];
