//! How a command that acts on an entry finds the one that is meant.

use leasehold::Locks;
use leasehold::backend::{EntryView, KeyView};

use super::show;
use crate::exit::{self, Failure};
use crate::output::{Look, escaped, line};

/// The fewest digits that name an entry. With fewer, a slip of the finger would hit another one before long.
const DIGITS_MIN: usize = 6;

/// How many digits an id has.
const DIGITS_MAX: usize = 32;

/// The line of a key; a failure if nobody is in it.
pub(crate) async fn line_of(locks: &Locks, name: &[u8]) -> anyhow::Result<KeyView> {
    let empty = || Failure::new(exit::NOTHING, format!("nobody holds or awaits \"{}\" on {locks}", escaped(name)));
    Ok(locks.inspect(name).await?.ok_or_else(empty)?)
}

/// The entry of the line whose id begins with `digits`.
pub(crate) fn entry<'a>(view: &'a KeyView, digits: &str, look: Look) -> anyhow::Result<&'a EntryView> {
    let digits = digits.to_ascii_lowercase();
    let key = &view.key;
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) || !(DIGITS_MIN..=DIGITS_MAX).contains(&digits.len()) {
        let shown = escaped(digits.as_bytes());
        let wanted = format!("an entry is named by {DIGITS_MIN} to {DIGITS_MAX} hexadecimal digits");
        return Err(Failure::usage(format!("\"{shown}\" names no entry: {wanted}")).into());
    }
    let mut found = line(view).filter(|entry| entry.place.entry.to_string().starts_with(&digits));
    match (found.next(), found.next()) {
        (Some(entry), None) => Ok(entry),
        (None, _) => {
            let why = format!("no entry of \"{key}\" begins with {digits}; it may have left meanwhile");
            Err(Failure::new(exit::NOTHING, why).into())
        }
        (Some(_), Some(_)) => {
            offer(view, look);
            Err(Failure::usage(format!("several entries of \"{key}\" begin with {digits}: name more digits")).into())
        }
    }
}

/// Shows the entries to choose from. On stderr, since it is not what was asked for.
pub(crate) fn offer(view: &KeyView, look: Look) {
    let _ = show::table(view).write(&mut std::io::stderr(), look.width, false);
}
