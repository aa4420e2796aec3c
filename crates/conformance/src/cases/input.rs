//! Bad input is a typed error that names what is wrong, and nothing is stored.

use std::time::Duration;

use leasehold::backend::NOTE_BYTES_MAX;
use leasehold::{Builder, Error, ErrorKind, Fate, Key, Locks, NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, Namespace, Owner};

use crate::{Verb, World};

const SECRET: &str = "hunter2";

/// That this was refused, by that name, before the store could act.
fn assert_refused(error: &Error, kind: ErrorKind, named: &str) {
    assert_eq!((error.kind(), error.fate()), (kind, Fate::NotApplied), "{error}");
    assert!(error.to_string().contains(named), "{named:?} is not named: {error}");
}

async fn assert_nothing_stored(locks: &Locks) {
    assert_eq!(locks.inspect_all().await.unwrap(), []);
}

pub async fn an_empty_or_over_long_name_is_refused(world: World) {
    let (client, able) = (world.client().await, world.capabilities().await);
    let too_long = format!("too/long/{}", "x".repeat(NAME_BYTES_MAX - 8));
    assert_eq!(too_long.len(), NAME_BYTES_MAX + 1);
    for (name, named) in [("", "empty"), (too_long.as_str(), "too/long/")] {
        let mut refusals = vec![
            client.mutex(name).unwrap_err(),
            client.reentrant(name).unwrap_err(),
            client.all_of(["fine", name]).unwrap_err(),
            client.inspect(name).await.unwrap_err(),
            Key::new(&Namespace::default(), name).unwrap_err(),
            client.rw_lock(name).unwrap_err(),
            client.semaphore(name, 3).unwrap_err(),
            client.election(name).unwrap_err(),
        ];
        if !able.shared {
            refusals.retain(|refusal| refusal.kind() != ErrorKind::Unsupported);
        }
        for refusal in refusals {
            assert_refused(&refusal, ErrorKind::InvalidKey, named);
            assert!(refusal.to_string().len() < 200, "a long name does not make a long message: {refusal}");
        }
        assert_nothing_stored(&client).await;
    }
    let longest = "x".repeat(NAME_BYTES_MAX);
    client.mutex(&longest).unwrap().lock().await.unwrap().release().await.unwrap();
    assert_nothing_stored(&client).await;
}

pub async fn a_setting_out_of_its_range_is_refused_by_name(world: World) {
    let refused = async |settings: fn(Builder) -> Builder, named: &str| {
        let refusal = world.try_client_with(settings).await.unwrap_err();
        assert_refused(&refusal, ErrorKind::InvalidOption, named);
        refusal
    };
    refused(|builder| builder.ttl(Duration::ZERO), "ttl").await;
    refused(|builder| builder.ttl(Duration::from_millis(1)), "ttl").await;
    refused(|builder| builder.ttl(Duration::from_millis(999)), "ttl").await;
    refused(|builder| builder.ttl(Duration::from_secs(24 * 60 * 60 + 1)), "ttl").await;
    refused(|builder| builder.ttl(Duration::from_millis(u64::MAX)), "ttl").await;
    refused(|builder| builder.ttl(Duration::MAX), "ttl").await;
    refused(|builder| builder.label("l".repeat(NOTE_BYTES_MAX + 1)), "label").await;
    refused(|builder| builder.namespace("n".repeat(NAMESPACE_BYTES_MAX + 1)), "namespace").await;
    for bad in ["a b", "a/b", "a:b", "{a}", "a*", "é", "a\0", "a%"] {
        let refusal = world.try_client_with(|builder| builder.namespace(bad)).await.unwrap_err();
        assert_refused(&refusal, ErrorKind::InvalidOption, "namespace");
    }
    assert_refused(&Owner::new(&"o".repeat(NOTE_BYTES_MAX + 1)).unwrap_err(), ErrorKind::InvalidOption, "owner");

    // And what is just within the range works.
    let longest = "n".repeat(NOTE_BYTES_MAX);
    let client = world.client_with(|builder| builder.label(&longest)).await;
    let guard = client.mutex("labelled").unwrap().lock().await.unwrap();
    assert_eq!(*world.line(&client, "labelled").await.holders[0].note.owner, longest);
    guard.release().await.unwrap();
    let owner = Owner::new(&longest).unwrap();
    let guard = client.reentrant("owned").unwrap().lock(&owner).await.unwrap();
    assert_eq!(*world.line(&client, "owned").await.holders[0].note.owner, longest);
    guard.release().await.unwrap();
    let client = world.client_with(|builder| builder.ttl(Duration::from_secs(24 * 60 * 60))).await;
    client.mutex("long").unwrap().lock().await.unwrap().release().await.unwrap();
    assert_nothing_stored(&client).await;
}

pub async fn permits_that_could_never_be_granted_are_refused(world: World) {
    let client = world.client().await;
    let refused = client.semaphore("permits", 0).unwrap_err();
    assert_refused(&refused, ErrorKind::InvalidOption, "permits");
    assert_eq!(refused.key().map(Key::name), Some(&b"permits"[..]));
    if !world.capabilities().await.counted {
        assert_refused(&client.semaphore("permits", 3).unwrap_err(), ErrorKind::Unsupported, "permits");
        return assert_nothing_stored(&client).await;
    }
    let permits = client.semaphore("permits", 3).unwrap();
    for count in [0, 4, u32::MAX] {
        for refused in [
            permits.acquire(count).await.map(drop),
            permits.try_acquire(count).await.map(drop),
            permits.acquire_within(count, world.ttl()).await.map(drop),
            permits.attempt_within(count, world.ttl()).await.map(drop),
            permits.with(count, async |_| ()).await,
        ] {
            let refused = refused.unwrap_err();
            assert_refused(&refused, ErrorKind::InvalidOption, &format!("{count} permits"));
            assert_eq!(refused.key(), Some(permits.key()));
        }
        assert_nothing_stored(&client).await;
    }
    assert_eq!(client.faults.calls(Verb::Enter), 0);
    let widest = client.semaphore("widest", u32::MAX).unwrap();
    widest.acquire(u32::MAX).await.unwrap().release().await.unwrap();
    assert_nothing_stored(&client).await;
}

pub async fn an_election_value_that_is_too_long_is_refused(world: World) {
    let client = world.client().await;
    if !world.capabilities().await.notes {
        assert_refused(&client.election("office").unwrap_err(), ErrorKind::Unsupported, "office");
        return assert_nothing_stored(&client).await;
    }
    let election = client.election("office").unwrap();
    let refused = election.campaign(vec![0; NOTE_BYTES_MAX + 1]).await.unwrap_err();
    assert_refused(&refused, ErrorKind::InvalidOption, "value");
    assert_eq!(refused.key(), Some(election.key()));
    assert_nothing_stored(&client).await;
}

pub async fn a_key_in_use_as_another_kind_is_refused_and_unharmed(world: World) {
    let (client, able) = (world.client().await, world.capabilities().await);
    if !able.counted {
        return;
    }
    let guard = client.mutex("kind").unwrap().lock().await.unwrap();
    let permits = client.semaphore("kind", 3).unwrap();
    assert_refused(&permits.try_acquire(1).await.unwrap_err(), ErrorKind::KindMismatch, "kind");
    assert_refused(&permits.acquire(1).await.unwrap_err(), ErrorKind::KindMismatch, "kind");
    let line = world.line(&client, "kind").await;
    assert_eq!((line.holders.len(), line.waiters.unwrap_or_default().len()), (1, 0));
    guard.release().await.unwrap();
    let guard = permits.acquire(1).await.unwrap();
    assert_refused(&client.mutex("kind").unwrap().lock().await.unwrap_err(), ErrorKind::KindMismatch, "kind");
    let other = client.semaphore("kind", 4).unwrap();
    assert_refused(&other.acquire(1).await.unwrap_err(), ErrorKind::CapacityMismatch, "kind");
    let line = world.line(&client, "kind").await;
    assert_eq!((line.holders.len(), line.waiters.unwrap_or_default().len()), (1, 0));
    guard.release().await.unwrap();
    assert_nothing_stored(&client).await;
}

pub async fn an_unknown_url_is_refused_without_its_secret(world: World) {
    for rest in [format!("//user:{SECRET}@db-1/0"), SECRET.to_owned(), format!("//db-1/0?password={SECRET}")] {
        let url = format!("nosuch:{rest}");
        let error = Locks::builder(&url).clock(world.clock()).connect().await.unwrap_err();
        assert_refused(&error, ErrorKind::Unsupported, "nosuch");
        for shown in [error.to_string(), format!("{error:?}"), format!("{:?}", Locks::builder(&url))] {
            assert!(!shown.contains(SECRET), "{shown}");
        }
    }
}

/// Somebody forgot the scheme, so what stands before the first colon, if there is one, may be anything.
pub async fn a_url_without_a_scheme_does_not_show_what_stands_in_its_place(world: World) {
    for url in ["hunter2", "//hunter2@db-1", "hunter2@db-1:6379", "redis//user-hunter2:x@db-1", "/hunter2/db:1"] {
        let error = Locks::builder(url).clock(world.clock()).connect().await.unwrap_err();
        assert!([ErrorKind::Unsupported, ErrorKind::InvalidOption].contains(&error.kind()), "{error}");
        for shown in [error.to_string(), format!("{error:?}"), format!("{:?}", Locks::builder(url))] {
            assert!(!shown.contains(SECRET), "{shown}");
        }
    }
}
