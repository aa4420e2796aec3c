//! What the server answers, read.

use std::collections::HashMap;
use std::time::Duration;

use mysql_async::Row;
use mysql_async::prelude::FromValue;

use super::pool::Answer;
use crate::backend::sql::polling::Stand;
use crate::backend::sql::waiters::gone;
use crate::backend::sql::{self, protocol, recheck_in, span};
use crate::backend::{Departure, EntryId, EntryView, KeyView, Lease, LeaseId, Note, Place, Request, Standing, Version};
use crate::claim::Claim;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::Ticket;
use crate::key::{Key, Namespace};

/// A column of a row.
pub(super) fn column<T: FromValue>(row: &Row, name: &str) -> Result<T> {
    match row.get_opt(name) {
        Some(Ok(value)) => Ok(value),
        _ => Err(protocol(format!("the column {name} is not what it should be"))),
    }
}

/// The only row of an answer.
pub(super) fn only(rows: &[Row]) -> Result<&Row> {
    match rows {
        [row] => Ok(row),
        _ => Err(protocol(format!("{} rows, and one was expected", rows.len()))),
    }
}

/// An entry was inserted where there was no line.
pub(super) fn alone(answer: &Answer, request: &Request) -> Result<Standing> {
    let counted = answer.counted.ok_or_else(|| protocol("a row was inserted, and not counted"))?;
    let ticket = sql::ticket(i64::try_from(counted).unwrap_or(-1))?;
    Ok(holding(ticket, request))
}

fn holding(ticket: Ticket, Request { place, claim, terms, .. }: &Request) -> Standing {
    let lease = Lease { id: LeaseId::Entry(place.clone()), ttl: terms.holding };
    Standing::Holding { ticket, token: sql::token(*claim, ticket), lease }
}

/// A row of `enter`. Who holds a key that was refused is to be asked.
pub(super) fn standing(row: &Row, request: &Request) -> Result<Standing> {
    let Request { place, claim, terms, .. } = request;
    let soonest = || column::<Option<i64>>(row, "soonest_us").map(|left| left.map_or(Duration::MAX, span));
    let standing: String = column(row, "standing")?;
    match &*standing {
        "holding" => Ok(holding(sql::ticket(column(row, "ticket")?)?, request)),
        "waiting" => {
            let (ahead, holders) = (count(row, "ahead")?, count(row, "holders")?);
            let recheck_in = recheck_in(ahead, holders, soonest()?, true);
            let lease = Some(Lease { id: LeaseId::Entry(place.clone()), ttl: terms.waiting });
            Ok(Standing::Waiting { ahead: Some(ahead), turn: None, lease, seen: Version(0), recheck_in })
        }
        "refused" => Ok(Standing::Refused { held_by: Vec::new(), recheck_in: recheck_in(1, 1, soonest()?, false) }),
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

/// A row of `leave`.
pub(super) fn departure(row: &Row) -> Result<Departure> {
    match &*column::<String>(row, "standing")? {
        "holding" => Ok(Departure::WasHolding),
        "waiting" => Ok(Departure::WasWaiting),
        "gone" => Ok(Departure::WasGone),
        other => Err(protocol(format!("a departure of {other:?}"))),
    }
}

/// A row of `entry, ticket, holds, ahead, first`.
pub(super) fn stand(row: &Row) -> Result<Stand> {
    let (ticket, first) = (sql::ticket(column(row, "ticket")?)?, sql::ticket(column(row, "first")?)?);
    Ok(Stand { entry: id(row)?, ticket, holds: column(row, "holds")?, ahead: count(row, "ahead")?, first })
}

pub(super) fn id(row: &Row) -> Result<EntryId> {
    let id: Vec<u8> = column(row, "entry")?;
    let id = id.try_into().map_err(|_| protocol("an entry's id has not 16 bytes"))?;
    Ok(EntryId(u128::from_be_bytes(id)))
}

/// The rows of `list`: entries in the order of their keys and tickets.
pub(super) fn lines(rows: &[Row], namespace: &Namespace) -> Result<Vec<KeyView>> {
    let mut views: Vec<KeyView> = Vec::new();
    for row in rows {
        let key = Key::new(namespace, column::<Vec<u8>>(row, "name")?)?;
        let (holds, entry) = entry(row, &key)?;
        if views.last().is_none_or(|view| view.key != key) {
            let capacity = Some(entry.claim.capacity());
            views.push(KeyView { key, capacity, holders: Vec::new(), waiters: Some(Vec::new()) });
        }
        if let Some(KeyView { holders, waiters: Some(waiters), .. }) = views.last_mut() {
            if holds { holders.push(entry) } else { waiters.push(entry) }
        }
    }
    Ok(views)
}

/// Rows of leases that are not over, and whether their holders have been asked to let go.
pub(super) fn renewed(rows: &[Row]) -> Result<HashMap<EntryId, bool>> {
    rows.iter().map(|row| Ok((id(row)?, column(row, "yield_asked")?))).collect()
}

/// The row of `foreign`: a holder of another kind.
pub(super) fn foreign(row: &Row, key: &Key) -> Result<EntryView> {
    let owner: Vec<u8> = column(row, "owner")?;
    Ok(EntryView {
        place: Place { key: key.clone(), entry: id(row)? },
        claim: Claim::Exclusive,
        ticket: Ticket(0),
        token: None,
        note: Note { owner: String::from_utf8_lossy(&owner).into(), ..Note::default() },
        age: span(column(row, "age_us")?),
        lease_left: span(column(row, "left_us")?),
        yield_asked: false,
        foreign: true,
        spread: None,
    })
}

/// Whether it holds, and what it is.
fn entry(row: &Row, key: &Key) -> Result<(bool, EntryView)> {
    let text = |name: &str| {
        let bytes: Vec<u8> = column(row, name)?;
        String::from_utf8(bytes).map_err(|_| protocol(format!("the column {name} is no UTF-8")))
    };
    let claim = sql::claim(column(row, "weight")?, column(row, "capacity")?)?;
    let (ticket, holds) = (sql::ticket(column(row, "ticket")?)?, column::<bool>(row, "holds")?);
    let value: Option<Vec<u8>> = column(row, "value")?;
    let pid = u32::try_from(column::<i64>(row, "pid")?).map_err(|_| protocol("a process's number is out of range"))?;
    let view = EntryView {
        place: Place { key: key.clone(), entry: id(row)? },
        claim,
        ticket,
        token: if holds { sql::token(claim, ticket) } else { None },
        note: Note { owner: text("owner")?.into(), host: text("host")?.into(), pid, value: value.map(Into::into) },
        age: span(column(row, "age_us")?),
        lease_left: span(column(row, "left_us")?),
        yield_asked: column(row, "yield_asked")?,
        foreign: false,
        spread: None,
    };
    Ok((holds, view))
}
