//! A state of the model: nodes, attempts, and what is on its way between them.
//!
//! A reply is kept beside its node from the moment that it was made; whoever decides picks any of those made so far. So a
//! reply that is late, lost or overtaken needs no step of its own: it is one that was not picked. In the same way a request
//! that is never carried out is a lost one, and only requests that change something are steps.

/// How many clients can try to re-admit nodes.
pub const ADMITTERS: usize = 2;

/// Everything there is, for `N` nodes and `A` attempts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World<const N: usize, const A: usize> {
    /// The nodes, and what concerns one of them. In ascending order: nodes differ by nothing but their state, so worlds
    /// that differ by the names of their nodes are one world.
    pub nodes: [Node<A>; N],
    /// The attempts, in the order in which they begin.
    pub attempts: [Attempt; A],
    /// The re-admissions.
    pub admissions: [Admission<A>; ADMITTERS],
    /// How many nodes can still lose their memory.
    pub crashes_left: u8,
    /// How many requests can still be carried out twice.
    pub doubles_left: u8,
    /// How many can still raise a fence without having the lock.
    pub strays_left: u8,
    /// How many attempts have been granted.
    pub granted: u8,
    /// The highest token that has been handed out.
    pub highest: u8,
}

/// One server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node<const A: usize> {
    /// Who has the lock.
    pub lock: Option<Lock>,
    /// What only grows, as long as it is remembered.
    pub fence: u8,
    /// In which epoch it grants, if at all.
    pub epoch: Option<u8>,
    /// How often it has lost its memory.
    pub incarnation: u8,
    /// Which deadlines have to pass until nothing rests on what it said before it lost its memory.
    pub outstanding: [u8; A],
    /// Between it and each attempt.
    pub links: [Link; A],
    /// Between it and each re-admission.
    pub bonds: [Bond; ADMITTERS],
}

/// A lock on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lock {
    /// Whose it is.
    pub owner: u8,
    /// By which renewal it lives; 0 is the grant.
    pub round: u8,
}

/// What went between a node and an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// How often GRANT was carried out.
    pub grants: u8,
    /// What it answered.
    pub reply: Option<Reply>,
    /// The reply was among those from which the token was made, so COMMIT is on its way.
    pub counted: bool,
    /// COMMIT was carried out.
    pub committed: bool,
    /// The grant rests on this node, among others: its word was counted.
    pub backing: bool,
    /// The renewal that is under way was carried out.
    pub extended: bool,
}

/// The answer to a GRANT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reply {
    /// The fence as it was before.
    pub prior: u8,
    /// In which epoch it was granted.
    pub epoch: u8,
}

/// What a re-admission did with a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bond {
    /// This is the node to re-admit.
    pub blank: bool,
    /// Its fence was read.
    pub read: bool,
}

/// One try to take the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// How far it has come.
    pub phase: Phase,
    /// What it guessed.
    pub guess: u8,
    /// The token that it has, or that it tries to commit.
    pub token: u8,
    /// Its number among the grants; 0 if it was not granted.
    pub nth_grant: u8,
    /// The highest token that had been handed out when it began.
    pub began_above: u8,
    /// The last renewal that was sent.
    pub sent: u8,
    /// The last renewal that was confirmed.
    pub confirmed: u8,
    /// How many of its deadlines have passed: that of the grant is the first.
    pub passed: u8,
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It has not begun.
    #[default]
    Waiting,
    /// GRANT is on its way to all nodes.
    Asking,
    /// The token is fixed, and COMMIT is on its way.
    Committing,
    /// It believes to hold the lock.
    Holding,
    /// It gave up, released, or its deadline passed. RELEASE is on its way to all nodes.
    Over,
}

/// One client's try to re-admit a node that lost its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Admission<const A: usize> {
    /// Which memory the node had lost when it was noticed; `None` if this one has not begun.
    pub incarnation: Option<u8>,
    /// Which deadlines it has to wait for.
    pub outstanding: [u8; A],
    /// It has waited.
    pub waited: bool,
    /// The highest fence that it read.
    pub highest: u8,
}

impl<const N: usize, const A: usize> World<N, A> {
    /// How many nodes are a majority.
    pub const QUORUM: usize = N / 2 + 1;

    /// Nobody holds anything, and all nodes are ready.
    pub fn new(crashes: u8, doubles: u8, strays: u8) -> Self {
        let node = Node {
            lock: None,
            fence: 0,
            epoch: Some(0),
            incarnation: 0,
            outstanding: [0; A],
            links: [Link::default(); A],
            bonds: [Bond::default(); ADMITTERS],
        };
        let admission = Admission { incarnation: None, outstanding: [0; A], waited: false, highest: 0 };
        Self {
            nodes: [node; N],
            attempts: [Attempt::default(); A],
            admissions: [admission; ADMITTERS],
            crashes_left: crashes,
            doubles_left: doubles,
            strays_left: strays,
            granted: 0,
            highest: 0,
        }
    }

    /// How many links of an attempt are so.
    pub fn count(&self, attempt: usize, so: impl Fn(&Link) -> bool) -> usize {
        self.nodes.iter().filter(|node| so(&node.links[attempt])).count()
    }

    /// The attempt has the lock and `token`, by the word of the nodes whose links are so.
    pub fn grant(&mut self, attempt: usize, token: u8, so: impl Fn(&Link) -> bool) {
        let backing = std::array::from_fn::<_, N, _>(|node| so(&self.nodes[node].links[attempt]));
        self.granted += 1;
        self.highest = self.highest.max(token);
        let nth_grant = self.granted;
        let granted = &mut self.attempts[attempt];
        *granted = Attempt { phase: Phase::Holding, token, nth_grant, ..*granted };
        self.forget_replies(attempt);
        for (node, backing) in self.nodes.iter_mut().zip(backing) {
            node.links[attempt].backing = backing;
        }
    }

    /// The attempt believes in nothing any more.
    pub fn end(&mut self, attempt: usize) {
        self.attempts[attempt].phase = Phase::Over;
        self.forget_replies(attempt);
    }

    /// Once it is decided what became of an attempt, no reply changes it. What was sent still arrives.
    fn forget_replies(&mut self, attempt: usize) {
        for node in &mut self.nodes {
            let link = &mut node.links[attempt];
            let reply = link.reply.filter(|_| link.counted).map(|reply| Reply { prior: 0, ..reply });
            *link = Link { reply, committed: false, backing: false, extended: false, ..*link };
        }
    }

    /// Gives the nodes the one order that all worlds like this one have.
    pub fn in_order(mut self) -> Self {
        self.nodes.sort_unstable();
        self
    }
}
