//! Races of guards, keeper and store, tried in every order that a scheduler could run them in (`cargo xtask interleavings`).

use std::sync::Arc;
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::thread;

use crate::backend::memory::Memory;
use crate::backend::{
    Backend, Departure, EntryId, Lease, LeaseId, Note, Patience, Place, Query, Request, Standing, Terms,
};
use crate::claim::Claim;
use crate::clock::{Clock, Moment};
use crate::key::{Key, Namespace};
use crate::lease::agenda::Agenda;
use crate::lease::hold::{Hold, Loss, State};
use crate::sync::{Mutex, locked};

const TTL: Duration = Duration::from_secs(30);
/// Small races are tried in every order; larger ones in this many random ones.
const RANDOM_ORDERS: usize = 20_000;

fn in_every_order(race: impl Fn() + Send + Sync + 'static) {
    shuttle::check_dfs(race, None);
}

fn in_many_orders(race: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(race, RANDOM_ORDERS);
}

fn place(entry: u128) -> Place {
    Place { key: Key::new(&Namespace::default(), "k").unwrap(), entry: EntryId(entry) }
}

/// A store whose clock stands still, so that only the order of events decides.
fn store() -> Memory {
    let (clock, hand) = Clock::moved_by_hand(Clock::boot());
    hand.run_at(0.0);
    Memory::with_clock(clock)
}

fn enter(store: &Memory, place: &Place) -> Standing {
    let terms = Terms { holding: TTL, waiting: TTL };
    let (claim, patience, note) = (Claim::Exclusive, Patience::Queue, Note::default());
    let place = place.clone();
    block_on(store.enter(&Request { place, claim, patience, terms, note, returns: false })).unwrap()
}

fn entries(store: &Memory) -> Vec<EntryId> {
    let query = Query { namespace: Namespace::default(), key: None, after: None, keys_max: 9 };
    let page = block_on(store.inspect(&query)).unwrap();
    let views = page.items.into_iter().flat_map(|view| view.holders.into_iter().chain(view.waiters.unwrap()));
    views.map(|view| view.place.entry).collect()
}

const fn at(seconds: u64) -> Moment {
    Moment::from_nanos(seconds * 1_000_000_000)
}

/// One round of the keeper: renew what is due at `now`.
fn keep_once(agenda: &Mutex<Agenda>, store: &Memory, now: Moment) {
    let due = locked(agenda).take_due(now);
    for hold in due.renew {
        let lease = Lease { id: LeaseId::Entry(hold.place.clone()), ttl: TTL };
        let renewals = block_on(store.renew(std::slice::from_ref(&lease))).unwrap();
        locked(agenda).settle(now, &hold, now, 1.0, &renewals[0]);
    }
}

#[test]
fn a_renewal_racing_a_release_brings_nothing_back() {
    in_many_orders(|| {
        let (store, agenda) = (store(), Arc::new(Mutex::new(Agenda::new())));
        let mine = place(1);
        enter(&store, &mine);
        let hold = Arc::new(Hold::new(mine.clone(), TTL, at(29)));
        locked(&agenda).seat(hold.clone(), at(10));

        let keeper = thread::spawn({
            let (store, agenda) = (store.clone(), agenda.clone());
            move || keep_once(&agenda, &store, at(10))
        });
        // As a guard does it: no more renewals, no more belief, then the departure.
        locked(&agenda).unseat(&hold);
        hold.release(at(10)).unwrap();
        assert_eq!(block_on(store.leave(&mine)).unwrap(), Departure::WasHolding);
        keeper.join().unwrap();

        assert_eq!(entries(&store), []);
        assert_eq!(locked(&agenda).len(), 0, "a released lease is kept again");
        assert_eq!(hold.deadline(), None, "a released hold believes again");
    });
}

#[test]
fn a_drop_racing_a_loss_ends_once_and_for_one_reason() {
    in_every_order(|| {
        let hold = Arc::new(Hold::new(place(1), TTL, at(30)));
        let keeper = thread::spawn({
            let hold = hold.clone();
            move || hold.lose(Loss::Gone)
        });
        let released = hold.release(at(1));
        keeper.join().unwrap();
        assert_eq!(hold.deadline(), None);
        // Whoever came second changed nothing.
        assert_eq!(hold.release(at(1)), Err(Loss::Gone));
        if released.is_ok() {
            assert!(!hold.extend(at(1), at(60)));
        }
    });
}

#[test]
fn what_was_once_said_to_be_lost_is_never_held_again() {
    in_every_order(|| {
        let hold = Arc::new(Hold::new(place(1), TTL, at(30)));
        // The keeper read the clock just before the deadline, and is slow to write down what it got.
        let keeper = thread::spawn({
            let hold = hold.clone();
            move || hold.extend(at(29), at(60))
        });
        let first = hold.state(at(31));
        let second = hold.state(at(31));
        keeper.join().unwrap();
        if let State::Lost(_) = first {
            assert_eq!([second, hold.state(at(31))], [first, first], "lost, and then held again");
        }
    });
}

#[test]
fn two_losses_and_a_doubt_leave_one_loss() {
    in_every_order(|| {
        let hold = Arc::new(Hold::new(place(1), TTL, at(30)));
        let doubting = thread::spawn({
            let hold = hold.clone();
            move || hold.doubt()
        });
        let losing = thread::spawn({
            let hold = hold.clone();
            move || hold.lose(Loss::Gone)
        });
        let seen = hold.state(at(31));
        assert!(matches!(seen, State::Lost(_)));
        doubting.join().unwrap();
        losing.join().unwrap();
        assert_eq!(hold.state(at(31)), seen);
    });
}

#[test]
fn whoever_waits_for_a_loss_is_told() {
    in_every_order(|| {
        let hold = Arc::new(Hold::new(place(1), TTL, at(30)));
        let waiting = thread::spawn({
            let hold = hold.clone();
            move || block_on(hold.lost())
        });
        hold.state(at(30));
        assert_eq!(waiting.join().unwrap(), Loss::Expired);
    });
}

#[test]
fn two_leavers_of_one_place_take_nobody_elses() {
    in_many_orders(|| {
        let store = store();
        let (first, second) = (place(1), place(2));
        enter(&store, &first);
        enter(&store, &second);
        let evictor = thread::spawn({
            let (store, first) = (store.clone(), first.clone());
            move || block_on(store.leave(&first)).unwrap()
        });
        let mut departures = [block_on(store.leave(&first)).unwrap(), evictor.join().unwrap()];
        departures.sort_by_key(|departure| *departure == Departure::WasGone);
        assert_eq!(departures, [Departure::WasHolding, Departure::WasGone]);
        assert_eq!(entries(&store), [second.entry]);
        assert!(matches!(enter(&store, &second), Standing::Holding { .. }));
    });
}

#[test]
fn a_release_between_a_waiters_look_and_its_sleep_wakes_it() {
    in_many_orders(|| {
        let store = store();
        let (first, second) = (place(1), place(2));
        enter(&store, &first);
        let waiter = thread::spawn({
            let (store, second) = (store.clone(), second.clone());
            move || match enter(&store, &second) {
                Standing::Waiting { seen, .. } => block_on(store.changed(&second, &seen)).unwrap().unwrap(),
                standing => standing,
            }
        });
        block_on(store.leave(&first)).unwrap();
        assert!(matches!(waiter.join().unwrap(), Standing::Holding { .. }));
    });
}

/// The store confirms the place of the second while the first passes the lock on, and hears of that only later.
#[test]
fn a_renewal_racing_a_turn_that_is_passed_on_lengthens_nothing() {
    in_many_orders(|| {
        let (store, agenda) = (store(), Arc::new(Mutex::new(Agenda::new())));
        let (first, second) = (place(1), place(2));
        enter(&store, &first);
        enter(&store, &second);
        let hold = Arc::new(Hold::new(second, TTL, at(29)));
        locked(&agenda).seat(hold.clone(), at(10));

        let keeper = thread::spawn({
            let (store, agenda) = (store.clone(), agenda.clone());
            move || keep_once(&agenda, &store, at(10))
        });
        locked(&agenda).borrow(at(10), &hold, at(15));
        keeper.join().unwrap();
        assert_eq!(hold.deadline(), Some(at(15)), "it outlasts the lease that it is held by");

        block_on(store.leave(&first)).unwrap();
        keep_once(&agenda, &store, at(14));
        assert!(hold.deadline() > Some(at(15)), "the store says that it holds");
    });
}

#[test]
fn a_lease_handed_to_a_keeper_that_goes_to_sleep_is_not_slept_over() {
    in_many_orders(|| {
        let agenda = Arc::new(Mutex::new(Agenda::new()));
        let hold = Arc::new(Hold::new(place(1), TTL, at(30)));
        let keeper = thread::spawn({
            let agenda = agenda.clone();
            move || {
                let mut agenda = locked(&agenda);
                agenda.take_due(at(0));
                agenda.fall_asleep(at(0))
            }
        });
        let must_wake = locked(&agenda).seat(hold, at(10));
        assert!(keeper.join().unwrap() <= at(10) || must_wake);
    });
}
