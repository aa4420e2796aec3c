//! Mistakes that a store on etcd could make.

use super::{Mutant, Suite};

/// The store on etcd, on real servers with real faults.
const ETCD: Suite = Suite {
    package: "crates/leasehold",
    target: "--package leasehold --features etcd,tls --test etcd",
    interleaved: false,
};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "etcd_session_counted_from_the_answer",
        broken: "A session is believed in from when its keep-alive was answered, while the server has counted since it arrived.",
        file: "crates/leasehold/src/backend/etcd/session.rs",
        find: "*life = Life { sent_at, wall_lead, ..*life };",
        replace: "*life = Life { sent_at: wire.timer.now(), wall_lead, ..*life };",
        suite: ETCD,
        tests: &["network::a_session_is_believed_in_from_when_its_keep_alive_was_sent"],
    },
    Mutant {
        name: "etcd_try_does_not_see_who_came_in_between",
        broken: "Whoever tries looks for room, and takes it later, whoever has taken it meanwhile.",
        file: "crates/leasehold/src/backend/etcd/verbs.rs",
        find: "compare = nobody_new_in(line.to_vec(), names::behind(line), revision);",
        replace: "compare = created_at(&*own.written.key, 0 * nobody_new_in(Vec::new(), Vec::new(), revision).key.len() as i64);",
        suite: ETCD,
        tests: &["faults::tries_never_take_more_permits_than_there_are"],
    },
    Mutant {
        name: "etcd_lost_lock_lives_with_its_session",
        broken: "A lock in which nobody believes any more is kept for as long as its client has another.",
        file: "crates/leasehold/src/backend/etcd/roster.rs",
        find: "own.believed_until.after(session.ttl) < now",
        replace: "own.believed_until.after(session.ttl * 1000) < now",
        suite: ETCD,
        tests: &["faults::a_lock_in_which_nobody_believes_any_more_does_not_live_on_with_the_session"],
    },
    Mutant {
        name: "etcd_watch_begins_anew",
        broken: "A watch that breaks off goes on from now, and what happened meanwhile is never told.",
        file: "crates/leasehold/src/backend/etcd/hub.rs",
        find: "if self.from_now { 0 } else { self.next }",
        replace: "0",
        suite: ETCD,
        tests: &["faults::neither_a_waiter_nor_a_holder_misses_what_was_compacted_while_they_were_cut_off"],
    },
    Mutant {
        name: "etcd_strangers_share",
        broken: "An entry of another program is taken for one that can be shared.",
        file: "crates/leasehold/src/backend/etcd/line.rs",
        find: "None => (names::foreign_id(rest), Claim::Exclusive),",
        replace: "None => (names::foreign_id(rest), Claim::Shared),",
        suite: ETCD,
        tests: &["interop::while_etcdctl_holds_we_are_refused_see_it_and_get_in_when_it_has_left"],
    },
    Mutant {
        name: "etcd_gate_admits_the_older_token",
        broken: "A gate refuses the newer token and lets the older one pass.",
        file: "crates/leasehold/src/backend/etcd/gate.rs",
        find: "relation: Relation::Greater.into(),",
        replace: "relation: Relation::Less.into(),",
        suite: ETCD,
        tests: &["rights::a_gate_on_the_cluster_refuses_a_token_that_is_older_than_one_it_has_seen"],
    },
    Mutant {
        name: "etcd_key_for_each_entry",
        broken: "No key is used again, and a lock becomes the slower the more often it was taken.",
        file: "crates/leasehold/src/backend/etcd/slots.rs",
        find: "used.free.insert(slot);",
        replace: "let _ = slot;",
        suite: ETCD,
        tests: &["slots::a_thousand_acquisitions_of_one_lock_by_one_session_use_one_key"],
    },
    Mutant {
        name: "etcd_slot_given_on_before_the_departure_is_known",
        broken: "Whoever comes next is given the key of an entry that may not have left yet.",
        file: "crates/leasehold/src/backend/etcd/verbs.rs",
        find: "let wish = Op::from(remove(names::wish(&place.key, place.entry)));",
        replace: "self.roster.remove(place.entry); let wish = Op::from(remove(names::wish(&place.key, place.entry)));",
        suite: ETCD,
        tests: &["slots::a_key_whose_departure_was_not_answered_is_not_used_again_before_it_is"],
    },
    Mutant {
        name: "etcd_slot_given_on_while_its_entry_may_appear",
        broken: "An entry that was never heard of has its key taken by the next one, and may come to it later.",
        file: "crates/leasehold/src/backend/etcd/verbs.rs",
        find: "None => self.roster.remove_and_retire_its_slot(own.place.entry),",
        replace: "None => self.roster.remove(own.place.entry),",
        suite: ETCD,
        tests: &["slots::a_key_that_may_yet_be_made_is_left_to_whoever_was_to_have_it"],
    },
    Mutant {
        name: "etcd_departure_by_key_alone",
        broken: "Whoever leaves deletes what is at its key, though it may be another entry by now.",
        file: "crates/leasehold/src/backend/etcd/verbs.rs",
        find: "(Some(ticket), _) => created_at(&**key, ticket),",
        replace: "(Some(_), _) => Compare { relation: Relation::NotEqual.into(), ..created_at(&**key, 0) },",
        suite: ETCD,
        tests: &["slots::an_entry_that_was_deleted_and_made_again_by_another_is_lost"],
    },
];
