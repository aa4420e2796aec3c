//! The behaviour that every leasehold store must show, as tests.
//!
//! A store of your own joins by saying how a client connects to it:
//!
//! ```
//! use std::sync::Arc;
//!
//! use futures_core::future::BoxFuture;
//! use leasehold::backend::{Backend, memory::Memory};
//! use leasehold::clock::Clock;
//! use leasehold_conformance::{Fixture, Time, conformance};
//!
//! struct MyStore(Memory);
//!
//! impl Fixture for MyStore {
//!     fn time(&self) -> Time {
//!         Time::Real
//!     }
//!
//!     fn connect(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
//!         Box::pin(async { Arc::new(self.0.clone()) as Arc<dyn Backend> })
//!     }
//! }
//!
//! conformance!(my_store, |_clock| MyStore(Memory::new()));
//! # fn main() {}
//! ```
//!
//! Each case is a test of its own, with a sentence for a name: `my_store::fairness::waiters_are_served_in_order`. Cases
//! choose by the store's [capabilities](leasehold::backend::Capabilities); what a store cannot do, it must refuse.
#![allow(clippy::unwrap_used, reason = "a case fails by panicking")]

pub mod cases;
mod faults;
mod history;
mod kind;
mod world;

pub use faults::{Fault, Faults, Verb};
pub use history::History;
pub use kind::{AnyGuard, AnyLock, Kind};
pub use world::{Client, Fixture, Time, World, run};

/// Makes a module of that name with a test for every case. The fixture is made anew for each test by a function that
/// gets the test's clock.
#[macro_export]
macro_rules! conformance {
    ($module:ident, $fixture:expr) => {
        mod $module {
            use super::*;

            $crate::for_each_kind! { $fixture; exclusive:
                two_holders_never_overlap_under_contention
            }
        }
    };
}

/// The cases of one file, each as a test.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_case {
    ($fixture:expr; $file:ident: $($case:ident)*) => {
        mod $file {
            #[allow(unused_imports, reason = "not every fixture expression names something")]
            use super::*;
            $(
                #[test]
                fn $case() {
                    $crate::run($fixture, |world| Box::pin($crate::cases::$file::$case(world)));
                }
            )*
        }
    };
}

/// The cases of one file, each as a test for every kind of lock that one holder has at a time.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_kind {
    ($fixture:expr; $file:ident: $($case:ident)*) => {
        $crate::for_each_kind! { @kind mutex Mutex $fixture; $file: $($case)* }
        $crate::for_each_kind! { @kind write_lock WriteLock $fixture; $file: $($case)* }
        $crate::for_each_kind! { @kind semaphore_of_one SemaphoreOfOne $fixture; $file: $($case)* }
    };
    (@kind $module:ident $kind:ident $fixture:expr; $file:ident: $($case:ident)*) => {
        mod $module {
            #[allow(unused_imports, reason = "not every fixture expression names something")]
            use super::*;
            $(
                #[test]
                fn $case() {
                    $crate::run($fixture, |world| Box::pin($crate::cases::$file::$case(world, $crate::Kind::$kind)));
                }
            )*
        }
    };
}
