//! A read/write lock: readers share it, a writer has it alone, and readers that come later do not overtake the writer.

/// Lets two readers in, a writer behind them, and a third reader behind the writer.
#[tokio::main]
pub async fn main() -> leasehold::Result<()> {
    let locks = leasehold::connect("memory:").await?;
    let prices = locks.rw_lock("prices")?;

    let readers = (prices.read().await?, prices.read().await?);
    println!("two readers share the lock");
    assert!(prices.try_write().await?.is_none());

    // The writer takes its place in line as soon as it is polled; what happens around it is in the second branch.
    let (writer, ()) = tokio::try_join!(prices.write(), async {
        // There would be room for one more reader, but a writer waits, and would wait for ever if readers kept coming.
        assert!(prices.try_read().await?.is_none());
        println!("a third reader is told to wait: a writer is ahead of it");
        readers.0.release().await?;
        readers.1.release().await
    })?;

    println!("the writer has it alone, under token {}", writer.token());
    assert!(prices.try_read().await?.is_none());
    writer.release().await?;
    assert!(prices.try_read().await?.is_some());
    Ok(())
}
