//! Tickets that a client guesses, so that a free lock needs no script, and what comes of a guess that was too low.

use std::time::Duration;

use leasehold::backend::redis::Redis;
use leasehold::backend::{Backend, Departure, EntryId, Note, Patience, Place, Request, Standing, Terms};
use leasehold::{Claim, Key, Namespace};
use leasehold_testbed::redis::Server;

use crate::connect;

/// The server's time in µs, so much later.
fn server_us_in(server: &Server, later: Duration) -> u64 {
    let time = server.cli(&["TIME"]);
    let (seconds, micros) = time.split_once('\n').unwrap();
    seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap() + later.as_micros() as u64
}

fn request(key: &Key, id: u128) -> Request {
    let terms = Terms { holding: Duration::from_secs(30), waiting: Duration::from_secs(30) };
    let place = Place { key: key.clone(), entry: EntryId(id) };
    Request { place, claim: Claim::Exclusive, patience: Patience::Queue, terms, note: Note::default(), returns: false }
}

#[tokio::test]
async fn a_guess_below_the_last_ticket_is_not_the_token() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    for later in [Duration::from_secs(20), Duration::from_secs(40_000)] {
        let last = server_us_in(&server, later);
        server.cli(&["ZADD", "{lock:k}:tickets", &last.to_string(), "t"]);
        for above in 1..=3 {
            let guard = locks.mutex("k").unwrap().lock().await.unwrap();
            assert!(guard.token().get() >= last + above, "{} after {last}", guard.token());
            let shown = locks.inspect("k").await.unwrap().unwrap().holders.remove(0);
            assert_eq!(shown.token, Some(guard.token()));
            guard.release().await.unwrap();
        }
    }
    let other = locks.mutex("other").unwrap().lock().await.unwrap();
    let soon = server_us_in(&server, Duration::from_secs(3600));
    assert!(other.token().get() < soon, "one key far ahead of the time drags no other along");
}

#[tokio::test]
async fn whoever_came_in_without_a_ticket_that_counts_goes_behind_those_who_came_since() {
    let server = Server::start().unwrap();
    let (one, other) = (Redis::connect(&server.url()).await.unwrap(), Redis::connect(&server.url()).await.unwrap());
    let key = Key::new(&Namespace::default(), "k").unwrap();
    // As a client leaves it that set the mark, and found that a higher ticket had been given.
    let last = server_us_in(&server, Duration::ZERO);
    server.cli(&["ZADD", "{lock:k}:tickets", &last.to_string(), "t"]);
    let early = request(&key, 1);
    let mark = format!("{} leasehold:somebody:local {} 0 0 0 0 -1 ", early.place.entry, last - 1000);
    server.cli(&["SET", "lock:k", &mark, "NX", "PX", "30000"]);

    let since = request(&key, 2);
    assert!(matches!(other.enter(&since).await.unwrap(), Standing::Waiting { .. }));
    assert!(matches!(one.enter(&early).await.unwrap(), Standing::Waiting { ahead: Some(1), .. }));
    let looks = Request { returns: true, ..since };
    let Standing::Holding { ticket, .. } = other.enter(&looks).await.unwrap() else { panic!("it is its turn") };
    assert!(ticket.0 > last);

    assert_eq!(other.leave(&looks.place).await.unwrap(), Departure::WasHolding);
    let looks = Request { returns: true, ..early };
    let standing = one.enter(&looks).await.unwrap();
    assert!(matches!(standing, Standing::Holding { .. }), "it has lost its new place: {standing:?}");
}

#[tokio::test]
async fn a_mark_that_somebody_lined_up_behind_before_its_ticket_counted_gets_none() {
    let server = Server::start().unwrap();
    let other = Redis::connect(&server.url()).await.unwrap();
    let key = Key::new(&Namespace::default(), "k").unwrap();
    // The first of the two commands by which a free key is taken; then somebody comes; then the second.
    let guess = server_us_in(&server, Duration::from_secs(1)).to_string();
    let mark = format!("{} leasehold:somebody:local {guess} 0 0 0 0 -1 ", EntryId(1));
    assert_eq!(server.cli(&["SET", "lock:k", &mark, "NX", "PX", "30000"]), "OK");
    assert!(matches!(other.enter(&request(&key, 2)).await.unwrap(), Standing::Waiting { .. }));
    assert_eq!(server.cli(&["ZADD", "{lock:k}:tickets", "GT", "CH", &guess, "t"]), "0");
}

#[tokio::test]
async fn an_entry_whose_answer_was_lost_gets_a_new_ticket_and_keeps_its_turn_if_nobody_came() {
    let server = Server::start().unwrap();
    let store = Redis::connect(&server.url()).await.unwrap();
    let twice = request(&Key::new(&Namespace::default(), "k").unwrap(), 1);
    let Standing::Holding { ticket: lost, .. } = store.enter(&twice).await.unwrap() else { panic!("it is free") };
    let Standing::Holding { ticket, .. } = store.enter(&twice).await.unwrap() else { panic!("it is its own") };
    assert!(ticket > lost);
}
