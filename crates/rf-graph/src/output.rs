//! The output that a run of a batch computes.

use std::sync::Arc;

use crate::error::BackendError;
use crate::input::QueuedRows;

/// The output of one run of a batch: which stage to run, and the memory for its rows.
#[derive(Debug)]
pub struct Output<'a> {
    /// The stage ([`Graph::stages`](crate::Graph::stages)); `None` for the last one.
    pub stage: Option<usize>,
    /// The rows.
    pub rows: OutputRows<'a>,
    /// Where an executor may put rows that it queues and computes later: the input of a stage of
    /// another executor. It leaves [`Self::rows`] unwritten then, and a failure may be reported by
    /// [`Executor::wait`](crate::Executor::wait) only.
    pub queued: Option<&'a mut Option<Arc<dyn QueuedRows>>>,
}

/// The requested elements of each output row, and the memory for them.
#[derive(Debug)]
pub enum OutputRows<'a> {
    /// Every element: the outputs of the stage, one after the other, each `[rows, width]`.
    Whole(&'a mut [f32]),
    /// The `k` largest, `[rows, k]`: only of the last stage, and at most
    /// [`Executor::max_top_k`](crate::Executor::max_top_k). Larger elements come first, equal ones
    /// in the order of the row; NaN counts as −∞. This copies far fewer bytes from a device than
    /// whole rows of logits.
    TopK {
        /// Candidates per row.
        k: usize,
        /// The candidates.
        best: &'a mut [Candidate],
    },
}

/// An element of an output row: a candidate for the next token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Candidate {
    /// Token id: the index of the element in the row.
    pub id: u32,
    /// Logit: the value of the element.
    pub logit: f32,
}

impl<'a> Output<'a> {
    /// Whole rows of the last stage.
    pub fn rows(rows: &'a mut [f32]) -> Self {
        Self { stage: None, rows: OutputRows::Whole(rows), queued: None }
    }

    /// The `k` largest elements of each row of the last stage.
    pub fn top_k(k: usize, best: &'a mut [Candidate]) -> Self {
        Self { stage: None, rows: OutputRows::TopK { k, best }, queued: None }
    }

    /// Requests these rows of a stage, which need not be the last one.
    #[must_use]
    pub fn of_stage(self, stage: usize) -> Self {
        Self { stage: Some(stage), ..self }
    }

    /// Whole rows, for a backend that returns no others.
    ///
    /// # Errors
    ///
    /// [`BackendError::InvalidBatch`] for the largest elements.
    pub fn into_whole_rows(self) -> Result<&'a mut [f32], BackendError> {
        match self.rows {
            OutputRows::Whole(rows) => Ok(rows),
            OutputRows::TopK { k, .. } => Err(BackendError::InvalidBatch(format!(
                "this backend does not select the {k} largest elements of a row"
            ))),
        }
    }
}

impl OutputRows<'_> {
    /// Candidates per row; 0 for whole rows.
    pub fn k(&self) -> usize {
        match self {
            Self::Whole(_) => 0,
            Self::TopK { k, .. } => *k,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(rows) => rows.len(),
            Self::TopK { best, .. } => best.len(),
        }
    }

    /// Returns true if no rows are requested.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
