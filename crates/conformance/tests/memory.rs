//! The suite on the store in memory: once in virtual time, where every run takes the same course, and once on real
//! threads in real time.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use leasehold::backend::Backend;
use leasehold::backend::memory::Memory;
use leasehold::clock::{Clock, Hand};
use leasehold_conformance::{Fixture, Time, conformance};

struct MemoryFixture {
    store: Memory,
    time: Time,
    clock: Arc<Hand>,
}

impl MemoryFixture {
    fn new(time: Time, clock: Clock) -> Self {
        let (clock, hand) = Clock::moved_by_hand(clock);
        Self { store: Memory::with_clock(clock), time, clock: hand }
    }
}

impl Fixture for MemoryFixture {
    fn time(&self) -> Time {
        self.time
    }

    fn connect(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::new(self.store.clone()) as Arc<dyn Backend> })
    }

    fn store_clock(&self) -> Option<Arc<Hand>> {
        Some(self.clock.clone())
    }
}

conformance!(memory, |clock: &Clock| MemoryFixture::new(Time::Virtual, clock.clone()));
conformance!(memory_in_real_time, |_: &Clock| MemoryFixture::new(Time::Real, Clock::boot()));
