//! What a quorum decides, as pure arithmetic: no clock, no I/O. The model check and the simulation exercise exactly this.
//!
//! **Two majorities of the same servers have one in common.** Everything here follows from that, and from what each server
//! promises: it has one exclusive owner at a time, and its fence only grows.

use crate::backend::redlock::node::Epoch;

/// How many of so many servers are a majority.
pub const fn majority(of: usize) -> usize {
    of / 2 + 1
}

/// The votes on one attempt to take a lock, and what they come to.
///
/// An exclusive lock needs a token that a majority has *committed*: their fences were lower, and were raised to it while the
/// lock was this owner's. A server commits the guess with the grant itself if the guess was higher than its fence. If a
/// majority did, one trip was enough. If not, a token above all that was seen is committed in a second one.
#[derive(Clone, Debug)]
pub struct Ballot {
    guess: u64,
    /// A shared lock has no token, so a majority of grants is enough.
    fenced: bool,
    votes: Vec<Vote>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vote {
    Awaited,
    Granted {
        prior: u64,
        epoch: Epoch,
    },
    /// It said no, or cannot be waited for any longer.
    Missing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Granting,
    /// Who granted before the token was fixed, and whether they have committed it. A grant that arrives later is not among
    /// them: its server's fence was not looked at when the token was chosen.
    Committing {
        token: u64,
        commits: Vec<Option<Commit>>,
    },
    Decided,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commit {
    Awaited,
    Yes,
    No,
}

/// What follows from a vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing yet, or nothing any more.
    Wait,
    /// The token is fixed: ask these servers to commit it, each in its epoch.
    Commit {
        /// The token.
        token: u64,
        /// Whom to ask.
        to: Vec<(usize, Epoch)>,
    },
    /// The lock is held, with this token if it is exclusive.
    Held {
        /// The token.
        token: Option<u64>,
    },
    /// It cannot be had: whatever was granted must be released.
    Failed,
}

impl Ballot {
    /// An attempt on so many servers, with that guess of a token. `None`: it needs none.
    pub fn new(servers: usize, guess: Option<u64>) -> Self {
        let votes = vec![Vote::Awaited; servers];
        Self { guess: guess.unwrap_or_default(), fenced: guess.is_some(), votes, stage: Stage::Granting }
    }

    /// A server granted the lock. Counted once, however often it says so.
    pub fn granted(&mut self, server: usize, prior: u64, epoch: Epoch) -> Step {
        if !matches!(self.votes[server], Vote::Granted { .. }) {
            self.votes[server] = Vote::Granted { prior, epoch };
        }
        self.decide()
    }

    /// A server refused it, or is not waited for any longer. Should it grant the lock after all, that counts until the
    /// token is fixed.
    pub fn missing(&mut self, server: usize) -> Step {
        if self.votes[server] == Vote::Awaited {
            self.votes[server] = Vote::Missing;
        }
        self.decide()
    }

    /// A server committed the token, or did not.
    pub fn committed(&mut self, server: usize, done: bool) -> Step {
        if let Stage::Committing { commits, .. } = &mut self.stage
            && commits[server] == Some(Commit::Awaited)
        {
            commits[server] = Some(if done { Commit::Yes } else { Commit::No });
        }
        self.decide()
    }

    /// Whether a server's vote has not come.
    pub fn awaits(&self, server: usize) -> bool {
        self.votes[server] == Vote::Awaited
    }

    fn decide(&mut self) -> Step {
        let needed = majority(self.votes.len());
        let (step, stage) = match &self.stage {
            Stage::Decided => return Step::Wait,
            Stage::Granting => self.count_grants(needed),
            Stage::Committing { token, commits } => {
                let count = |which| commits.iter().filter(|commit| **commit == Some(which)).count();
                if count(Commit::Yes) >= needed {
                    (Step::Held { token: Some(*token) }, Stage::Decided)
                } else if count(Commit::Yes) + count(Commit::Awaited) < needed {
                    (Step::Failed, Stage::Decided)
                } else {
                    return Step::Wait;
                }
            }
        };
        self.stage = stage;
        step
    }

    fn count_grants(&self, needed: usize) -> (Step, Stage) {
        let grants = self.votes.iter().enumerate().filter_map(|(server, vote)| match vote {
            Vote::Granted { prior, epoch } => Some((server, *prior, *epoch)),
            Vote::Awaited | Vote::Missing => None,
        });
        let granted = grants.clone().count();
        let awaited = self.votes.iter().filter(|vote| **vote == Vote::Awaited).count();
        if granted + awaited < needed {
            return (Step::Failed, Stage::Decided);
        }
        if granted < needed {
            return (Step::Wait, Stage::Granting);
        }
        if !self.fenced {
            return (Step::Held { token: None }, Stage::Decided);
        }
        if grants.clone().filter(|(_, prior, _)| *prior < self.guess).count() >= needed {
            return (Step::Held { token: Some(self.guess) }, Stage::Decided);
        }
        let token = 1 + grants.clone().map(|(_, prior, _)| prior).fold(self.guess, u64::max);
        let mut commits = vec![None; self.votes.len()];
        let to: Vec<_> = grants.map(|(server, _, epoch)| (server, epoch)).collect();
        to.iter().for_each(|(server, _)| commits[*server] = Some(Commit::Awaited));
        (Step::Commit { token, to }, Stage::Committing { token, commits })
    }
}

/// A count of yes and no among so many servers, for what needs a majority and nothing else: renewing, leaving, looking.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    of: usize,
    yes: usize,
    no: usize,
}

impl Tally {
    /// Nobody has answered.
    pub fn new(of: usize) -> Self {
        Self { of, yes: 0, no: 0 }
    }

    /// One more has answered.
    pub fn count(&mut self, yes: bool) {
        if yes {
            self.yes += 1;
        } else {
            self.no += 1;
        }
    }

    /// How many said yes.
    pub fn yes(self) -> usize {
        self.yes
    }

    /// What it comes to, as soon as nothing that is still to come can change it.
    pub fn verdict(self) -> Option<bool> {
        let needed = majority(self.of);
        if self.yes >= needed {
            Some(true)
        } else if self.of - self.no < needed {
            Some(false)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = Epoch(7);

    #[test]
    fn a_fresh_guess_is_the_token_as_soon_as_a_majority_has_granted() {
        let mut ballot = Ballot::new(5, Some(100));
        assert_eq!(ballot.granted(3, 4, EPOCH), Step::Wait);
        assert_eq!(ballot.granted(0, 99, EPOCH), Step::Wait);
        assert_eq!(ballot.granted(1, 0, EPOCH), Step::Held { token: Some(100) });
        assert_eq!(ballot.granted(2, 0, EPOCH), Step::Wait, "it is decided once");
    }

    #[test]
    fn a_stale_guess_costs_a_second_trip_and_gives_a_token_above_all_that_was_seen() {
        let mut ballot = Ballot::new(3, Some(100));
        ballot.granted(0, 100, EPOCH);
        let step = ballot.granted(2, 140, Epoch(9));
        assert_eq!(step, Step::Commit { token: 141, to: vec![(0, EPOCH), (2, Epoch(9))] });
        assert_eq!(ballot.committed(0, true), Step::Wait);
        assert_eq!(ballot.committed(2, true), Step::Held { token: Some(141) });
    }

    #[test]
    fn a_guess_that_another_has_made_before_is_no_token() {
        let mut ballot = Ballot::new(3, Some(100));
        ballot.granted(0, 100, EPOCH);
        assert!(matches!(ballot.granted(1, 100, EPOCH), Step::Commit { token: 101, .. }));
    }

    #[test]
    fn a_grant_that_comes_after_the_token_was_fixed_does_not_count() {
        let mut ballot = Ballot::new(3, Some(100));
        ballot.granted(0, 100, EPOCH);
        assert!(matches!(ballot.granted(2, 140, EPOCH), Step::Commit { .. }));
        assert_eq!(ballot.granted(1, 500, EPOCH), Step::Wait);
        assert_eq!(ballot.committed(1, true), Step::Wait, "it was not asked");
        assert_eq!(ballot.committed(0, true), Step::Wait);
        assert_eq!(ballot.committed(2, false), Step::Failed);
    }

    #[test]
    fn a_grant_that_was_given_up_on_counts_until_the_token_is_fixed() {
        let mut ballot = Ballot::new(3, Some(100));
        assert_eq!(ballot.missing(0), Step::Wait);
        assert_eq!(ballot.granted(0, 1, EPOCH), Step::Wait);
        assert_eq!(ballot.missing(0), Step::Wait, "it has granted");
        assert_eq!(ballot.granted(1, 1, EPOCH), Step::Held { token: Some(100) });
    }

    #[test]
    fn without_a_majority_it_fails_as_soon_as_that_is_certain() {
        let mut ballot = Ballot::new(5, Some(100));
        assert_eq!(ballot.missing(0), Step::Wait);
        assert_eq!(ballot.granted(4, 1, EPOCH), Step::Wait);
        assert_eq!(ballot.missing(1), Step::Wait);
        assert_eq!(ballot.missing(2), Step::Failed);
    }

    #[test]
    fn a_server_that_says_it_twice_counts_once() {
        let mut ballot = Ballot::new(3, Some(100));
        assert_eq!(ballot.granted(0, 1, EPOCH), Step::Wait);
        assert_eq!(ballot.granted(0, 1, EPOCH), Step::Wait);
    }

    #[test]
    fn a_shared_lock_needs_no_token() {
        let mut ballot = Ballot::new(3, None);
        ballot.granted(0, 500, EPOCH);
        assert_eq!(ballot.granted(1, 500, EPOCH), Step::Held { token: None });
    }

    #[test]
    fn a_tally_is_decided_by_a_majority_of_all_and_not_of_those_who_answer() {
        let mut tally = Tally::new(5);
        tally.count(true);
        tally.count(true);
        assert_eq!(tally.verdict(), None, "two of two, and of five");
        tally.count(false);
        tally.count(false);
        assert_eq!(tally.verdict(), None);
        tally.count(false);
        assert_eq!(tally.verdict(), Some(false));
    }
}
