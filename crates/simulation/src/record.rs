//! What happened in a run: who was granted what and for how long it was believed, and the trace by which two runs are told
//! to be the same.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One lock that somebody got.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Which key.
    pub key: usize,
    /// Which client, in the order in which they started.
    pub client: usize,
    /// Beside others, or alone.
    pub shared: bool,
    /// When it was asked for.
    pub asked: Duration,
    /// When it was told that it has it.
    pub granted: Duration,
    /// When it last looked and believed so.
    pub believed: Duration,
    /// With which token.
    pub token: Option<u64>,
}

/// What is known of a run. Cheap to copy: all copies are one.
#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    grants: Vec<Grant>,
    complaints: Vec<String>,
    digest: DefaultHasher,
    lines: Option<Vec<String>>,
}

impl Record {
    /// One that also keeps the trace itself.
    pub fn with_trace() -> Self {
        Self(Arc::new(Mutex::new(Inner { lines: Some(Vec::new()), ..Inner::default() })))
    }

    /// Something happened.
    pub fn note(&self, at: Duration, what: impl fmt::Display) {
        let line = format!("{:>9.3} {what}", at.as_secs_f64() * 1000.0);
        let mut inner = self.0.lock().expect("no panic under this lock");
        line.hash(&mut inner.digest);
        if let Some(lines) = &mut inner.lines {
            lines.push(line);
        }
    }

    /// Somebody got a lock. Returns its number, for [`believes`](Self::believes).
    pub fn granted(&self, grant: Grant) -> usize {
        let mut inner = self.0.lock().expect("no panic under this lock");
        inner.grants.push(grant);
        inner.grants.len() - 1
    }

    /// Whoever got that lock still believes in it.
    pub fn believes(&self, nth: usize, at: Duration) {
        self.0.lock().expect("no panic under this lock").grants[nth].believed = at;
    }

    /// Something that should have gone well did not.
    pub fn complain(&self, complaint: impl Into<String>) {
        self.0.lock().expect("no panic under this lock").complaints.push(complaint.into());
    }

    /// All locks that were granted, in the order in which they were.
    pub fn grants(&self) -> Vec<Grant> {
        self.0.lock().expect("no panic under this lock").grants.clone()
    }

    /// What should have gone well.
    pub fn complaints(&self) -> Vec<String> {
        self.0.lock().expect("no panic under this lock").complaints.clone()
    }

    /// The same for two runs that took the same course.
    pub fn digest(&self) -> u64 {
        self.0.lock().expect("no panic under this lock").digest.finish()
    }

    /// The trace, if it was kept.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().expect("no panic under this lock").lines.clone().unwrap_or_default()
    }
}
