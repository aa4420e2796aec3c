//! A simulated server answers as a real one does: the same requests, in random order, get the same replies and tell others
//! the same. Times are not compared, and no lease ends by chance: those that should end are short, the others long.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use leasehold::backend::redlock::Redlock;
use leasehold::backend::redlock::node::{
    Ask, Epoch, Extension, Grant, Memory, Node, Push, Release, Reply, Sight, Spelled, freed_channel,
};
use leasehold::backend::{EntryId, Note, Place};
use leasehold::clock::{Clock, Timer};
use leasehold::{Key, Namespace};
use leasehold_simulation::server::{Message, Server};

const LONG: Duration = Duration::from_secs(100);
const LONGEST: Duration = Duration::from_secs(200);
const BRIEF: Duration = Duration::from_millis(1);

/// More than a brief lease, on either clock.
const OVER: Duration = Duration::from_millis(30);

const REQUESTS: usize = 300;

struct Both {
    real: Arc<dyn Node>,
    simulated: Server,
    timer: Timer,
    clock_ms: u64,
    told: Vec<Message>,
    epoch: Epoch,
}

impl Both {
    /// Both answer, and answer alike.
    async fn ask(&mut self, ask: Ask) {
        let expected = self.real.ask(ask.clone()).await.expect("the server answers");
        let (reply, told) = self.simulated.answer(&ask, self.clock_ms);
        assert_eq!(shown(&reply), shown(&expected), "{ask:?}");
        self.told.extend(told);
    }

    /// Brief leases end on both.
    async fn pass(&mut self) {
        self.timer.sleep(OVER).await;
        self.clock_ms += 30;
    }

    /// Both forget, and take part again above what they had.
    async fn forget(&mut self, server: &leasehold_testbed::redis::Server, mark: u64) {
        server.cli(&["FLUSHALL"]);
        self.simulated.forget();
        self.ask(Ask::Grant(Arc::new(grant(place(0, 1), false, LONG, 7)))).await;
        self.ask(Ask::Survey { mark }).await;
        self.ask(Ask::Survey { mark: mark + 1 }).await;
        self.ask(Ask::Admit { mark: mark + 1, floor: 1, longest: LONGEST, epoch: Epoch(1) }).await;
        self.epoch = Epoch(mark);
        self.ask(Ask::Admit { mark, floor: mark, longest: LONGEST, epoch: self.epoch }).await;
        self.ask(Ask::Admit { mark, floor: 2, longest: LONGEST, epoch: Epoch(2) }).await;
        self.ask(Ask::Survey { mark: 1 }).await;
    }
}

fn place(key: usize, entry: u128) -> Place {
    let namespace = Namespace::new("likeness").unwrap();
    Place { key: Key::new(&namespace, format!("key-{key}")).unwrap(), entry: EntryId((entry << 100) + entry) }
}

/// Each owner's next id is its last one and so much more.
const OWNERS: u128 = 4;

fn channel(entry: u128) -> String {
    format!("redlock:{}", entry % OWNERS)
}

fn grant(place: Place, shared: bool, ttl: Duration, guess: u64) -> Grant {
    let channel = channel(place.entry.0 >> 100).into();
    let guess = if shared { 0 } else { guess };
    let note = Note { owner: "somebody".into(), ..Note::default() };
    Grant { place, shared, ttl, guess, channel, note, briefly: false, spelled: Spelled::default() }
}

/// A reply without what two servers cannot have in common: times, and who they are.
fn shown(reply: &Reply) -> String {
    let sight = |sight: &Sight| {
        let mut entries: Vec<_> = sight
            .entries
            .iter()
            .map(|seen| (seen.entry, seen.shared, seen.token, seen.note.owner.clone(), seen.yield_asked, seen.foreign))
            .collect();
        entries.sort();
        format!("{entries:?}, free in some time: {}", sight.free_in.is_some())
    };
    match reply {
        Reply::Busy(seen) => format!("busy: {}", sight(seen)),
        Reply::Seen(seen) => seen.iter().fold(String::from("seen:"), |mut all, seen| {
            write!(all, " {}", sight(seen)).expect("a string can be written to");
            all
        }),
        Reply::Memory(Memory::Ready { epoch, highest, longest, .. }) => {
            format!("ready: {epoch:?} {highest} {longest:?}")
        }
        Reply::Memory(Memory::Blank { mark, .. }) => format!("blank: {mark}"),
        Reply::Keys(keys) => {
            let mut keys = keys.clone();
            keys.sort();
            format!("{keys:?}")
        }
        other => format!("{other:?}"),
    }
}

/// Some request about few keys and few owners, so that they get in each other's way. An id that was given up is not used to
/// ask for a lock again, but may be told of late.
fn some_request(chance: &mut fastrand::Rng, epoch: Epoch, ids: &mut [u128; OWNERS as usize]) -> Ask {
    let owner = chance.usize(0..ids.len());
    let id = ids[owner];
    // An id sticks to one key, more often than not.
    let key = if chance.u8(0..8) > 0 { (id / OWNERS + id) as usize % 3 } else { chance.usize(0..3) };
    let former = if chance.u8(0..4) == 0 { id.saturating_sub(OWNERS).max(1) } else { id };
    let another = place(chance.usize(0..3), ids[chance.usize(0..ids.len())]);
    let guess = chance.u64(1..40);
    match chance.u8(0..12) {
        0..=3 => {
            let ttl = [LONG, LONG, LONG, BRIEF, LONGEST * 2][chance.usize(0..5)];
            if ttl == BRIEF {
                ids[owner] += OWNERS;
            }
            let grant = grant(place(key, id), chance.bool(), ttl, guess);
            // In few words, a lease that ends at once may end in between.
            let briefly = !grant.shared && ttl == LONG && chance.bool();
            Ask::Grant(Arc::new(Grant { briefly, ..grant }))
        }
        4 => {
            let epoch = if chance.u8(0..4) == 0 { Epoch(1) } else { epoch };
            Ask::Commit { place: place(key, former), token: guess, epoch }
        }
        5 => Ask::Extend([place(key, former), another].map(|place| Extension { place, ttl: LONG }).into()),
        6..=8 => {
            if former == id {
                ids[owner] += OWNERS;
            }
            let bar = (chance.u8(0..6) == 0).then_some(BRIEF);
            let by = if chance.bool() { channel(id) } else { "redlock:stranger".into() }.into();
            let (place, held, spelled) = (place(key, former), chance.bool(), Spelled::default());
            let (alone, untouched) = (bar.is_none() && chance.bool(), chance.bool());
            Ask::Release(Arc::new(Release { place, bar, held, by, alone, untouched, spelled }))
        }
        9 => Ask::Wish(place(key, id)),
        10 => Ask::Inspect((0..3).map(|key| place(key, 1).key).collect()),
        _ => Ask::Survey { mark: guess },
    }
}

#[test]
fn a_simulated_server_answers_as_a_real_one_does() {
    let server = leasehold_testbed::redis::Server::start().unwrap();
    // Only the first of them is asked.
    let url = format!("redlock://127.0.0.1:{},127.0.0.1:1,127.0.0.1:2", server.port());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let real = Redlock::builder(&url).unwrap().nodes().remove(0);
        let timer = Timer::on_callers_runtime(Clock::boot());
        let mut pushes = real.pushes();
        let channels: Vec<String> =
            (0..OWNERS).map(channel).chain((0..3).map(|key| freed_channel(&place(key, 1).key))).collect();
        for channel in &channels {
            real.listen(channel);
            while pushes.next().await != Some(Push::Listening(channel.clone())) {}
        }
        let simulated = Server::new("simulated", None);
        let mut both = Both { real, simulated, timer, clock_ms: 1_000_000_000, told: Vec::new(), epoch: Epoch(0) };
        for round in 0..8 {
            both.forget(&server, 10 + round).await;
            let mut chance = fastrand::Rng::with_seed(round);
            let mut ids = [1, 2, 3, 4].map(|id| id + u128::from(round) * 10_000);
            for _ in 0..REQUESTS {
                let ask = some_request(&mut chance, both.epoch, &mut ids);
                let brief = matches!(&ask, Ask::Grant(grant) if grant.ttl == BRIEF)
                    || matches!(&ask, Ask::Release(release) if release.bar.is_some());
                both.ask(ask).await;
                if brief {
                    both.pass().await;
                }
            }
        }
        assert!(both.told.len() > 100, "only {} messages", both.told.len());
        for message in &both.told {
            let heard = both.timer.within(Duration::from_secs(10), pushes.next()).await;
            let Message { channel, text } = message.clone();
            assert_eq!(heard, Some(Some(Push::Message { channel, text })));
        }
    });
}
