//! `leasehold show KEY`: everything about one key.

use std::io::Write;

use leasehold::Locks;
use leasehold::backend::{EntryView, KeyView};
use serde::Serialize;

use crate::output::json::{KeyJson, write_line};
use crate::output::table::{Cut, Table};
use crate::output::{Look, age, escaped, lease_left, number, short_id, used_as, who};

/// A key, and where it is.
#[derive(Serialize)]
struct ShowJson {
    #[serde(flatten)]
    key: KeyJson,
    store: String,
    namespace: String,
    encoded: String,
}

/// Shows who holds the key and who waits for it, in order. A key without a line is no failure.
pub(crate) async fn run(locks: &Locks, name: &[u8], look: Look, out: &mut impl Write) -> anyhow::Result<()> {
    let Some(view) = locks.inspect(name).await? else {
        if look.json {
            write_line(out, &None::<ShowJson>)?;
        } else {
            look.say(&format!("nobody holds or awaits \"{}\" on {locks}", escaped(name)));
        }
        return Ok(());
    };
    let (store, namespace) = (locks.to_string(), view.key.namespace().as_str().to_owned());
    if look.json {
        let encoded = view.key.encoded(b"");
        write_line(out, &ShowJson { key: KeyJson::new(&view), store, namespace, encoded })?;
    } else {
        let facts = [
            ("key", view.key.to_string()),
            ("kind", used_as(view.capacity)),
            ("store", store),
            ("namespace", namespace),
            ("encoded", view.key.encoded(b"")),
        ];
        for (what, fact) in facts {
            writeln!(out, "{what:<9}  {fact}")?;
        }
        writeln!(out)?;
        table(&view).write(out, look.width, look.color)?;
        if view.waiters.is_none() {
            look.say("this store cannot tell who waits");
        }
    }
    Ok(())
}

/// One row for each entry of a key, in the order of their turns.
pub(crate) fn table(view: &KeyView) -> Table {
    let mut table = Table::new([
        ("PLACE", Cut::Never),
        ("ENTRY", Cut::Never),
        ("CLAIM", Cut::Never),
        ("WHO", Cut::End),
        ("TICKET", Cut::Never),
        ("AGE", Cut::Never),
        ("LEASE LEFT", Cut::Never),
        ("NOTE", Cut::End),
    ]);
    let mut row = |place: String, entry: &EntryView| {
        let (age, left) = (age(entry), lease_left(entry));
        let claim = entry.claim.to_string();
        table.row([place, short_id(entry), claim, who(entry), number(entry), age, left, note(entry)]);
    };
    for holder in &view.holders {
        row("holds".into(), holder);
    }
    for (nth, waiter) in view.waiters.iter().flatten().enumerate() {
        row(format!("waits {}", nth + 1), waiter);
    }
    table.without_empty_end()
}

fn note(entry: &EntryView) -> String {
    let asked = entry.yield_asked.then(|| "asked to yield".to_owned());
    let value = entry.note.value.as_deref().map(|value| format!("value {}", escaped(value)));
    let spread = entry.spread.map(|spread| spread.to_string());
    asked.into_iter().chain(value).chain(spread).collect::<Vec<_>>().join(", ")
}
