//! Captured graphs: the steps that have one, and when a replay is trusted.
//!
//! For steps of up to 64 tokens, the executor caches the launches per batch shape (LRU, 16
//! entries). The second step of a shape captures a graph while the device runs the plain launches.
//! After a copy of the runtime (RoPE tables, restored pages) a step uses plain launches.
//!
//! Replays of graphs are known to go wrong on some versions of HIP, after the first replays too.
//! Therefore:
//!
//! - A graph contains kernels only and is short ([`MAX_GRAPH_LAUNCHES`]). A longer step is several
//!   graphs.
//! - Each step has a number, its *stamp*. The first kernel reads it with the batch, every graph of
//!   the step passes it on, and the result carries it. A replay with inputs of another step is thus
//!   detected and not used.
//! - At replays 1, 2, 4, 8, … of a graph, plain launches compute the step too, and all bits of the
//!   outputs are compared.
//!
//! A replay that fails either test ends the use of graphs by the executor, with a warning, and
//! plain launches compute the step again. If that is impossible (recurrent states between two
//! comparisons), the step is an error. A wrong result between two comparisons whose stamp is right
//! is not detected.
//!
//! HIP may also end the process inside the launch of a graph. A file marks the first replay of each
//! graph, and where it is left, the next process uses no graphs (`LaunchMark`).
//!
//! [`MAX_GRAPH_LAUNCHES`]: super::launches::MAX_GRAPH_LAUNCHES

use rf_hip::{GraphExec, Stream};

use super::launches::{LaunchesKey, StepLaunches};

/// Recorded steps that are kept, with their graphs: those used last.
const MAX_STEPS: usize = 16;

/// Attempts to capture a step. An attempt fails if another thread waits for the device meanwhile.
const MAX_CAPTURES: u32 = 3;

/// A step whose launches are kept.
pub(super) struct ReplayEntry {
    pub(super) launches: StepLaunches,
    state: State,
}

enum State {
    /// No graph yet. The first use may be the only one.
    New,
    /// The next use also captures a graph, after this number of failures.
    Used(u32),
    /// The graphs of the parts, and the number of replays.
    Captured { parts: Vec<GraphExec>, replays: u64 },
    /// No graph: the runtime does not capture the launches, or replays them wrongly.
    Refused,
}

impl ReplayEntry {
    pub(super) fn new(launches: StepLaunches) -> Self {
        Self { launches, state: State::New }
    }

    /// Counts a use of the step, whose plain launches are queued. Captures them at the second use,
    /// while the device computes.
    pub(super) fn note_use(&mut self, stream: &Stream) {
        match self.state {
            State::New => self.state = State::Used(0),
            State::Used(failures) => self.state = self.capture(stream, failures),
            State::Captured { .. } | State::Refused => {}
        }
    }

    fn capture(&self, stream: &Stream, failures: u32) -> State {
        match self.launches.capture(stream) {
            Ok(parts) => State::Captured { parts, replays: 0 },
            Err(error) if failures + 1 < MAX_CAPTURES && !error.is_unsupported() => {
                tracing::debug!("capturing {} launches: {error}", self.launches.len());
                State::Used(failures + 1)
            }
            Err(error) => {
                tracing::warn!(
                    "a step runs without a graph: could not capture {} launches: {error}",
                    self.launches.len()
                );
                State::Refused
            }
        }
    }

    /// Counts a replay and returns its number, from 1. `None` if there is no graph.
    pub(super) fn next_replay(&mut self) -> Option<u64> {
        match &mut self.state {
            State::Captured { replays, .. } => {
                *replays += 1;
                Some(*replays)
            }
            State::New | State::Used(_) | State::Refused => None,
        }
    }

    /// Drops the graphs for good.
    pub(super) fn forget_graphs(&mut self) {
        self.state = State::Refused;
    }

    /// Queues the graphs.
    ///
    /// # Errors
    ///
    /// The failure, with the number of parts before it.
    pub(super) fn replay(&self, stream: &Stream) -> Result<(), (usize, rf_hip::Error)> {
        let State::Captured { parts, .. } = &self.state else { return Ok(()) };
        let mut parts = parts.iter().enumerate();
        parts.try_for_each(|(i, part)| part.launch(stream).map_err(|error| (i, error)))
    }
}

impl StepLaunches {
    /// Captures and instantiates the graphs of all parts.
    fn capture(&self, stream: &Stream) -> Result<Vec<GraphExec>, rf_hip::Error> {
        let ends = self.cuts.iter().copied().chain([self.ops.len()]);
        let (mut graphs, mut start) = (Vec::new(), 0);
        for (part, end) in ends.enumerate() {
            let is_last = part == self.cuts.len();
            let graph = stream.capture(|| {
                if part == 0 {
                    self.input.queue(stream)?;
                }
                self.ops.queue_range(start..end, stream)?;
                if is_last { self.output.queue(stream) } else { Ok(()) }
            })?;
            graphs.push(graph.instantiate()?);
            start = end;
        }
        Ok(graphs)
    }
}

/// The steps that were used last.
#[derive(Default)]
pub(super) struct KeptSteps {
    /// The last one was used last.
    entries: Vec<(LaunchesKey, ReplayEntry)>,
}

impl KeptSteps {
    /// Takes a step out.
    pub(super) fn take(&mut self, key: LaunchesKey) -> Option<ReplayEntry> {
        let place = self.entries.iter().position(|(other, _)| *other == key)?;
        Some(self.entries.remove(place).1)
    }

    /// Puts a step back as the one that was used last.
    pub(super) fn put(&mut self, key: LaunchesKey, entry: ReplayEntry) {
        if self.entries.len() == MAX_STEPS {
            self.entries.remove(0);
        }
        self.entries.push((key, entry));
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}
