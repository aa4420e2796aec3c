//! What the server answers, read.

use std::collections::HashMap;

use tokio_postgres::Row;
use tokio_postgres::types::FromSqlOwned;

use crate::backend::sql::polling::Stand;
use crate::backend::sql::waiters::gone;
use crate::backend::sql::{self, protocol, recheck_in, span};
use crate::backend::{
    Departure, EntryId, EntryView, KeyView, Lease, LeaseId, Note, Place, Renewal, Request, Standing, Version,
};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;

/// A column of a row.
pub(super) fn column<T: FromSqlOwned>(row: &Row, name: &str) -> Result<T> {
    row.try_get(name).map_err(|_| protocol(format!("the column {name} is not what it should be")))
}

/// The only row of an answer.
pub(super) fn only(rows: &[Row]) -> Result<&Row> {
    match rows {
        [row] => Ok(row),
        _ => Err(protocol(format!("{} rows, and one was expected", rows.len()))),
    }
}

/// An entry that has the lock, by its ticket.
pub(super) fn holding(row: &Row, Request { place, claim, terms, .. }: &Request) -> Result<Standing> {
    let ticket = sql::ticket(column(row, "ticket")?)?;
    let lease = Lease { id: LeaseId::Entry(place.clone()), ttl: terms.holding };
    Ok(Standing::Holding { ticket, token: sql::token(*claim, ticket), lease })
}

/// A row of `enter`.
pub(super) fn standing(row: &Row, request: &Request, polled: bool) -> Result<Standing> {
    let Request { place, claim, terms, .. } = request;
    let soonest = || column::<Option<i64>>(row, "soonest_us").map(|left| left.map_or(std::time::Duration::MAX, span));
    let standing: String = column(row, "standing")?;
    match &*standing {
        "holding" => holding(row, request),
        "waiting" => {
            let (ahead, holders) = (count(row, "ahead")?, count(row, "holders")?);
            let recheck_in = recheck_in(ahead, holders, soonest()?, polled);
            let lease = Some(Lease { id: LeaseId::Entry(place.clone()), ttl: terms.waiting });
            Ok(Standing::Waiting { ahead: Some(ahead), turn: None, lease, seen: Version(0), recheck_in })
        }
        "refused" => {
            let held_by = held(&place.key, &column::<String>(row, "line")?)?.holders;
            Ok(Standing::Refused { held_by, recheck_in: recheck_in(1, 1, soonest()?, false) })
        }
        "gone" => Ok(gone()),
        "mismatch" => {
            let capacity: i64 = column(row, "capacity")?;
            sql::claim(1, capacity)?.capacity().admits(*claim, &place.key)?;
            Err(protocol("a claim was refused that fits"))
        }
        "full" => {
            let full = format!("{} entries are in line already", sql::LINE_MAX);
            Err(Error::new(ErrorKind::Full, full).at(&place.key))
        }
        other => Err(protocol(format!("a standing of {other:?}"))),
    }
}

fn count(row: &Row, name: &str) -> Result<u32> {
    column::<i64>(row, name).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
}

/// The rows of `renew`: which leases were extended, and whether their holders have been asked to let go.
pub(super) fn renewed(rows: &[Row]) -> Result<HashMap<Vec<u8>, bool>> {
    rows.iter().map(|row| Ok((column(row, "entry")?, column(row, "yield_asked")?))).collect()
}

/// What became of one lease of those.
pub(super) fn renewal(renewed: &Result<HashMap<Vec<u8>, bool>>, lease: &Lease) -> Renewal {
    let LeaseId::Entry(place) = &lease.id;
    match renewed {
        Err(error) => Renewal::Unknown(error.clone()),
        Ok(renewed) => match renewed.get(&place.entry.0.to_be_bytes()[..]) {
            Some(yield_asked) => Renewal::Renewed { ttl: lease.ttl, yield_asked: *yield_asked, waits: false },
            None => Renewal::Lost,
        },
    }
}

/// A row of `stand`.
pub(super) fn stand(row: &Row) -> Result<Stand> {
    let id: Vec<u8> = column(row, "entry")?;
    let id = id.try_into().map_err(|_| protocol("an entry's id has not 16 bytes"))?;
    let (ticket, first) = (sql::ticket(column(row, "ticket")?)?, sql::ticket(column(row, "first")?)?);
    let (entry, ahead) = (EntryId(u128::from_be_bytes(id)), count(row, "ahead")?);
    Ok(Stand { entry, ticket, holds: column(row, "holds")?, ahead, first })
}

/// The answer of `leave`.
pub(super) fn departure(row: &Row) -> Result<Departure> {
    match &*column::<String>(row, "standing")? {
        "holding" => Ok(Departure::WasHolding),
        "waiting" => Ok(Departure::WasWaiting),
        "gone" => Ok(Departure::WasGone),
        other => Err(protocol(format!("a departure of {other:?}"))),
    }
}

/// A line as the server shows all of it.
pub(super) fn line(key: &Key, text: &str) -> Result<KeyView> {
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for row in text.lines() {
        let (holds, entry) = entry(key, row)?;
        if holds { holders.push(entry) } else { waiters.push(entry) }
    }
    let capacity = holders.first().or(waiters.first()).map(|entry: &EntryView| entry.claim.capacity());
    Ok(KeyView { key: key.clone(), capacity, holders, waiters: Some(waiters) })
}

/// Those who hold a key, as the server shows them alone.
pub(super) fn held(key: &Key, text: &str) -> Result<KeyView> {
    Ok(KeyView { waiters: None, ..line(key, text)? })
}

/// Whether it holds, and what it is.
fn entry(key: &Key, row: &str) -> Result<(bool, EntryView)> {
    let garbled = || protocol("an entry is shown in a way that makes no sense");
    let words: Vec<&str> = row.split(' ').collect();
    let [ticket, id, weight, capacity, holds, yield_asked, owner, host, pid, value, age, left] = *words.as_slice()
    else {
        return Err(garbled());
    };
    let number = |word: &str| word.parse::<i64>().map_err(|_| garbled());
    let text = |word: &str| String::from_utf8(unhexed(word)?).map_err(|_| garbled());
    let claim = sql::claim(number(weight)?, number(capacity)?)?;
    let (ticket, foreign) = (sql::ticket(number(ticket)?)?, holds == "2");
    let holds = foreign || holds == "1";
    let value = if value == "-" { None } else { Some(unhexed(value)?.into()) };
    let pid = u32::try_from(number(pid)?).map_err(|_| garbled())?;
    let view = EntryView {
        place: Place { key: key.clone(), entry: id.parse::<EntryId>().map_err(|_| garbled())? },
        claim,
        ticket,
        token: if holds { sql::token(claim, ticket) } else { None },
        note: Note { owner: text(owner)?.into(), host: text(host)?.into(), pid, value },
        age: span(number(age)?),
        lease_left: span(number(left)?),
        yield_asked: yield_asked == "1",
        foreign,
        spread: None,
    };
    Ok((holds, view))
}

/// The bytes behind an `x`, two digits each.
pub(super) fn unhexed(word: &str) -> Result<Vec<u8>> {
    let garbled = || protocol("bytes are shown in a way that makes no sense");
    let digits = word.strip_prefix('x').filter(|digits| digits.is_ascii() && digits.len() % 2 == 0);
    let digits = digits.ok_or_else(garbled)?;
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| garbled());
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Namespace;

    fn key() -> Key {
        Key::new(&Namespace::default(), "a").unwrap()
    }

    #[test]
    fn a_line_is_read_as_it_is_shown() {
        let text = "7 0a 4294967296 4294967296 1 0 x6f x 1 x00ff 5 9\n8 0b 1 4294967296 0 1 x x 2 - 0 -3";
        let view = line(&key(), text).unwrap();
        let (holder, waiters) = (&view.holders[0], view.waiters.as_ref().unwrap());
        assert_eq!((holder.ticket.0, holder.token.map(crate::FencingToken::get)), (7, Some(7)));
        assert_eq!((&*holder.note.owner, holder.note.value.as_deref()), ("o", Some(&[0, 255][..])));
        assert!(!holder.foreign);
        assert_eq!((waiters[0].token, waiters[0].yield_asked, waiters[0].lease_left.as_micros()), (None, true, 0));
    }

    #[test]
    fn what_makes_no_sense_is_an_error_and_no_panic() {
        for text in
            ["x", "7 0a 1 1", "7 zz 1 1 1 0 x x 1 - 5 9", "7 0a 1 1 1 0 xa x 1 - 5 9", "7 0a 1 1 1 0 x\u{e4} x 1 - 5 9"]
        {
            assert_eq!(line(&key(), text).unwrap_err().kind(), ErrorKind::Protocol, "{text}");
        }
    }
}
