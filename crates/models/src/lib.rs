//! The lock over a quorum of forgetful servers as a model, and the search that tries every order of its steps.
//!
//! A model says which steps there are; the search takes them in every order and looks at each state that it comes to. What
//! is promised must hold in all of them. The other half are the [broken](rules::Rules) protocols, each without one of the
//! rules: the search has to find where they fail, or it would not have found a fault of ours either.
//!
//! **Modelled**: N nodes with lock, fence and epoch; attempts with any guess; requests and replies that are lost, late,
//! out of order or doubled; leases that end when the client's deadline has passed, or at any moment where clocks may jump;
//! nodes that lose their memory; several clients that re-admit the same node; renewals and re-planting.
//!
//! **Not modelled**: shared claims; more than one name (a fence here is what a node answers for one name, whether it comes
//! from the name's own key or from the floor that names fold into); how long anything takes (see the simulation).

pub mod properties;
pub mod protocol;
pub mod rules;
pub mod world;
