//! The store on PostgreSQL, on real servers with real faults.

mod alone;
#[path = "../database/mod.rs"]
mod database;
mod economy;
mod faults;
mod pooler;
mod rights;
mod spring;
mod tables;
mod tls;

use database::*;
