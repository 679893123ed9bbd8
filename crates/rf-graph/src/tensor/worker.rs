//! The thread that runs the steps of one part.

use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rf_kv::PageId;

use crate::backend::Executor;
use crate::batch::{Batch, Media, Span};
use crate::collective::Rendezvous;
use crate::error::BackendError;
use crate::input::{Input, QueuedRows};
use crate::op::Position;
use crate::output::{Candidate, Output, OutputRows};
use crate::value::RowKind;

/// A batch whose data the threads of all parts share.
pub(super) struct BatchStep {
    ids: Vec<u32>,
    spans: Vec<StepSpan>,
    output_rows: Vec<usize>,
    input: Option<StepInput>,
    /// See [`Output::stage`].
    pub(super) stage: usize,
}

/// The data of a [`Span`].
struct StepSpan {
    tokens: Range<usize>,
    past_tokens: usize,
    positions: Option<Vec<Position>>,
    /// See [`Media`].
    media: Option<(Vec<f32>, bool)>,
    pages: Vec<PageId>,
    window_pages: Vec<PageId>,
    state: Option<PageId>,
}

/// The data of an [`Input`].
enum StepInput {
    Rows(Vec<f32>),
    Queued(Arc<dyn QueuedRows>),
}

impl BatchStep {
    pub(super) fn new(batch: &Batch<'_>, stage: usize) -> Self {
        let spans = batch.spans.iter().map(|span| StepSpan {
            tokens: span.tokens.clone(),
            past_tokens: span.past_tokens,
            positions: span.positions.map(<[_]>::to_vec),
            media: span.media.map(|media| (media.rows.to_vec(), media.non_causal)),
            pages: span.pages.to_vec(),
            window_pages: span.window_pages.to_vec(),
            state: span.state,
        });
        let input = batch.input.map(|input| match input {
            Input::Rows(rows) => StepInput::Rows(rows.to_vec()),
            Input::Queued(rows) => StepInput::Queued(Arc::clone(rows)),
        });
        Self {
            ids: batch.ids.to_vec(),
            spans: spans.collect(),
            output_rows: batch.output_rows.to_vec(),
            input,
            stage,
        }
    }

    /// Number of rows of a value of this kind.
    pub(super) fn rows(&self, kind: RowKind) -> usize {
        match kind {
            RowKind::Token => self.ids.len(),
            RowKind::Output => self.output_rows.len(),
        }
    }

    fn run(&self, executor: &mut dyn Executor, rows: &mut PartRows) -> Result<(), BackendError> {
        let spans = self.spans.iter().map(|span| Span {
            tokens: span.tokens.clone(),
            past_tokens: span.past_tokens,
            positions: span.positions.as_deref(),
            media: span
                .media
                .as_ref()
                .map(|(rows, non_causal)| Media { rows, non_causal: *non_causal }),
            pages: &span.pages,
            window_pages: &span.window_pages,
            state: span.state,
        });
        let spans: Vec<Span<'_>> = spans.collect();
        let input = self.input.as_ref().map(|input| match input {
            StepInput::Rows(rows) => Input::Rows(rows),
            StepInput::Queued(rows) => Input::Queued(rows),
        });
        let batch = Batch { ids: &self.ids, spans: &spans, output_rows: &self.output_rows, input };
        let rows = match rows {
            PartRows::Whole(rows) => OutputRows::Whole(rows),
            PartRows::TopK(k, best) => OutputRows::TopK { k: *k, best },
        };
        executor.forward(&batch, Output { stage: Some(self.stage), rows, queued: None })
    }
}

/// The output of a part.
pub(super) enum PartRows {
    Whole(Vec<f32>),
    /// The number of candidates per row, and the candidates.
    TopK(usize, Vec<Candidate>),
}

impl PartRows {
    /// Returns the whole rows; empty if the worker computed candidates.
    pub(super) fn whole(&self) -> &[f32] {
        match self {
            Self::Whole(rows) => rows,
            Self::TopK(..) => &[],
        }
    }

    /// The number of candidates per row, and the candidates; none of whole rows.
    pub(super) fn top_k(&self) -> (usize, &[Candidate]) {
        match self {
            Self::Whole(_) => (0, &[]),
            Self::TopK(k, best) => (*k, best),
        }
    }
}

/// The end of a step of a part.
pub(super) struct Reply {
    pub(super) part: usize,
    pub(super) rows: PartRows,
    /// An error of the outer kind is a panic.
    pub(super) outcome: thread::Result<Result<(), BackendError>>,
}

/// A part and its thread.
pub(super) struct PartWorker {
    executor: Arc<Mutex<Box<dyn Executor>>>,
    steps: Option<Sender<(Arc<BatchStep>, PartRows)>>,
    thread: Option<JoinHandle<()>>,
}

impl PartWorker {
    pub(super) fn start(
        part: usize,
        executor: Box<dyn Executor>,
        rendezvous: Arc<Rendezvous>,
        replies: Sender<Reply>,
    ) -> Result<Self, BackendError> {
        let executor = Arc::new(Mutex::new(executor));
        let (steps, received) = mpsc::channel();
        let own = Arc::clone(&executor);
        let thread = thread::Builder::new()
            .name(format!("rf-part-{part}"))
            .spawn(move || serve(part, &own, &rendezvous, &received, &replies))
            .map_err(|e| BackendError::Device(format!("cannot start a thread per part: {e}")))?;
        Ok(Self { executor, steps: Some(steps), thread: Some(thread) })
    }

    /// Begins a step. A reply follows.
    pub(super) fn begin(&self, step: Arc<BatchStep>, rows: PartRows) -> Result<(), BackendError> {
        let sent = self.steps.as_ref().map(|steps| steps.send((step, rows)));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(BackendError::Device("the thread of a part has ended".into())),
        }
    }

    /// The executor, while no step runs.
    pub(super) fn executor(&self) -> MutexGuard<'_, Box<dyn Executor>> {
        self.executor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a thread that does not come back.
    pub(super) fn abandon(&mut self) {
        self.thread = None;
    }
}

impl Drop for PartWorker {
    fn drop(&mut self) {
        self.steps = None;
        if let Some(thread) = self.thread.take() {
            // The thread catches the panics of steps, so it does not end by one.
            let _ended = thread.join();
        }
    }
}

/// Runs steps until there are no more.
fn serve(
    part: usize,
    executor: &Mutex<Box<dyn Executor>>,
    rendezvous: &Rendezvous,
    steps: &Receiver<(Arc<BatchStep>, PartRows)>,
    replies: &Sender<Reply>,
) {
    for (step, mut rows) in steps {
        let mut executor = executor.lock().unwrap_or_else(PoisonError::into_inner);
        let run = AssertUnwindSafe(|| step.run(&mut **executor, &mut rows));
        let outcome = panic::catch_unwind(run);
        drop(executor);
        match &outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => rendezvous.abort(part, error),
            Err(_) => rendezvous.abort(part, &BackendError::Device("a panic".into())),
        }
        // The step may own the last reference to rows that the caller reuses.
        drop(step);
        if replies.send(Reply { part, rows, outcome }).is_err() {
            return;
        }
    }
}
