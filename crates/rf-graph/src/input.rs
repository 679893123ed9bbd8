//! The input of a stage: values in host memory, or values that another executor computes.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use crate::error::BackendError;

/// The values of the ops [`Op::Input`](crate::Op::Input) of a stage, one after the other, each
/// `[tokens, width]`.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Values in host memory.
    Rows(&'a [f32]),
    /// Values that an executor has queued: see [`Output::queued`](crate::Output::queued).
    Queued(&'a Arc<dyn QueuedRows>),
}

/// The outputs of a queued stage, one after the other, each `[tokens, width]`.
///
/// An executor whose device can wait for the device of the other one looks for its own type behind
/// the trait. All others wait for the values.
pub trait QueuedRows: Any + Debug + Send + Sync {
    /// The number of values.
    fn floats(&self) -> usize;

    /// Waits for the values.
    ///
    /// # Errors
    ///
    /// If the device that computes them failed.
    fn wait(&self) -> Result<&[f32], BackendError>;
}

/// Values that are computed.
impl QueuedRows for Vec<f32> {
    fn floats(&self) -> usize {
        self.len()
    }

    fn wait(&self) -> Result<&[f32], BackendError> {
        Ok(self)
    }
}

impl<'a> Input<'a> {
    /// The number of values.
    pub fn floats(self) -> usize {
        match self {
            Self::Rows(rows) => rows.len(),
            Self::Queued(rows) => rows.floats(),
        }
    }

    /// The values in host memory. Waits for queued ones.
    ///
    /// # Errors
    ///
    /// The errors of [`QueuedRows::wait`].
    pub fn rows(self) -> Result<&'a [f32], BackendError> {
        match self {
            Self::Rows(rows) => Ok(rows),
            Self::Queued(rows) => rows.wait(),
        }
    }
}
