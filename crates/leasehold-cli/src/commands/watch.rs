//! `leasehold watch`: who holds and who waits, as it changes.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use leasehold::backend::{EntryId, EntryView, KeyView};
use leasehold::clock::{Clock, Timer};
use leasehold::{ErrorKind, Key, Locks};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{ls, show};
use crate::output::json::{EntryJson, NameJson, write_line};
use crate::output::table::{Cut, bold, shortened};
use crate::output::{self, Look, escaped, span, used_as};

/// The shortest time between two looks: a store has better things to do than to be watched.
const EVERY_MIN: Duration = Duration::from_millis(50);

/// What to watch.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// These keys; every key if there are none.
    pub(crate) keys: Vec<Vec<u8>>,
    /// How long from one look to the next.
    pub(crate) every: Duration,
    /// How many looks, if not until a signal.
    pub(crate) count: Option<u64>,
}

/// Watches until a signal comes, which it returns, or until it has looked often enough.
pub(crate) async fn run(
    locks: &Locks,
    options: &Options,
    look: Look,
    out: &mut impl Write,
) -> anyhow::Result<Option<SignalKind>> {
    let mut signals = Signals::new()?;
    let timer = Timer::on_callers_runtime(Clock::boot());
    let every = options.every.max(EVERY_MIN);
    let mut shown = match look.width {
        Some(_) if !look.json => Shown::Table(Screen::open(out)?),
        _ => Shown::Changes { seen: None, failing: false },
    };
    let mut next = timer.now();
    for nth in 1.. {
        match views(locks, &options.keys).await {
            Ok(views) => shown.views(locks, options, &views, look, out)?,
            // A store that is away for a moment is worth waiting for, but not one that was never there.
            Err(error) if nth > 1 && error.kind() == ErrorKind::Unreachable => shown.failure(&error, look, out)?,
            Err(error) => return Err(error.into()),
        }
        if options.count.is_some_and(|count| nth >= count) {
            break;
        }
        next = next.after(every).max(timer.now());
        tokio::select! {
            () = timer.sleep_until(next) => {}
            signal = signals.next() => return Ok(Some(signal)),
        }
    }
    Ok(None)
}

async fn views(locks: &Locks, names: &[Vec<u8>]) -> leasehold::Result<Vec<KeyView>> {
    if names.is_empty() {
        return locks.inspect_all().await;
    }
    let mut views = Vec::new();
    for name in names {
        views.extend(locks.inspect(name).await?);
    }
    Ok(views)
}

/// What ends a watch.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        }
    }
}

/// How a watch shows what it sees.
enum Shown {
    /// To a person: as it is now, in place.
    Table(Screen),
    /// To a program: what has changed, one line each.
    Changes { seen: Option<Vec<KeyView>>, failing: bool },
}

impl Shown {
    fn views(
        &mut self,
        locks: &Locks,
        options: &Options,
        views: &[KeyView],
        look: Look,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        match self {
            Self::Table(screen) => screen.draw(&picture(locks, options, views), look, out)?,
            Self::Changes { seen, failing } => {
                *failing = false;
                for change in changes(seen.as_deref(), views) {
                    write_line(out, &change)?;
                }
                out.flush()?;
                *seen = Some(views.to_vec());
                // Nothing may be written for hours, so a reader that left would never be missed by writing alone.
                refuse_if_nobody_reads()?;
            }
        }
        Ok(())
    }

    fn failure(&mut self, error: &leasehold::Error, look: Look, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Table(screen) => {
                screen.draw(&Picture { heading: format!("{error}; trying again"), parts: Vec::new() }, look, out)
            }
            Self::Changes { failing, .. } => {
                if !std::mem::replace(failing, true) {
                    look.say(&format!("{error}; trying again"));
                }
                Ok(())
            }
        }
    }
}

fn refuse_if_nobody_reads() -> io::Result<()> {
    let stdout = io::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut watched, Some(&at_once)) {
        Ok(1..) if watched[0].revents().contains(PollFlags::ERR) => Err(io::ErrorKind::BrokenPipe.into()),
        _ => Ok(()),
    }
}

/// What a person sees at one moment: a heading, and tables with or without a title.
struct Picture {
    heading: String,
    parts: Vec<(Option<String>, Option<output::table::Table>)>,
}

fn picture(locks: &Locks, options: &Options, views: &[KeyView]) -> Picture {
    let every = span(options.every.max(EVERY_MIN));
    if options.keys.is_empty() {
        let waiting: usize = views.iter().flat_map(|view| &view.waiters).map(Vec::len).sum();
        // What changes comes first: a narrow terminal cuts the end.
        let heading = format!("{} keys in use, {waiting} waiting, seen every {every} on {locks}", views.len());
        let table = ls::table(views);
        return Picture { heading, parts: vec![(None, (!table.is_empty()).then_some(table))] };
    }
    let part = |name: &Vec<u8>| match views.iter().find(|view| view.key.name() == name) {
        Some(view) => (Some(format!("{} ({})", view.key, used_as(view.capacity))), Some(show::table(view))),
        None => (Some(format!("{}: nobody holds or awaits it", escaped(name))), None),
    };
    Picture { heading: format!("{locks}, every {every}"), parts: options.keys.iter().map(part).collect() }
}

impl Picture {
    /// The lines, and whether each is a title.
    fn lines(&self, width: usize) -> Vec<(String, bool)> {
        let mut lines = vec![(shortened(&self.heading, width, Cut::End), false)];
        for (title, table) in &self.parts {
            lines.push((String::new(), false));
            lines.extend(title.iter().map(|title| (shortened(title, width, Cut::End), false)));
            let table = table.iter().flat_map(|table| table.lines(Some(width))).enumerate();
            lines.extend(table.map(|(nth, line)| (line, nth == 0)));
        }
        lines
    }
}

/// A part of the terminal that is drawn over again and again. The cursor is hidden for as long as this lives.
struct Screen {
    /// How many lines were drawn last, and on a terminal of what size.
    drawn: usize,
    size: (usize, usize),
}

impl Screen {
    fn open(out: &mut impl Write) -> io::Result<Self> {
        let screen = Self { drawn: 0, size: (0, 0) };
        out.write_all(b"\x1b[?25l")?;
        Ok(screen)
    }

    /// One write for the whole picture, and each line is written over before its rest is cleared: nothing flickers.
    fn draw(&mut self, picture: &Picture, look: Look, out: &mut impl Write) -> io::Result<()> {
        let size @ (width, height) = output::size().unwrap_or((look.width.unwrap_or(usize::MAX), usize::MAX));
        let mut lines = picture.lines(width);
        // The cursor stands on the line below, which has to fit too.
        let room = height.saturating_sub(1).max(1);
        if lines.len() > room {
            let hidden = lines.len() - (room - 1);
            lines.truncate(room - 1);
            lines.push((shortened(&format!("… and {hidden} more lines"), width, Cut::End), false));
        }
        let mut frame = String::new();
        if self.drawn > 0 && size != self.size {
            // Lines may have been wrapped anew, so nobody knows where the last picture begins.
            frame.push_str("\x1b[2J\x1b[H");
        } else if self.drawn > 0 {
            frame.push_str(&format!("\x1b[{}A\r", self.drawn));
        }
        for (line, title) in &lines {
            frame.push_str(&if *title && look.color { bold(line) } else { line.clone() });
            frame.push_str("\x1b[K\r\n");
        }
        frame.push_str("\x1b[J");
        (self.drawn, self.size) = (lines.len(), size);
        out.write_all(frame.as_bytes())?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut stdout = io::stdout();
        let _ = stdout.write_all(b"\x1b[?25h").and_then(|()| stdout.flush());
    }
}

/// Something that became of one entry.
#[derive(Debug, Serialize)]
struct Change {
    event: Event,
    #[serde(flatten)]
    name: NameJson,
    /// What the entry did before, if it did anything.
    was: Option<Did>,
    #[serde(flatten)]
    entry: EntryJson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Event {
    /// It held the key already when the watch began.
    Holding,
    /// It is in line.
    Waiting,
    /// It holds the key from now on.
    Granted,
    /// It is gone: released, given up, evicted or expired.
    Left,
    /// It has been asked to let go.
    YieldAsked,
    /// Its value has changed.
    Proclaimed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Did {
    Holding,
    Waiting,
}

/// What became of the entries between two looks: departures first, then the rest in the order of keys and tickets.
fn changes(before: Option<&[KeyView]>, now: &[KeyView]) -> Vec<Change> {
    let (old, new) = (standings(before.unwrap_or_default()), standings(now));
    let change = |event, (key, entry, _): Standing<'_>, was| Change {
        event,
        name: NameJson::new(key),
        was,
        entry: EntryJson::new(entry),
    };
    let was: HashMap<EntryId, Standing<'_>> = old.iter().map(|one| (one.1.place.entry, *one)).collect();
    let is: HashMap<EntryId, ()> = new.iter().map(|one| (one.1.place.entry, ())).collect();
    let gone = old.iter().filter(|one| !is.contains_key(&one.1.place.entry));
    let mut changes: Vec<_> = gone.map(|&one| change(Event::Left, one, Some(one.2))).collect();
    for &one in &new {
        let (_, entry, does) = one;
        let earlier = was.get(&entry.place.entry);
        let did = earlier.map(|earlier| earlier.2);
        match (did, does) {
            (None, Did::Holding) if before.is_none() => changes.push(change(Event::Holding, one, None)),
            (None, Did::Waiting) => changes.push(change(Event::Waiting, one, None)),
            (None | Some(Did::Waiting), Did::Holding) => changes.push(change(Event::Granted, one, did)),
            (Some(_), _) => {}
        }
        if let Some((_, earlier, _)) = earlier {
            if entry.yield_asked && !earlier.yield_asked {
                changes.push(change(Event::YieldAsked, one, did));
            }
            if entry.note.value != earlier.note.value {
                changes.push(change(Event::Proclaimed, one, did));
            }
        }
    }
    changes
}

type Standing<'a> = (&'a Key, &'a EntryView, Did);

fn standings(views: &[KeyView]) -> Vec<Standing<'_>> {
    let of_key = |view| {
        let KeyView { key, holders, waiters, .. }: &KeyView = view;
        let holders = holders.iter().map(move |entry| (key, entry, Did::Holding));
        holders.chain(waiters.iter().flatten().map(move |entry| (key, entry, Did::Waiting)))
    };
    views.iter().flat_map(of_key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn seen(locks: &Locks) -> Vec<KeyView> {
        locks.inspect_all().await.unwrap()
    }

    fn events(changes: &[Change]) -> Vec<(Event, Option<Did>)> {
        changes.iter().map(|change| (change.event, change.was)).collect()
    }

    #[tokio::test]
    async fn a_hand_over_is_a_departure_and_a_grant() {
        let locks = leasehold::connect("memory:").await.unwrap();
        let mutex = locks.mutex("a").unwrap();
        let nobody = seen(&locks).await;
        let first = mutex.lock().await.unwrap();
        let held = seen(&locks).await;
        assert_eq!(events(&changes(None, &held)), [(Event::Holding, None)]);
        assert_eq!(events(&changes(Some(&nobody), &held)), [(Event::Granted, None)]);
        assert_eq!(events(&changes(Some(&held), &held)), []);

        let second = tokio::spawn({
            let mutex = mutex.clone();
            async move { mutex.lock().await.unwrap() }
        });
        let waited = loop {
            let views = seen(&locks).await;
            if views[0].waiters.as_ref().is_some_and(|waiters| !waiters.is_empty()) {
                break views;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(events(&changes(Some(&held), &waited)), [(Event::Waiting, None)]);

        first.release().await.unwrap();
        let second = second.await.unwrap();
        let handed = seen(&locks).await;
        let both = [(Event::Left, Some(Did::Holding)), (Event::Granted, Some(Did::Waiting))];
        assert_eq!(events(&changes(Some(&waited), &handed)), both);

        locks.ask_to_yield(&handed[0].holders[0]).await.unwrap();
        let asked = seen(&locks).await;
        assert_eq!(events(&changes(Some(&handed), &asked)), [(Event::YieldAsked, Some(Did::Holding))]);
        second.release().await.unwrap();
    }
}
