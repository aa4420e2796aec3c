//! `leasehold elect`: stands for an office, or tells who has it.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::pin::pin;

use futures_util::StreamExt;
use leasehold::clock::{Clock, Timer};
use leasehold::{Key, Leader, Locks};
use rustix::process::Signal;
use serde::Serialize;

use crate::args::{self, OnYield};
use crate::commands::run::{Grant, Signals, Waited, Wanted, connect, leave, part, under, wait};
use crate::exit;
use crate::output::escaped;
use crate::output::json::{NameJson, text, write_line};
use crate::settings::Settings;

/// Who leads.
#[derive(Serialize)]
struct LeaderJson {
    value: String,
    /// In hexadecimal, if the value is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_bytes: Option<String>,
    token: u64,
    owner: String,
    host: String,
    pid: u32,
}

/// That we lead.
#[derive(Serialize)]
struct LeadingJson {
    event: &'static str,
    #[serde(flatten)]
    name: NameJson,
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_bytes: Option<String>,
    token: Option<u64>,
}

/// What a listener sees.
#[derive(Serialize)]
struct SightJson {
    event: &'static str,
    #[serde(flatten)]
    name: NameJson,
    leader: Option<LeaderJson>,
}

/// Stands for the office, or listens, and returns the exit code.
pub(crate) async fn run(settings: &Settings, args: &args::Elect) -> anyhow::Result<u8> {
    // Before anything else, so that no signal is missed from here on.
    let mut signals = Signals::listen()?;
    let locks = match connect(settings, &mut signals).await? {
        Ok(locks) => locks,
        Err(code) => return Ok(code),
    };
    let Some(value) = &args.value else { return listen(settings, args, &locks, &mut signals).await };
    let wanted = Wanted::office(&locks, &args.key, value)?;
    if !args.command.is_empty() {
        return under(settings, &args.wait, &args.child, &args.command, &locks, &wanted, &mut signals).await;
    }
    let timer = Timer::on_callers_runtime(Clock::boot());
    let grant = match wait(settings, &locks, &wanted, &args.wait, &timer, &mut signals).await? {
        Waited::Held(grant) => grant,
        Waited::Ended(code) => return Ok(code),
    };
    let lost = lead(settings, args, &grant, value.as_bytes(), &mut signals).await;
    let parted = part(&timer, grant).await;
    leave(&timer, &locks).await;
    Ok(if lost? { exit::LOST } else { parted.code_or(0) })
}

/// Leads until a signal asks us to end, or somebody asks for the office and may have it; `true` if it was lost.
async fn lead(
    settings: &Settings,
    args: &args::Elect,
    grant: &Grant,
    value: &[u8],
    signals: &mut Signals,
) -> io::Result<bool> {
    let held = grant.held();
    let mut out = io::stdout();
    if settings.look.json {
        let (value, value_bytes) = text(value);
        let token = grant.token().map(leasehold::FencingToken::get);
        write_line(
            &mut out,
            &LeadingJson { event: "leading", name: NameJson::new(held.key()), value, value_bytes, token },
        )?;
    } else {
        writeln!(out, "{grant}")?;
    }
    out.flush()?;
    let mut yield_told = false;
    loop {
        tokio::select! {
            biased;
            loss = held.lost() => {
                exit::say(&format!("the office \"{}\" was lost: {loss}", held.key()));
                return Ok(true);
            }
            _ = signals.end() => return Ok(false),
            () = held.yield_requested(), if !yield_told => {
                yield_told = true;
                let wish = format!("somebody asks for \"{}\"", held.key());
                match args.child.on_yield {
                    OnYield::Signal(Signal::TERM) => {
                        settings.detail(&format!("{wish}; resigning"));
                        return Ok(false);
                    }
                    _ => settings.look.say(&format!("{wish}; leading on (see --on-yield)")),
                }
            }
        }
    }
}

/// Prints who leads until a signal asks us to end.
async fn listen(settings: &Settings, args: &args::Elect, locks: &Locks, signals: &mut Signals) -> anyhow::Result<u8> {
    let election = locks.election(args.key.as_bytes())?;
    let mut leaders = pin!(election.observe());
    loop {
        tokio::select! {
            biased;
            _ = signals.end() => return Ok(0),
            leader = leaders.next() => match leader {
                Some(leader) => print(settings, election.key(), leader?)?,
                None => return Ok(0),
            },
        }
    }
}

fn print(settings: &Settings, key: &Key, leader: Option<Leader>) -> io::Result<()> {
    let mut out = io::stdout();
    if settings.look.json {
        let leader = leader.map(|leader| {
            let (value, value_bytes) = text(&leader.value);
            let (owner, host) = (leader.note.owner.to_string(), leader.note.host.to_string());
            LeaderJson { value, value_bytes, token: leader.token.get(), owner, host, pid: leader.note.pid }
        });
        write_line(&mut out, &SightJson { event: "leader", name: NameJson::new(key), leader })?;
    } else {
        match leader {
            // The value comes first, and what follows it cannot be mistaken for a part of it.
            Some(Leader { value, token, note, .. }) => {
                writeln!(out, "{}\ttoken {token}\t{}", escaped(&value), crate::output::whom(&note))?;
            }
            None => writeln!(out, "-\tnobody leads \"{key}\"")?,
        }
    }
    out.flush()
}
