//! Sums over the parts of a divided program.
//!
//! Each part runs on a separate thread and reaches the same ops [`Op::AllReduce`] in the same
//! order. There it passes its values to a [`Collective`] and waits for those of the others. Every
//! part sums them itself in the order of the parts, so all get the same bits. [`Rendezvous`] is the
//! collective of parts in one process.
//!
//! The values need not be computed yet ([`QueuedRows`]): a part on a device passes them on as soon
//! as it has queued the launches that compute them. Parts on devices of one runtime let these wait
//! for each other. All others wait for the values themselves.
//!
//! A wait is bounded, and a part that fails ends the waits of all others with an error.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::BackendError;
use crate::input::QueuedRows;
use crate::op::Op;
use crate::program::Program;
use crate::value::RowKind;

/// The meeting of the parts of a divided program.
pub trait Collective: fmt::Debug + Send + Sync {
    /// Passes the values of a part to all others, and waits for theirs: returns those of every part
    /// in the order of the parts.
    ///
    /// # Errors
    ///
    /// If another part failed, passes another number of values, or does not come in time.
    fn gather(
        &self,
        part: usize,
        values: Arc<dyn QueuedRows>,
    ) -> Result<QueuedSummands, BackendError>;

    /// The longest time for which a part waits for the others.
    fn limit(&self) -> Duration;
}

/// The values of each part, in the order of the parts. They may not be computed yet.
pub type QueuedSummands = Vec<Arc<dyn QueuedRows>>;

/// The values of each part in host memory, in the order of the parts.
pub type Summands = Vec<Arc<Vec<f32>>>;

/// A part of a divided program and its way to the others.
#[derive(Clone, Debug)]
pub struct Member {
    /// The meeting of the parts.
    pub collective: Arc<dyn Collective>,
    /// The index of this part.
    pub part: usize,
}

/// The state of an executor in host memory for its ops [`Op::AllReduce`]: the connection to the
/// other parts, and buffers for the values that it passes to them.
#[derive(Debug)]
pub struct Reduction {
    member: Option<Member>,
    /// The values of the last two ops. Other parts may still read the values of an op when the next
    /// one begins, but not when the one after that begins.
    buffers: [Arc<Vec<f32>>; 2],
    bytes: u64,
}

impl Reduction {
    /// Buffers for the largest batch of a program.
    pub fn new(program: &Program) -> Self {
        let floats = Self::floats(program);
        let buffers = [(); 2].map(|()| Arc::new(Vec::with_capacity(floats)));
        Self { member: None, buffers, bytes: Self::bytes_for(program) }
    }

    /// Bytes of the buffers of a program.
    pub fn bytes_for(program: &Program) -> u64 {
        (2 * Self::floats(program) * size_of::<f32>()) as u64
    }

    /// Bytes of the buffers.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn floats(program: &Program) -> usize {
        let floats = program.graph.ops().iter().map(|op| {
            let Op::AllReduce { x, .. } = op else { return 0 };
            let value = program.graph.value(*x);
            let rows = match value.rows {
                RowKind::Token => program.max_batch_tokens,
                RowKind::Output => program.max_output_rows,
            };
            value.width * rows
        });
        floats.max().unwrap_or(0)
    }

    /// See [`Executor::join`](crate::Executor::join).
    pub fn join(&mut self, member: Member) {
        self.member = Some(member);
    }

    /// Passes the summand of this part to the others and waits for theirs.
    ///
    /// # Errors
    ///
    /// The errors of [`Collective::gather`], and an error if the executor has not joined others.
    pub fn gather(&mut self, values: &[f32]) -> Result<Summands, BackendError> {
        let Some(member) = &self.member else {
            let what = "a part of a model without the others".to_owned();
            return Err(BackendError::Unsupported { backend: "this executor", what });
        };
        self.buffers.swap(0, 1);
        let [buffer, _] = &mut self.buffers;
        match Arc::get_mut(buffer) {
            Some(own) => {
                own.clear();
                own.extend_from_slice(values);
            }
            None => *buffer = Arc::new(values.to_vec()),
        }
        let summands = member.collective.gather(member.part, Arc::clone(buffer) as _)?;
        summands.iter().map(in_host_memory).collect()
    }
}

/// The values of a part in host memory: the buffer of the part if they are there, otherwise a copy.
fn in_host_memory(values: &Arc<dyn QueuedRows>) -> Result<Arc<Vec<f32>>, BackendError> {
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn QueuedRows>::clone(values);
    match any.downcast() {
        Ok(values) => Ok(values),
        Err(_) => Ok(Arc::new(values.wait()?.to_vec())),
    }
}

/// The collective of parts that run on threads of this process.
#[derive(Debug)]
pub struct Rendezvous {
    parts: usize,
    /// The longest time for which a part waits for the others.
    limit: Duration,
    state: Mutex<State>,
    changed: Condvar,
    /// The number of meetings so far, also in the state, for parts that wait for a short time.
    meetings: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// The values of those who came to the next meeting.
    arrived: Vec<Option<Arc<dyn QueuedRows>>>,
    /// The values of the last meeting.
    met: QueuedSummands,
    failure: Option<Failure>,
}

/// The end of a step before its end.
#[derive(Clone, Debug)]
struct Failure {
    part: Option<usize>,
    reason: String,
}

/// The time for which a part spins before it sleeps: parts that compute the same amount arrive
/// about together.
const SPIN: Duration = Duration::from_micros(50);

impl Rendezvous {
    /// A meeting of some parts, each of which waits for the others no longer than `limit`.
    pub fn new(parts: usize, limit: Duration) -> Self {
        Self {
            parts,
            limit,
            state: Mutex::new(State { arrived: vec![None; parts], ..State::default() }),
            changed: Condvar::new(),
            meetings: AtomicU64::new(0),
        }
    }

    /// Forgets a failed step. No part runs.
    pub fn reset(&self) {
        let mut state = self.state();
        *state = State { arrived: vec![None; self.parts], ..State::default() };
    }

    /// Ends the waits of all parts, because one of them failed.
    pub fn abort(&self, part: usize, reason: &BackendError) {
        let mut state = self.state();
        let part = Some(part);
        state.failure.get_or_insert_with(|| Failure { part, reason: reason.to_string() });
        self.changed.notify_all();
    }

    /// The part that failed first, if any did.
    pub fn failed_part(&self) -> Option<usize> {
        self.state().failure.as_ref().and_then(|failure| failure.part)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, mut state: MutexGuard<'_, State>, reason: String) -> BackendError {
        let failure = state.failure.get_or_insert(Failure { part: None, reason });
        self.changed.notify_all();
        failure.error()
    }
}

impl Collective for Rendezvous {
    fn limit(&self) -> Duration {
        self.limit
    }

    fn gather(
        &self,
        part: usize,
        values: Arc<dyn QueuedRows>,
    ) -> Result<QueuedSummands, BackendError> {
        let start = Instant::now();
        let mut state = self.state();
        if let Some(failure) = &state.failure {
            return Err(failure.error());
        }
        let (floats, others) = (values.floats(), state.arrived.iter().flatten());
        if let Some(other) = others.map(|x| x.floats()).find(|other| *other != floats) {
            let what = format!("parts sum {other} and {floats} values");
            return Err(self.fail(state, what));
        }
        state.arrived[part] = Some(values);
        if state.arrived.iter().all(Option::is_some) {
            state.met = state.arrived.iter_mut().filter_map(Option::take).collect();
            self.meetings.fetch_add(1, Ordering::Release);
            self.changed.notify_all();
            return Ok(state.met.clone());
        }
        let meeting = self.meetings.load(Ordering::Acquire);
        let has_met = || self.meetings.load(Ordering::Acquire) != meeting;
        drop(state);
        while !has_met() && start.elapsed() < SPIN {
            std::hint::spin_loop();
        }
        let mut state = self.state();
        // The values stay until all parts have come to the next meeting.
        while !has_met() {
            if let Some(failure) = &state.failure {
                return Err(failure.error());
            }
            let Some(left) = self.limit.checked_sub(start.elapsed()) else {
                let missing = state.arrived.iter().position(Option::is_none).unwrap_or(part);
                let what = format!(
                    "part {} of {} did not come to a sum within {} s",
                    missing + 1,
                    self.parts,
                    self.limit.as_secs_f32()
                );
                return Err(self.fail(state, what));
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(state.met.clone())
    }
}

impl Failure {
    fn error(&self) -> BackendError {
        BackendError::Device(match self.part {
            Some(part) => format!("part {} of the model failed: {}", part + 1, self.reason),
            None => self.reason.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn every_part_gets_the_values_of_all_in_their_order() {
        let meeting = Rendezvous::new(3, LONG);
        thread::scope(|scope| {
            for part in 0..3 {
                let meeting = &meeting;
                scope.spawn(move || {
                    for step in 0..500 {
                        let own = Arc::new(vec![(10 * step + part) as f32; 2]);
                        let all = meeting.gather(part, own).unwrap();
                        let expected = [0, 1, 2].map(|part| (10 * step + part) as f32);
                        assert!(all.iter().zip(expected).all(|(x, y)| x.wait().unwrap() == [y, y]));
                    }
                });
            }
        });
    }

    #[test]
    fn a_part_that_fails_ends_the_wait_of_the_others() {
        let meeting = Rendezvous::new(2, LONG);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| meeting.gather(0, Arc::new(vec![1.0])));
            meeting.abort(1, &BackendError::Device("the device is lost".into()));
            let error = waiting.join().unwrap().unwrap_err().to_string();
            assert_eq!(error, "part 2 of the model failed: the device is lost");
        });
        assert_eq!(meeting.failed_part(), Some(1));
        assert!(meeting.gather(1, Arc::new(vec![1.0])).is_err());
        meeting.reset();
        thread::scope(|scope| {
            let first = scope.spawn(|| meeting.gather(0, Arc::new(vec![1.0])));
            let second = meeting.gather(1, Arc::new(vec![2.0])).unwrap();
            for summands in [first.join().unwrap().unwrap(), second] {
                let values = summands.iter().map(|values| values.wait().unwrap());
                assert!(values.eq([[1.0], [2.0]]));
            }
        });
    }

    #[test]
    fn a_wait_is_bounded() {
        let meeting = Rendezvous::new(2, Duration::from_millis(1));
        let error = meeting.gather(1, Arc::new(vec![1.0])).unwrap_err().to_string();
        assert_eq!(error, "part 1 of 2 did not come to a sum within 0.001 s");
    }

    #[test]
    fn sums_of_different_lengths_are_an_error() {
        let meeting = Rendezvous::new(2, LONG);
        thread::scope(|scope| {
            let parts = [vec![1.0], vec![1.0, 2.0]].into_iter().enumerate();
            let meeting = &meeting;
            let parts =
                parts.map(|(part, x)| scope.spawn(move || meeting.gather(part, Arc::new(x))));
            let parts: Vec<_> = parts.collect();
            for part in parts {
                let error = part.join().unwrap().unwrap_err().to_string();
                assert!(error.starts_with("parts sum "), "{error}");
            }
        });
    }
}
