//! `leasehold yield KEY`: asks holders to let go.

use std::io::Write;

use leasehold::Locks;
use leasehold::backend::Asked;
use serde::Serialize;

use super::pick;
use crate::exit::{self, Failure};
use crate::output::json::{EntryJson, NameJson, write_line};
use crate::output::{Look, short_id, who};

/// Who was asked.
#[derive(Serialize)]
struct YieldJson {
    #[serde(flatten)]
    name: NameJson,
    #[serde(flatten)]
    entry: EntryJson,
}

/// Asks the entry that `digits` name, or every holder.
pub(crate) async fn run(
    locks: &Locks,
    name: &[u8],
    digits: Option<&str>,
    look: Look,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let view = pick::line_of(locks, name).await?;
    let key = &view.key;
    let entries = match digits {
        Some(digits) => vec![pick::entry(&view, digits, look)?],
        None => view.holders.iter().collect(),
    };
    let mut told = 0;
    for entry in entries {
        if locks.ask_to_yield(entry).await? == Asked::NotThere {
            if entry.foreign {
                look.say(&format!("\"{key}\" is held by a program of another kind, which cannot be asked"));
                continue;
            }
            look.say(&format!("entry {} of \"{key}\" had left already", short_id(entry)));
            continue;
        }
        told += 1;
        if look.json {
            let mut entry = entry.clone();
            entry.yield_asked = true;
            write_line(out, &YieldJson { name: NameJson::new(key), entry: EntryJson::new(&entry) })?;
        } else {
            writeln!(out, "asked {} of {} to let go of \"{key}\"", short_id(entry), who(entry))?;
        }
    }
    if told == 0 {
        return Err(Failure::new(exit::NOTHING, format!("nobody was there to be asked for \"{key}\"")).into());
    }
    look.say("this is a wish: whoever has the key decides");
    Ok(())
}
