//! Mistakes that a store on Redis, or on a majority of its servers, could make.

use super::list::UNIT;
use super::{Mutant, Suite};

/// The store on Redis, on real servers with real faults.
const REDIS: Suite = Suite {
    package: "crates/leasehold",
    target: "--package leasehold --features redis,tls --test redis",
    interleaved: false,
};
/// The conformance suite on Redis.
const REDIS_CASES: Suite =
    Suite { package: "crates/conformance", target: "--package leasehold-conformance --test redis", interleaved: false };
/// What a quorum decides, and what a connection does.
const QUORUM: Suite = Suite { target: "--package leasehold --lib --features redis,tls", ..UNIT };
/// A majority of real Redis servers.
const REDLOCK: Suite = Suite { target: "--package leasehold --test redlock --features redis,tls", ..UNIT };

pub(super) const MUTANTS: &[Mutant] = &[
    // One server.
    Mutant {
        name: "redis_nobody_reads_after_the_last_answer",
        broken: "The connection's own task is not told when there is something to read again.",
        file: "crates/leasehold/src/backend/redis/pipe.rs",
        find: "Some(waker) if is_own_task => self.inner.turn(None, &mut Context::from_waker(&waker)),",
        replace: "Some(_) if is_own_task => {}",
        suite: QUORUM,
        tests: &[
            "backend::redis::pipe::tests::a_request_that_is_alone_wakes_nobody_else_and_what_comes_after_its_answer_is_heard",
        ],
    },
    Mutant {
        name: "redlock_silence_goes_unnoticed",
        broken: "A server that says nothing is asked again and again.",
        file: "crates/leasehold/src/backend/redlock/breaker.rs",
        find: "None if self.is_silent(now) => {",
        replace: "None if false => {",
        suite: QUORUM,
        tests: &[
            "backend::redlock::breaker::tests::a_server_that_says_nothing_for_longer_than_it_is_waited_for_is_left_alone_until_it_speaks",
        ],
    },
    Mutant {
        name: "redis_calls_everybody_a_holder",
        broken: "A renewal on Redis does not tell an entry that waits from one that holds.",
        file: "crates/leasehold/src/backend/redis/scripts/renew.lua",
        find: "answer = answer + WAITS",
        replace: "answer = answer",
        suite: REDIS_CASES,
        tests: &["single::relay::what_was_passed_on_is_lost_with_the_lease_that_it_was_passed_on_by"],
    },
    Mutant {
        name: "redis_renewal_without_owner_check",
        broken: "A renewal extends the lock of whoever holds it now.",
        file: "crates/leasehold/src/backend/redis/scripts/renew.lua",
        find: "if owner_of(s) == id then",
        replace: "if owner_of(s) then",
        suite: REDIS_CASES,
        tests: &["single::rule::every_answer_is_the_one_that_the_rule_gives"],
    },
    Mutant {
        name: "redis_renewal_takes_the_lock_again",
        broken: "A renewal makes the key anew when it is gone, as if it had been held all the time.",
        file: "crates/leasehold/src/backend/redis/scripts/renew.lua",
        find: "if ends <= now_ms then return LOST end",
        replace: "if not s.mark then
      write_mark(s, id, 'leasehold:again', '', ttl)
      return RENEWED
    end
    if ends <= now_ms then return LOST end",
        suite: REDIS_CASES,
        tests: &["single::rule::every_answer_is_the_one_that_the_rule_gives"],
    },
    Mutant {
        name: "redis_forgets_whoever_begins_anew",
        broken: "An entry that begins anew is forgotten as the holder that it was taken for, and loses the place that it got.",
        file: "crates/leasehold/src/backend/redis/scripts/enter.lua",
        find: "if s.before == id then s.before = '' end",
        replace: "",
        suite: REDIS,
        tests: &["tickets::whoever_came_in_without_a_ticket_that_counts_goes_behind_those_who_came_since"],
    },
    Mutant {
        name: "redis_reader_without_a_mark_is_renewed",
        broken: "A reader renews its lease over the lock of somebody else.",
        file: "crates/leasehold/src/backend/redis/scripts/renew.lua",
        find: "elseif s.mark == SHARED then",
        replace: "elseif true then",
        suite: REDIS,
        tests: &["faults::a_reader_whose_mark_somebody_else_has_replaced_is_told_and_leaves_theirs_alone"],
    },
    Mutant {
        name: "redis_readers_hold_without_a_mark",
        broken: "Readers whose mark was deleted keep writers out, though every other program takes the key for free.",
        file: "crates/leasehold/src/backend/redis/scripts/line.lua",
        find: "if s.used > 0 and s.mark ~= SHARED then",
        replace: "if false then",
        suite: REDIS,
        tests: &["faults::readers_whose_mark_was_deleted_by_hand_keep_no_writer_out"],
    },
    Mutant {
        name: "redis_tokens_begin_again",
        broken: "The counter of tokens begins at one after a restart that forgot it.",
        file: "crates/leasehold/src/backend/redis/scripts/line.lua",
        find: "s.last < 1000000000000 and s.now or s.last + 1",
        replace: "s.last + 1",
        suite: REDIS,
        tests: &["faults::a_restart_that_forgets_everything_is_noticed_at_once_and_tokens_still_grow"],
    },
    Mutant {
        name: "redis_refused_renewal_is_a_loss",
        broken: "A renewal that the server could not do is taken for its word that the lease is over.",
        file: "crates/leasehold/src/backend/redis.rs",
        find: "Err(error) => Renewal::Unknown(error.clone()),",
        replace: "Err(_) => Renewal::Lost,",
        suite: REDIS,
        tests: &["faults::a_renewal_that_the_server_refuses_is_a_doubt_and_not_a_loss"],
    },
    Mutant {
        name: "redis_other_layout_is_misspelt",
        broken: "An owner is not written as Redisson writes it, byte for byte.",
        file: "crates/leasehold/src/backend/redis/scripts/redisson.lua",
        find: ".. part(id, 21) .. ':1'",
        replace: ".. part(id, 21) .. ':01'",
        suite: REDIS,
        tests: &["redisson::a_lock_of_ours_is_the_hash_of_an_rlock_and_its_end_is_published"],
    },
    Mutant {
        name: "redis_last_in_line_is_first",
        broken: "The lock is handed to whoever came last.",
        file: "crates/leasehold/src/backend/redis/scripts/line.lua",
        find: "redis.call('ZRANGE', s.queue, 0, 0)[1]",
        replace: "redis.call('ZRANGE', s.queue, -1, -1)[1]",
        suite: REDIS_CASES,
        tests: &["single::rule::every_answer_is_the_one_that_the_rule_gives"],
    },
    Mutant {
        name: "redis_grant_is_not_told",
        broken: "The lock is handed over, and whoever has it now finds out when it looks again.",
        file: "crates/leasehold/src/backend/redis/scripts/line.lua",
        find: "redis.call('PUBLISH', entry.channel, 'g ' .. head .. ' ' .. entry.ticket)",
        replace: "",
        suite: REDIS_CASES,
        tests: &["single::semaphore_of_one::a_hand_over_costs_the_waiter_no_further_request_to_enter"],
    },
    Mutant {
        name: "redis_many_are_left_without_owner_check",
        broken: "Whoever gives many locks back at once also gives back what is somebody else's by now.",
        file: "crates/leasehold/src/backend/redis/scripts/leave_many.lua",
        find: "type(mark) == 'string' and find(mark, ARGV[nth], 1, true) == 1",
        replace: "type(mark) == 'string'",
        suite: REDIS,
        tests: &["together::of_many_that_are_given_back_at_once_what_is_somebody_elses_by_now_stays_theirs"],
    },
    Mutant {
        name: "redis_quick_grant_is_not_told",
        broken: "The same, where the common case is served first.",
        file: "crates/leasehold/src/backend/redis/scripts/quick_leave.lua",
        find: "call('PUBLISH', told, 'g ' .. head .. ' ' .. ticket)",
        replace: "",
        suite: REDIS_CASES,
        tests: &["single::mutex::a_hand_over_costs_the_waiter_no_further_request_to_enter"],
    },
    Mutant {
        name: "redis_dead_waiter_is_served",
        broken: "A place in line outlives its lease.",
        file: "crates/leasehold/src/backend/redis/scripts/line.lua",
        find: "redis.call('ZRANGE', s.leases, '-inf', s.now_ms, 'BYSCORE')",
        replace: "redis.call('ZRANGE', s.leases, '-inf', 0, 'BYSCORE')",
        suite: REDIS_CASES,
        tests: &["single::rule::every_answer_is_the_one_that_the_rule_gives"],
    },
    Mutant {
        name: "redis_waiter_changes_its_note",
        broken: "A candidate that does not lead proclaims something.",
        file: "crates/leasehold/src/backend/redis/scripts/annotate.lua",
        find: "local holds = entry and not redis.call('ZSCORE', s.queue, id)",
        replace: "local holds = entry",
        suite: REDIS_CASES,
        tests: &["single::rule::every_answer_is_the_one_that_the_rule_gives"],
    },
    Mutant {
        name: "redis_wish_is_not_kept",
        broken: "A wish that its holder did not hear is forgotten.",
        file: "crates/leasehold/src/backend/redis/scripts/wish.lua",
        find: "redis.call('HSET', s.entries, 'y' .. id, 1)",
        replace: "",
        suite: REDIS_CASES,
        tests: &["single::rule::every_answer_is_the_one_that_the_rule_gives"],
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
        tests: &[
            "backend::redlock::quorum::tests::a_tally_is_decided_by_a_majority_of_all_and_not_of_those_who_answer",
        ],
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
