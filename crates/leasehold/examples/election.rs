//! An election: one of two schedulers leads, says where it can be reached, and everybody can see who it is.

use std::pin::pin;

use futures_util::StreamExt as _;
use leasehold::{Leader, Locks};

const STORE: &str = "memory:election-example";

/// Lets one candidate lead, proclaim something new and resign, and the other one follow it.
#[tokio::main]
pub async fn main() -> leasehold::Result<()> {
    let first = Locks::builder(STORE).label("scheduler-1").connect().await?.election("scheduler")?;
    let second = Locks::builder(STORE).label("scheduler-2").connect().await?.election("scheduler")?;

    // An observer needs no candidacy. It is told of every change, beginning with how things are.
    let mut leaders = pin!(leasehold::connect(STORE).await?.election("scheduler")?.observe());
    assert_eq!(leaders.next().await.expect("observing does not end")?, None);

    let mut leading = first.campaign("10.0.0.1:80").await?;
    leading.proclaim("10.0.0.1:8080").await?;

    // The second candidate waits in line until the first one resigns, dies, or can no longer be heard of.
    let first_term = leading.token();
    let (next, ()) = tokio::try_join!(second.campaign("10.0.0.2:80"), leading.resign())?;
    assert!(next.token() > first_term, "each term has a larger number than the one before");

    let mut seen = Vec::new();
    while seen.last().is_none_or(|value| value != "10.0.0.2:80") {
        let leader = leaders.next().await.expect("observing does not end")?;
        match &leader {
            Some(leader) => println!("leads: {leader}"),
            None => println!("nobody leads"),
        }
        seen.extend(leader.as_ref().map(address));
    }
    assert_eq!(seen, ["10.0.0.1:80", "10.0.0.1:8080", "10.0.0.2:80"]);
    next.resign().await
}

fn address(leader: &Leader) -> String {
    String::from_utf8_lossy(&leader.value).into_owned()
}
