//! The requests that wait and run with each adapter that they name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The numbers of requests by adapter.
#[derive(Debug, Default)]
pub(super) struct AdapterCounts(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    waiting: BTreeMap<String, usize>,
    running: BTreeMap<String, usize>,
    /// The time of the last change, in seconds since 1970.
    changed: u64,
}

impl AdapterCounts {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The adapters of waiting requests and of running ones, with commas between them, and the time
    /// of the last change.
    pub(super) fn state(&self) -> (String, String, u64) {
        let inner = self.lock();
        let names = |counts: &BTreeMap<String, usize>| {
            counts.keys().map(String::as_str).collect::<Vec<_>>().join(",")
        };
        (names(&inner.waiting), names(&inner.running), inner.changed)
    }
}

impl Inner {
    fn counts(&mut self, is_running: bool) -> &mut BTreeMap<String, usize> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.changed = now.map_or(0, |since| since.as_secs());
        if is_running { &mut self.running } else { &mut self.waiting }
    }

    fn add(&mut self, name: &str, is_running: bool) {
        *self.counts(is_running).entry(name.to_owned()).or_default() += 1;
    }

    fn remove(&mut self, name: &str, is_running: bool) {
        let counts = self.counts(is_running);
        if let Some(count) = counts.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                counts.remove(name);
            }
        }
    }
}

/// A request with an adapter. It is counted until it is dropped.
pub(super) struct AdapterMeter {
    counts: Arc<AdapterCounts>,
    name: String,
    is_running: bool,
}

impl AdapterMeter {
    /// The request waits.
    pub(super) fn new(counts: &Arc<AdapterCounts>, name: &str) -> Self {
        counts.lock().add(name, false);
        Self { counts: Arc::clone(counts), name: name.to_owned(), is_running: false }
    }

    /// The request runs.
    pub(super) fn start(&mut self) {
        if !std::mem::replace(&mut self.is_running, true) {
            let mut counts = self.counts.lock();
            counts.remove(&self.name, false);
            counts.add(&self.name, true);
        }
    }
}

impl Drop for AdapterMeter {
    fn drop(&mut self) {
        self.counts.lock().remove(&self.name, self.is_running);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_listed_while_requests_wait_and_run() {
        let counts = Arc::default();
        let names = || {
            let (waiting, running, _) = AdapterCounts::state(&counts);
            (waiting, running)
        };
        let pair = |waiting: &str, running: &str| (waiting.to_owned(), running.to_owned());
        let mut first = AdapterMeter::new(&counts, "b");
        let mut second = AdapterMeter::new(&counts, "b");
        let third = AdapterMeter::new(&counts, "a");
        assert_eq!(names(), pair("a,b", ""));
        first.start();
        assert_eq!(names(), pair("a,b", "b"));
        second.start();
        drop(first);
        assert_eq!(names(), pair("a", "b"));
        drop((second, third));
        assert_eq!(names(), pair("", ""));
        assert!(counts.state().2 > 0);
    }
}
