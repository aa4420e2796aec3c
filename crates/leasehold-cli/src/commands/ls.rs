//! `leasehold ls`: every key that somebody holds or awaits.

use std::io::Write;

use leasehold::Locks;
use leasehold::backend::KeyView;

use crate::output::json::{KeyJson, write_line};
use crate::output::table::{Cut, Table};
use crate::output::{Look, age, escaped, kind, lease_left, number, used_as, who};

/// Shows the keys whose names begin with `prefix`.
pub(crate) async fn run(locks: &Locks, prefix: &[u8], look: Look, out: &mut impl Write) -> anyhow::Result<()> {
    let mut views = locks.inspect_all().await?;
    views.retain(|view| view.key.name().starts_with(prefix));
    if look.json {
        let keys: Vec<_> = views.iter().map(KeyJson::new).collect();
        write_line(out, &keys)?;
    } else if views.is_empty() {
        let what = if prefix.is_empty() { String::new() } else { format!(" that begins with \"{}\"", escaped(prefix)) };
        look.say(&format!("nobody holds or awaits anything{what} on {locks}"));
    } else {
        table(&views).write(out, look.width, look.color)?;
    }
    Ok(())
}

/// One row for each holder.
pub(crate) fn table(views: &[KeyView]) -> Table {
    let mut table = Table::new([
        ("KEY", Cut::Middle),
        ("KIND", Cut::Never),
        ("HELD BY", Cut::End),
        ("WAITING", Cut::Never),
        ("TICKET", Cut::Never),
        ("AGE", Cut::Never),
        ("LEASE LEFT", Cut::Never),
    ]);
    for view in views {
        let key = view.key.to_string();
        let waiting = view.waiters.as_ref().map_or_else(|| "?".into(), |waiters| waiters.len().to_string());
        for holder in &view.holders {
            table.row([
                key.clone(),
                kind(holder.claim),
                who(holder),
                waiting.clone(),
                number(holder),
                age(holder),
                lease_left(holder),
            ]);
        }
        if view.holders.is_empty() {
            let none = || "-".to_owned();
            table.row([key, used_as(view.capacity), none(), waiting, none(), none(), none()]);
        }
    }
    table
}
