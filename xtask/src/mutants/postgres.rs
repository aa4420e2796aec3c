//! The mutants of the store on PostgreSQL.

use super::list::UNIT;
use super::{Mutant, Suite};

const POSTGRES: Suite = Suite { target: "--package leasehold --test postgres --features postgres,tls", ..UNIT };

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "postgres_nobody_lets_the_next_one_in",
        broken: "Whoever joins a line leaves the first of it in the belief that it is alone.",
        file: "crates/leasehold/src/backend/postgres/schema.sql",
        find: "IF p_queues AND NOT p_returns THEN",
        replace: "IF false THEN",
        suite: POSTGRES,
        tests: &["alone::a_waiter_behind_somebody_who_was_alone_is_let_in"],
    },
    Mutant {
        name: "postgres_a_reader_leaves_the_line_open",
        broken: "A reader who joins another one leaves that one in the belief that it is alone.",
        file: "crates/leasehold/src/backend/postgres/schema.sql",
        find: "IF NOT p_queues THEN",
        replace: "IF false THEN",
        suite: POSTGRES,
        tests: &["alone::a_reader_who_joins_another_one_keeps_writers_out_when_that_one_has_left"],
    },
    Mutant {
        name: "postgres_nobody_moves_up",
        broken: "The first that is left stays where it was, and the line looks empty.",
        file: "crates/leasehold/src/backend/postgres/schema.sql",
        find: "v_slot := CASE WHEN v_slot IS NULL THEN 0 ELSE v_next.slot END;",
        replace: "v_slot := v_next.slot;",
        suite: POSTGRES,
        tests: &["alone::nobody_overtakes_those_who_are_left_when_the_first_has_gone"],
    },
];
