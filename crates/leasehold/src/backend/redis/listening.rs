//! Keeps this client subscribed: connects, listens, notices when it stops hearing, and starts anew.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::backend::Notice;
use crate::backend::redis::command::Command;
use crate::backend::redis::health::Health;
use crate::backend::redis::hub::Hub;
use crate::backend::redis::wire::{Link, Wire};
use crate::clock::{Clock, Timer};
use crate::error::{ErrorKind, Result};

/// How often a connection that says nothing is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(5);

/// How often the server is asked for its time when a connection is made.
const CLOCK_LOOKS: usize = 5;

/// The first pause after a failure; it doubles with each in a row up to the second.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Connects for the first time, refuses a server that is unfit, and goes on in the background until its runtime ends.
pub(super) async fn start(wire: Arc<Wire>, hub: Arc<Hub>, eviction_accepted: bool) -> Result<Health> {
    let mut ear = Ear { wire, hub, topics: true, channels: HashSet::new(), run_id: None };
    let link = ear.connect().await?;
    let health = ear.examine(&link).await?;
    health.refuse_if_unfit(eviction_accepted)?;
    ear.wire.try_scripts().await?;
    ear.listen(&link).await?;
    tokio::spawn(ear.run(Some(link)));
    Ok(health)
}

/// Listens on the channel of these connections alone, until their runtime ends or nobody uses them any more. Says when it
/// has begun to, or has failed to.
pub(super) async fn follow(wire: Arc<Wire>, hub: Arc<Hub>, ready: watch::Sender<bool>) {
    let mut ear = Ear { wire, hub, topics: false, channels: HashSet::new(), run_id: None };
    // Nothing has been sent yet, so nothing can have been missed: unlike later, nobody has to look again.
    let link = ear.subscribe().await.ok();
    let _ = ready.send(true);
    ear.run(link).await;
}

struct Ear {
    wire: Arc<Wire>,
    hub: Arc<Hub>,
    /// Whether it listens on the channels of observed keys too, and looks after the server's health.
    topics: bool,
    /// Those that this connection is subscribed to.
    channels: HashSet<String>,
    /// Which server we heard last.
    run_id: Option<String>,
}

impl Ear {
    async fn run(mut self, mut link: Option<Link>) {
        let timer = Timer::on_callers_runtime(Clock::boot());
        loop {
            if let Some(link) = link.take() {
                while self.still_hears(&timer, &link).await {}
                self.wire.forget(&link);
            }
            let mut pause = PAUSE;
            while link.is_none() {
                match self.start_anew().await {
                    Ok(new) => link = Some(new),
                    Err(error) => {
                        tracing::debug!(target: "leasehold::redis", %error, "not listening");
                        timer.sleep(pause).await;
                        pause = (pause * 2).min(PAUSE_MAX);
                    }
                }
            }
        }
    }

    /// Waits until something stirs or it is time to ask. False if the connection is no longer good.
    async fn still_hears(&mut self, timer: &Timer, link: &Link) -> bool {
        timer.within(PING_EVERY, self.wire.stirred.notified()).await;
        self.listen(link).await.is_ok() && link.command(&Command::of(1).part(b"PING")).await.is_ok()
    }

    async fn subscribe(&mut self) -> Result<Link> {
        let link = self.connect().await?;
        self.listen(&link).await?;
        Ok(link)
    }

    async fn start_anew(&mut self) -> Result<Link> {
        self.channels.clear();
        let link = self.connect().await?;
        let before = self.run_id.clone();
        if self.topics {
            self.examine(&link).await?;
        }
        self.listen(&link).await?;
        if self.run_id != before {
            tracing::warn!(target: "leasehold::redis", "another server answers now, or it was restarted: asking about every lease");
            self.hub.notices.post(Notice::Shaken);
        }
        // Whatever was said meanwhile was not heard.
        self.hub.let_all_look();
        Ok(link)
    }

    /// Any server will do: what is published on one node of a cluster is heard on all.
    async fn connect(&self) -> Result<Link> {
        self.wire.link_to(0).await
    }

    async fn examine(&mut self, link: &Link) -> Result<Health> {
        let health = match Health::of(&link.pipe).await {
            // A user without the right to ask still may lock.
            Err(error) if error.kind() == ErrorKind::Unusable => Health::default(),
            health => health?,
        };
        self.compare_clocks(link).await?;
        self.run_id = Some(health.run_id.clone());
        Ok(health)
    }

    /// Learns about what time it is on the server, from the quickest of a few answers: it was asked for half of that ago.
    async fn compare_clocks(&self, link: &Link) -> Result<()> {
        let mut quickest = Duration::MAX;
        for _ in 0..CLOCK_LOOKS {
            let asked_at = self.hub.clock.now();
            let time = link.command(&Command::of(1).part(b"TIME")).await?;
            let took = asked_at.until(self.hub.clock.now());
            if let Ok((seconds, micros)) = redis::from_redis_value::<(u64, u64)>(time)
                && took < quickest
            {
                quickest = took;
                self.hub.learn_server_us(asked_at.after(took / 2), seconds * 1_000_000 + micros);
            }
        }
        Ok(())
    }

    /// Subscribes to what somebody wants to hear, and to nothing else.
    async fn listen(&mut self, link: &Link) -> Result<()> {
        let mut wanted = if self.topics { self.hub.topics() } else { Vec::new() };
        wanted.push(self.wire.channel.clone());
        for channel in &wanted {
            if self.channels.insert(channel.clone()) {
                link.subscribe(channel).await?;
                self.hub.confirm(channel);
            }
        }
        let unwanted: Vec<String> = self.channels.iter().filter(|channel| !wanted.contains(channel)).cloned().collect();
        for channel in unwanted {
            self.channels.remove(&channel);
            link.unsubscribe(&channel).await?;
        }
        Ok(())
    }
}
