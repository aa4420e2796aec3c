//! Listing the keys of a server.

use redis::RedisResult;

use crate::backend::redis::command::Command;
use crate::backend::redis::pipe::Pipe;

/// How many keys a server looks at in one step.
const STEP: u64 = 1000;

/// Shows every name on that server that the pattern fits, some of them maybe twice. As many trips as all its keys have steps.
pub(in crate::backend) async fn names(pipe: &Pipe, pattern: &str, mut show: impl FnMut(&[u8])) -> RedisResult<()> {
    let mut cursor = 0;
    loop {
        let scan = Command::of(6).part(b"SCAN").number(cursor).part(b"MATCH").part(pattern.as_bytes());
        let answer = pipe.ask(&scan.part(b"COUNT").number(STEP)).await?;
        let (next, found): (u64, Vec<Vec<u8>>) = redis::from_redis_value(answer)?;
        found.iter().for_each(|name| show(name));
        cursor = next;
        if cursor == 0 {
            return Ok(());
        }
    }
}
