//! The rules of the protocol, one switch each. Each of them can be left out, to see what it is for.

/// Which rules are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// When a node may forget a lock by itself.
    pub clocks: Clocks,
    /// A token that is not the guess is written to a quorum before it is believed.
    pub write_back: bool,
    /// A grant raises the fence to the guess.
    pub guess_is_written: bool,
    /// A guess counts only where it was above the fence, not where it equals it.
    pub strict_guess: bool,
    /// COMMIT needs a token above the fence, not one that equals it.
    pub strict_commit: bool,
    /// COMMIT needs the lock to be its owner's still.
    pub owner_test: bool,
    /// COMMIT needs the epoch that the node granted in.
    pub epoch_test: bool,
    /// What becomes of a grant that arrives after the token was fixed.
    pub late_grants: LateGrants,
    /// What a node is after it lost its memory.
    pub restart: Restart,
    /// When the fences of the others are read.
    pub collecting: Collecting,
    /// How many fences of others are read.
    pub collected: Collected,
    /// Which nodes ADMIT may write to.
    pub admitting: Admitting,
    /// How many nodes have to extend a lease.
    pub renewal: Renewal,
    /// When a lock is planted on a node that does not have it.
    pub planting: Planting,
}

/// When a node may forget a lock by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clocks {
    /// Not before the client has stopped to believe in it.
    Sane,
    /// At any moment: the node's clock may jump.
    Jumping,
}

/// What becomes of a grant that arrives after the token was fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateGrants {
    /// It is released.
    Released,
    /// It is sent a COMMIT as well, and counts once that has been done.
    Committed,
    /// It counts as it is.
    Counted,
}

/// What a node is after it lost its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Without an epoch, and it grants nothing.
    Blank,
    /// Without an epoch, and it grants all the same.
    Voting,
    /// As it was at first, from a snapshot: with its epoch and an old fence.
    Snapshot,
}

/// When the fences of the others are read, by whoever re-admits a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collecting {
    /// After one longest TTL has been waited.
    AfterTheWait,
    /// At any time, though the node is re-admitted only after the wait.
    BeforeTheWait,
    /// At any time, and nobody waits.
    WithoutAWait,
}

/// How many fences of others are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collected {
    /// Those of a quorum, each of a node that has an epoch.
    Quorum,
    /// One fewer.
    Fewer,
    /// Those of a quorum, of nodes without an epoch too.
    BlankOnesToo,
}

/// Which nodes ADMIT may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitting {
    /// To the blank node that was seen before the wait: it has not lost its memory once more since.
    SameBlankNode,
    /// To a node without an epoch.
    AnyBlankNode,
    /// To any node.
    AnyNode,
}

/// How many nodes have to extend a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// A quorum of all nodes.
    Quorum,
    /// One fewer, such as a majority of those that granted.
    Fewer,
}

/// When a lock is planted on a node that does not have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planting {
    /// After a quorum has extended it.
    AfterTheQuorum,
    /// Together with the extension, and it counts towards its quorum.
    Counted,
}

impl Rules {
    /// All of them.
    pub const ALL: Self = Self {
        clocks: Clocks::Jumping,
        write_back: true,
        guess_is_written: true,
        strict_guess: true,
        strict_commit: true,
        owner_test: true,
        epoch_test: true,
        late_grants: LateGrants::Released,
        restart: Restart::Blank,
        collecting: Collecting::AfterTheWait,
        collected: Collected::Quorum,
        admitting: Admitting::SameBlankNode,
        renewal: Renewal::Quorum,
        planting: Planting::AfterTheQuorum,
    };

    /// All of them, and clocks of nodes that run as they should.
    pub const WITH_SANE_CLOCKS: Self = Self { clocks: Clocks::Sane, ..Self::ALL };
}
