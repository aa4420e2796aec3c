//! `leasehold evict KEY ENTRY`: takes an entry out of its line.

use std::io::Write;

use leasehold::Locks;
use leasehold::backend::Departure;
use serde::Serialize;

use super::pick;
use crate::exit::{self, Failure};
use crate::output::json::{EntryJson, NameJson, write_line};
use crate::output::{Look, kind, number, short_id, who};

/// What was evicted.
#[derive(Serialize)]
struct EvictJson {
    #[serde(flatten)]
    name: NameJson,
    was: &'static str,
    #[serde(flatten)]
    entry: EntryJson,
}

/// Evicts the entry that `digits` name. Without them it only says which entries there are: a key alone does not tell
/// the one that was meant from whoever came after it.
pub(crate) async fn run(
    locks: &Locks,
    name: &[u8],
    digits: Option<&str>,
    look: Look,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let view = pick::line_of(locks, name).await?;
    let key = &view.key;
    let Some(digits) = digits else {
        pick::offer(&view, look);
        return Err(Failure::usage(format!("name the entry of \"{key}\" to evict: one of those above")).into());
    };
    let entry = pick::entry(&view, digits, look)?;
    let (was, did) = match locks.evict(entry).await? {
        Departure::WasHolding => ("holding", "held"),
        Departure::WasWaiting => ("waiting", "awaited"),
        Departure::WasGone => {
            let why = format!("entry {} of \"{key}\" had left already; nothing was evicted", short_id(entry));
            return Err(Failure::new(exit::NOTHING, why).into());
        }
    };
    if look.json {
        write_line(out, &EvictJson { name: NameJson::new(key), was, entry: EntryJson::new(entry) })?;
    } else {
        let (id, kind, who, ticket) = (short_id(entry), kind(entry.claim), who(entry), number(entry));
        let ticket = if entry.foreign { String::new() } else { format!(" with ticket {ticket}") };
        writeln!(out, "evicted {id} of {who}, which {did} \"{key}\" ({kind}){ticket}")?;
    }
    Ok(())
}
