//! What is promised of every state, and what has to be possible so that the promises are worth something.

use stateright::Property;

use crate::protocol::Protocol;
use crate::world::{Attempt, Node, Phase, World};

/// No two grants have the same token.
pub const UNIQUE: &str = "tokens are unique";
/// Whatever begins after a grant gets a higher token, whatever clocks do.
pub const GROWING: &str = "an attempt that begins after a grant gets a higher token";
/// Whoever has the lock on a quorum of the nodes that granted it has the highest token, whatever clocks do: nobody who
/// lost it, however late the news, can shut the holder out.
pub const HIGHEST: &str = "who has the lock on a quorum has the highest token";
/// Grants follow each other in the order of their tokens. Rests on clocks, as exclusion does: an answer that says
/// "granted" may be on its way while a node's clock jumps over the lease and somebody else is granted a higher token.
pub const IN_ORDER: &str = "a later grant has a higher token";
/// No two believe to hold the lock at a time. Rests on clocks.
pub const EXCLUSIVE: &str = "one holds at a time";
/// Every attempt can be granted.
pub const ALL_GRANTED: &str = "all attempts are granted";
/// A token can need a second trip.
pub const SECOND_TRIP: &str = "a token above the guess is granted";
/// A node that was re-admitted can take part again.
pub const READMITTED: &str = "a node grants after it was re-admitted";
/// A lease can be renewed.
pub const RENEWED: &str = "a renewal is confirmed and the first deadline passes";

/// The property of that name.
///
/// # Panics
/// If there is none.
pub fn named<const N: usize, const A: usize>(name: &'static str) -> Property<Protocol<N, A>> {
    match name {
        UNIQUE => {
            Property::always(name, |_, world: &World<N, A>| pairs(world).all(|(one, other)| one.token != other.token))
        }
        GROWING => {
            Property::always(name, |_, world: &World<N, A>| granted(world).all(|own| own.token > own.began_above))
        }
        HIGHEST => Property::always(name, |_, world: &World<N, A>| {
            let as_high = |own: usize| granted(world).filter(|other| other.token >= world.attempts[own].token).count();
            (0..A).filter(|own| has_quorum(world, *own)).all(|own| as_high(own) == 1)
        }),
        IN_ORDER => {
            Property::always(name, |_, world: &World<N, A>| pairs(world).all(|(one, other)| one.token < other.token))
        }
        EXCLUSIVE => Property::always(name, |_, world: &World<N, A>| holders(world).count() <= 1),
        ALL_GRANTED => Property::sometimes(name, |_, world: &World<N, A>| granted(world).count() == A),
        SECOND_TRIP => {
            Property::sometimes(name, |_, world: &World<N, A>| granted(world).any(|own| own.token > own.guess))
        }
        READMITTED => Property::sometimes(name, |_, world: &World<N, A>| {
            world.nodes.iter().any(|node| node.incarnation > 0 && node.lock.is_some())
        }),
        RENEWED => Property::sometimes(name, |_, world: &World<N, A>| holders(world).any(|own| own.passed > 0)),
        _ => panic!("there is no property named {name}"),
    }
}

fn granted<const N: usize, const A: usize>(world: &World<N, A>) -> impl Iterator<Item = &Attempt> {
    world.attempts.iter().filter(|own| own.nth_grant > 0)
}

fn holders<const N: usize, const A: usize>(world: &World<N, A>) -> impl Iterator<Item = &Attempt> {
    world.attempts.iter().filter(|own| own.phase == Phase::Holding)
}

/// Whether it has had the lock on a quorum of nodes ever since they granted it.
fn has_quorum<const N: usize, const A: usize>(world: &World<N, A>, attempt: usize) -> bool {
    let has = |node: &&Node<A>| {
        let link = &node.links[attempt];
        link.backing && link.grants == 1 && node.lock.is_some_and(|lock| usize::from(lock.owner) == attempt)
    };
    world.nodes.iter().filter(has).count() >= World::<N, A>::QUORUM
}

/// Each grant with each later one.
fn pairs<const N: usize, const A: usize>(world: &World<N, A>) -> impl Iterator<Item = (&Attempt, &Attempt)> {
    let later = |one: &&Attempt, other: &&Attempt| one.nth_grant < other.nth_grant;
    granted(world)
        .flat_map(move |one| granted(world).filter(move |other| later(&one, other)).map(move |other| (one, other)))
}
