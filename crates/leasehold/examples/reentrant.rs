//! A re-entrant lock: a function that holds it may call another one that takes it too.
//!
//! Who counts as the same owner is said by an explicit [`Owner`], because work moves between threads at every await.

use leasehold::{FencingToken, Owner, Reentrant};

/// Closes an account, which withdraws from it on the way, under one grant.
#[tokio::main]
pub async fn main() -> leasehold::Result<()> {
    let locks = leasehold::connect("memory:").await?;
    let account = locks.reentrant("account/7")?;

    close(&account, &Owner::new("closing account 7")?).await?;

    // Everything was given up: another owner gets it at once, even one of the same name.
    assert!(account.try_lock(&Owner::new("closing account 7")?).await?.is_some());
    Ok(())
}

async fn close(account: &Reentrant, owner: &Owner) -> leasehold::Result<()> {
    let outer = account.lock(owner).await?;
    println!("closing under token {}", outer.token());
    let token = withdraw(account, owner).await?;
    assert_eq!(token, outer.token(), "re-entry is no new grant, so it keeps the token");
    assert_eq!(outer.holds(), 1, "the inner hold is gone, the outer one stays");

    // To anybody else it is an ordinary mutex that is taken.
    assert!(account.try_lock(&Owner::new("somebody else")?).await?.is_none());
    outer.release().await
}

async fn withdraw(account: &Reentrant, owner: &Owner) -> leasehold::Result<FencingToken> {
    let inner = account.lock(owner).await?;
    println!("withdrawing under token {}, with {} holds", inner.token(), inner.holds());
    assert_eq!(inner.holds(), 2);
    let token = inner.token();
    inner.release().await?;
    Ok(token)
}
