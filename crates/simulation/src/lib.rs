//! The whole client, acquire loop, keeper, guards and the store on a quorum, over simulated servers in virtual time.
//!
//! **One seed is one run, and always the same one.** Everything runs on one thread, on a paused clock that moves to the next
//! timer when nothing else is left to do; what is left to chance comes from the seed. A [scenario] says what goes
//! wrong and which [invariants] hold nevertheless. Some scenarios break them on purpose: should no run notice,
//! the simulation has gone blind, and fails.
//!
//! ```sh
//! cargo xtask simulate                                # all scenarios, as CI does
//! cargo xtask simulate --scenario lossy --seed 4711   # one run, with its trace
//! ```
//!
//! A paused client is one whose messages stand still, both ways, and whose user does nothing; its timers go on, which makes
//! no difference to what it believes. Requests of one connection may overtake each other, which a real one does not let
//! them.

pub mod invariants;
pub mod network;
pub mod record;
pub mod scenario;
pub mod server;
pub mod world;
