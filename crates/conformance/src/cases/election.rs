//! Elections: one leader at a time, named to everybody, in terms that follow each other.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use leasehold::backend::NOTE_BYTES_MAX;
use leasehold::{Election, ErrorKind, FencingToken, Leader, Result};

use crate::{Client, Fault, History, Verb, World};

const OFFICE: &str = "office";

/// The office, on a store that has elections. On another, asking for it must be refused before anything is stored.
async fn office(world: &World, client: &Client) -> Option<Election> {
    if world.capabilities().await.notes {
        return Some(client.election(OFFICE).unwrap());
    }
    let refused = client.election(OFFICE).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert_eq!(refused.key().map(leasehold::Key::name), Some(OFFICE.as_bytes()));
    assert_eq!(client.inspect_all().await.unwrap(), []);
    None
}

fn value(leader: &Leader) -> &str {
    std::str::from_utf8(&leader.value).unwrap()
}

/// The next thing that an observer sees, as the leader's value.
async fn sight(world: &World, leaders: impl Future<Output = Option<Result<Option<Leader>>>>) -> Option<String> {
    let limit = world.ttl() * 2 + world.slack();
    let seen = world.within(limit, leaders).await.expect("the observer sees something in time");
    seen.expect("observing does not end").unwrap().as_ref().map(|leader| value(leader).to_owned())
}

pub async fn one_candidate_leads_at_a_time(world: World) {
    let clients = [world.client().await, world.client().await];
    if office(&world, &clients[0]).await.is_none() {
        return;
    }
    let (history, world) = (History::new(), Arc::new(world));
    let mut tasks = tokio::task::JoinSet::new();
    for nth in 0..world.crowd() {
        let election = clients[nth % 2].election(OFFICE).unwrap();
        let (history, world) = (history.clone(), world.clone());
        tasks.spawn(async move {
            for term in 0..3 {
                let leadership = election.campaign(format!("{nth}/{term}")).await.unwrap();
                let from = world.now();
                world.pass(Duration::from_micros(300)).await;
                let leader = election.leader().await.unwrap().expect("somebody leads");
                assert_eq!(value(&leader), format!("{nth}/{term}"));
                history.believed(from, world.now(), 1, Some(leadership.token()));
                leadership.resign().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(history.len(), world.crowd() * 3);
    history.check(1);
}

/// How a term ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Resigned,
    Dropped,
    Crashed,
}

async fn the_next_candidate_leads_when_the_term_is(world: World, end: End) {
    let (first, second) = (world.client().await, world.client().await);
    let Some(election) = office(&world, &first).await else { return };
    let leadership = election.campaign("first").await.unwrap();
    let next = second.election(OFFICE).unwrap();
    assert!(next.try_campaign("second").await.unwrap().is_none());
    let candidate = tokio::spawn(async move { next.campaign("second").await });
    if world.capabilities().await.queueing {
        world.until_waiting(&second, OFFICE, 1).await;
    }
    let last = leadership.token();
    let mut crashed = None;
    match end {
        End::Resigned => leadership.resign().await.unwrap(),
        End::Dropped => drop(leadership),
        End::Crashed => {
            first.faults.always_all(Fault::Swallowed);
            crashed = Some(leadership);
        }
    }
    let elected = world.within(world.ttl() * 2, candidate).await.expect("the office is handed over");
    let elected = elected.unwrap().unwrap();
    assert!(elected.token() > last, "{end:?}: term {last} was followed by {}", elected.token());
    if let Some(crashed) = crashed {
        assert_eq!(crashed.check().unwrap_err().kind(), ErrorKind::Lost, "two led at once");
    }
    let leader = second.election(OFFICE).unwrap().leader().await.unwrap().expect("the second leads");
    assert_eq!((value(&leader), leader.token), ("second", elected.token()));
}

pub async fn the_next_candidate_leads_when_the_leader_resigns(world: World) {
    the_next_candidate_leads_when_the_term_is(world, End::Resigned).await;
}

pub async fn the_next_candidate_leads_when_the_leadership_is_dropped(world: World) {
    the_next_candidate_leads_when_the_term_is(world, End::Dropped).await;
}

pub async fn the_next_candidate_leads_when_the_leader_is_gone(world: World) {
    the_next_candidate_leads_when_the_term_is(world, End::Crashed).await;
}

pub async fn the_leader_is_named_with_its_value_and_its_term(world: World) {
    let (client, other) = (world.client_with(|builder| builder.label("a")).await, world.client().await);
    let Some(election) = office(&world, &client).await else { return };
    let elsewhere = other.election(OFFICE).unwrap();
    assert_eq!(elsewhere.leader().await.unwrap(), None);
    let leadership = election.campaign("10.0.0.7:80").await.unwrap();
    let candidate = tokio::spawn(async move { elsewhere.campaign("10.0.0.8:80").await });
    if world.capabilities().await.queueing {
        world.until_waiting(&other, OFFICE, 1).await;
    }
    let leader = other.election(OFFICE).unwrap().leader().await.unwrap().expect("somebody leads");
    assert_eq!((value(&leader), leader.token), ("10.0.0.7:80", leadership.token()));
    assert_eq!((&*leader.note.owner, leader.note.pid), ("a", std::process::id()));
    candidate.abort();
    leadership.resign().await.unwrap();
    world.until_deserted(&other, OFFICE).await;
    assert_eq!(election.leader().await.unwrap(), None);
}

pub async fn a_leader_proclaims_and_everybody_sees_it(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let Some(election) = office(&world, &client).await else { return };
    let elsewhere = other.election(OFFICE).unwrap();
    let mut leadership = election.campaign("starting").await.unwrap();
    let mut leaders = pin!(elsewhere.observe());
    assert_eq!(sight(&world, leaders.next()).await.as_deref(), Some("starting"));
    leadership.proclaim("ready").await.unwrap();
    let leader = elsewhere.leader().await.unwrap().expect("it still leads");
    assert_eq!((value(&leader), leader.token), ("ready", leadership.token()));
    assert_eq!(sight(&world, leaders.next()).await.as_deref(), Some("ready"));
    world.pass(world.ttl() * 2).await;
    let leader = elsewhere.leader().await.unwrap().expect("it still leads");
    assert_eq!(value(&leader), "ready", "a renewal does not bring the old value back");
    leadership.proclaim("").await.unwrap();
    assert_eq!(value(&elsewhere.leader().await.unwrap().expect("it still leads")), "");
    leadership.resign().await.unwrap();
}

/// Neither one who was told that its term is over, nor one who could not be told yet.
pub async fn only_the_leader_can_proclaim(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let Some(election) = office(&world, &client).await else { return };
    let mut deposed = election.campaign("old").await.unwrap();
    let view = world.line(&other, OFFICE).await;
    other.evict(&view.holders[0]).await.unwrap();
    let _leadership = other.election(OFFICE).unwrap().campaign("new").await.unwrap();
    for _ in 0..2 {
        let refused = deposed.proclaim("still me").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Lost);
        assert_eq!(value(&election.leader().await.unwrap().unwrap()), "new");
    }
    assert_eq!(deposed.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(deposed.resign().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(value(&election.leader().await.unwrap().unwrap()), "new");
}

/// Terms as short as they get: every candidate resigns as soon as it leads.
pub async fn an_observer_sees_every_leader_in_order(world: World) {
    const TERMS: usize = 4;
    if !world.capabilities().await.pushes {
        return; // what lasts no longer than that may be missed between two looks
    }
    let clients = [world.client().await, world.client().await, world.client().await];
    let Some(election) = office(&world, &clients[2]).await else { return };
    let mut leaders = pin!(election.observe());
    assert_eq!(sight(&world, leaders.next()).await, None);

    let world = Arc::new(world);
    let terms: Arc<Mutex<Vec<(FencingToken, String)>>> = Arc::default();
    let mut tasks = tokio::task::JoinSet::new();
    for nth in 0..world.crowd() {
        let election = clients[nth % 2].election(OFFICE).unwrap();
        let terms = terms.clone();
        tasks.spawn(async move {
            for term in 0..TERMS {
                let stands_for = format!("{nth}/{term}");
                let leadership = election.campaign(&stands_for).await.unwrap();
                terms.lock().unwrap().push((leadership.token(), stands_for));
                leadership.resign().await.unwrap();
            }
        });
    }
    let mut seen = Vec::new();
    let mut before = None;
    let all = world.crowd() * TERMS;
    let watching = async {
        while seen.len() < all {
            let sight = leaders.next().await.expect("observing does not end").unwrap();
            assert_ne!(before, Some(sight.clone()), "the same sight came twice in a row");
            if let Some(leader) = &sight {
                seen.push((leader.token, value(leader).to_owned()));
            }
            before = Some(sight);
        }
    };
    let all_seen = world.within(world.ttl() * 10, watching).await;
    tasks.join_all().await;
    let terms = terms.lock().unwrap();
    let missed: Vec<_> = terms.iter().filter(|term| !seen.contains(term)).collect();
    assert!(all_seen.is_some(), "missed {missed:?} of {all} terms");
    assert_eq!(seen, *terms);
    assert!(seen.is_sorted_by(|earlier, later| earlier.0 < later.0));
}

pub async fn an_observer_sees_a_vacancy(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let Some(election) = office(&world, &client).await else { return };
    let mut leaders = pin!(other.election(OFFICE).unwrap().observe());
    assert_eq!(sight(&world, leaders.next()).await, None);
    for name in ["a", "b"] {
        let leadership = election.campaign(name).await.unwrap();
        assert_eq!(sight(&world, leaders.next()).await.as_deref(), Some(name));
        leadership.resign().await.unwrap();
        assert_eq!(sight(&world, leaders.next()).await, None);
    }
}

/// Nobody announces that a leader has died; its lease runs out.
pub async fn an_observer_sees_that_a_leader_died(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let Some(election) = office(&world, &client).await else { return };
    let mut leaders = pin!(other.election(OFFICE).unwrap().observe());
    assert_eq!(sight(&world, leaders.next()).await, None);
    let _crashed = election.campaign("a").await.unwrap();
    assert_eq!(sight(&world, leaders.next()).await.as_deref(), Some("a"));
    let steady = world.within(world.ttl() * 2, leaders.next()).await;
    assert!(steady.is_none(), "nothing happened, and yet it saw {steady:?}");
    client.faults.always_all(Fault::Swallowed);
    let crashed_at = world.now();
    assert_eq!(sight(&world, leaders.next()).await, None);
    let noticed_after = crashed_at.until(world.now());
    assert!(noticed_after <= world.ttl() + world.slack(), "{noticed_after:?}");
}

/// A leader renews without anybody being told, so an observer has to look again when the lease that it saw is over. The
/// watch that it has goes on telling of every change meanwhile, even if another one could not be had.
pub async fn an_observer_does_not_give_up_a_watch_that_works(world: World) {
    if !world.capabilities().await.pushes {
        return; // a watch that looks tells of no change in between
    }
    let (client, other) = (world.client().await, world.client().await);
    let Some(election) = office(&world, &client).await else { return };
    let mut leaders = pin!(other.election(OFFICE).unwrap().observe());
    assert_eq!(sight(&world, leaders.next()).await, None);
    let first = election.campaign("a").await.unwrap();
    assert_eq!(sight(&world, leaders.next()).await.as_deref(), Some("a"));
    other.faults.always(Verb::Watch, Fault::Unsent);
    let steady = world.within(world.ttl() * 2, leaders.next()).await;
    assert!(steady.is_none(), "nothing happened, and yet it saw {steady:?}");
    first.resign().await.unwrap();
    election.campaign("b").await.unwrap().resign().await.unwrap();
    for expected in [None, Some("b"), None] {
        assert_eq!(sight(&world, leaders.next()).await.as_deref(), expected);
    }
}

/// The watch cannot be set up at first, and breaks off later: each time while something happens.
pub async fn an_observer_survives_a_broken_watch(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let Some(election) = office(&world, &client).await else { return };
    other.faults.next(Verb::Watch, Fault::Unsent);
    other.faults.next(Verb::Watch, Fault::Unsent);
    let mut leaders = pin!(other.election(OFFICE).unwrap().observe());
    assert_eq!(sight(&world, leaders.next()).await, None);
    let first = election.campaign("a").await.unwrap();
    assert_eq!(sight(&world, leaders.next()).await.as_deref(), Some("a"));
    other.faults.break_watches();
    first.resign().await.unwrap();
    let second = election.campaign("b").await.unwrap();
    let mut sights = Vec::new();
    while sights.last() != Some(&Some("b".to_owned())) {
        sights.push(sight(&world, leaders.next()).await);
    }
    // What happened while it was blind may be missing, but nothing is made up.
    assert!(sights == [None, Some("b".into())] || sights == [Some("b".into())], "{sights:?}");
    assert!(other.faults.calls(Verb::Watch) >= 4);
    second.resign().await.unwrap();
    assert_eq!(sight(&world, leaders.next()).await, None);
}

pub async fn a_value_that_is_too_long_is_refused_and_nothing_is_stored(world: World) {
    let client = world.client().await;
    let Some(election) = office(&world, &client).await else { return };
    let (longest, too_long) = (vec![b'v'; NOTE_BYTES_MAX], vec![b'v'; NOTE_BYTES_MAX + 1]);
    for refused in [
        election.campaign(&too_long).await.map(drop),
        election.try_campaign(&too_long).await.map(drop),
        election.campaign_within(&too_long, world.ttl()).await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!((refused.kind(), refused.key()), (ErrorKind::InvalidOption, Some(election.key())));
        assert!(refused.to_string().contains("1025 bytes"), "{refused}");
    }
    assert_eq!(client.inspect_all().await.unwrap(), []);
    assert_eq!(client.faults.calls(Verb::Enter), 0);
    let mut leadership = election.campaign(&longest).await.unwrap();
    assert_eq!(&*election.leader().await.unwrap().unwrap().value, longest);
    let refused = leadership.proclaim(&too_long).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidOption);
    assert_eq!(&*election.leader().await.unwrap().unwrap().value, longest);
    leadership.resign().await.unwrap();
}

pub async fn an_observer_is_told_at_once_what_a_leader_proclaims(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let Some(election) = office(&world, &client).await else { return };
    let mut leaders = pin!(other.election(OFFICE).unwrap().observe());
    assert_eq!(sight(&world, leaders.next()).await, None);
    let mut leadership = election.campaign("a").await.unwrap();
    assert_eq!(sight(&world, leaders.next()).await.as_deref(), Some("a"));
    leadership.proclaim("b").await.unwrap();
    let proclaimed_at = world.now();
    assert_eq!(sight(&world, leaders.next()).await.as_deref(), Some("b"));
    assert!(proclaimed_at.until(world.now()) <= world.slack(), "after {:?}", proclaimed_at.until(world.now()));
    leadership.resign().await.unwrap();
}
