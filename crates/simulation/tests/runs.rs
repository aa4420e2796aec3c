//! What the simulation promises of itself: a seed is one run, and it sees what is broken. All seeds are run by
//! `cargo xtask simulate`.

use leasehold_simulation::invariants::Invariant;
use leasehold_simulation::record::Record;
use leasehold_simulation::scenario::Scenario;
use leasehold_simulation::world;

#[test]
fn a_seed_always_takes_the_same_course_and_another_seed_another() {
    let storm = Scenario::named("five_in_a_storm").unwrap();
    let course = |seed| world::run(&storm, seed, Record::with_trace()).record;
    let (once, again, other) = (course(7), course(7), course(8));
    let (once_lines, again_lines) = (once.lines(), again.lines());
    for (nth, (one, two)) in once_lines.iter().zip(&again_lines).enumerate() {
        assert_eq!(one, two, "the courses part at line {nth}");
    }
    assert_eq!(once_lines.len(), again_lines.len());
    assert_eq!(once.digest(), again.digest());
    assert_ne!(once.digest(), other.digest());
}

#[test]
fn every_scenario_keeps_its_promises_on_its_first_seeds() {
    for scenario in Scenario::all().unwrap() {
        for seed in 0..2 {
            let outcome = world::run(&scenario, seed, Record::default());
            assert!(!outcome.record.grants().is_empty(), "{}, seed {seed}: nobody got a lock", scenario.name);
            for promised in &scenario.promised {
                let broken = outcome.broken.get(promised);
                assert_eq!(broken, None, "{}, seed {seed}: {promised:?}", scenario.name);
            }
        }
    }
}

#[test]
fn a_jumping_clock_lets_two_hold_and_is_seen_to() {
    let jumping = Scenario::named("jumping_clocks").unwrap();
    let overlaps =
        |seed: &u64| world::run(&jumping, *seed, Record::default()).broken.contains_key(&Invariant::OneWriter);
    assert!((0..5).filter(overlaps).count() > 0);
}
