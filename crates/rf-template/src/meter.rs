//! The remaining steps and bytes of a run.

use std::cell::Cell;

use crate::error::Error;

/// The limits of a run, besides a multiple of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Steps: a node of the tree, an element of a list, or 16 bytes of text. Real templates take a
    /// few hundred per message.
    pub steps: u64,
    /// Bytes that are allocated in all.
    pub bytes: u64,
}

impl Default for Limits {
    /// 20 million steps and 64 MiB.
    fn default() -> Self {
        Self { steps: 20_000_000, bytes: 64 << 20 }
    }
}

impl Limits {
    /// Sets [`steps`](Self::steps).
    #[must_use]
    pub fn with_steps(mut self, steps: u64) -> Self {
        self.steps = steps;
        self
    }

    /// Sets [`bytes`](Self::bytes).
    #[must_use]
    pub fn with_bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }
}

/// Copies that a run may make of its input: a template that appends messages to one string copies
/// the first one once per message.
pub(crate) const MAX_COPIES: u64 = 64;

/// Counts the steps and allocated bytes of a run down. Memory that is freed does not count back, so
/// the limit of bytes bounds both memory and the time of copying.
#[derive(Debug)]
pub(crate) struct Meter {
    steps: Cell<u64>,
    bytes: Cell<u64>,
}

impl Meter {
    /// For a run whose input has `input_bytes`.
    pub(crate) fn new(limits: Limits, input_bytes: u64) -> Self {
        let bytes = limits.bytes.saturating_add(MAX_COPIES.saturating_mul(input_bytes));
        let steps = limits.steps.saturating_add(input_bytes);
        Self { steps: Cell::new(steps), bytes: Cell::new(bytes) }
    }

    /// Takes `count` steps.
    pub(crate) fn step(&self, count: usize) -> Result<(), Error> {
        let left = self.steps.get().checked_sub(count as u64);
        self.steps.set(left.ok_or_else(|| Error::failed("the template runs for too long"))?);
        Ok(())
    }

    /// Takes the steps of a pass over `bytes` of text.
    pub(crate) fn scan(&self, bytes: usize) -> Result<(), Error> {
        self.step(bytes / 16 + 1)
    }

    /// Takes memory. Call it before the allocation.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<(), Error> {
        let left = self.bytes.get().checked_sub(bytes as u64);
        self.bytes.set(left.ok_or_else(|| Error::failed("the template needs too much memory"))?);
        Ok(())
    }

    /// Takes the memory of a list of `len` values, and the steps to fill it.
    pub(crate) fn allocate_list(&self, len: usize) -> Result<(), Error> {
        self.step(len)?;
        self.allocate(len.saturating_mul(LIST_ELEMENT_BYTES))
    }
}

/// Bytes of a value in a list.
pub(crate) const LIST_ELEMENT_BYTES: usize = 32;

/// Text under construction, charged to a meter piece by piece.
#[derive(Debug)]
pub(crate) struct Text<'m> {
    meter: &'m Meter,
    text: String,
}

impl<'m> Text<'m> {
    pub(crate) fn new(meter: &'m Meter) -> Self {
        Self { meter, text: String::new() }
    }

    pub(crate) fn push(&mut self, piece: &str) -> Result<(), Error> {
        self.meter.allocate(piece.len())?;
        self.meter.scan(piece.len())?;
        self.text.push_str(piece);
        Ok(())
    }

    pub(crate) fn push_char(&mut self, c: char) -> Result<(), Error> {
        self.push(c.encode_utf8(&mut [0; 4]))
    }

    /// Appends `count` times the same text.
    pub(crate) fn push_repeated(&mut self, piece: &str, count: usize) -> Result<(), Error> {
        let bytes = piece.len().saturating_mul(count);
        self.meter.allocate(bytes)?;
        self.meter.scan(bytes)?;
        self.text.extend(std::iter::repeat_n(piece, if piece.is_empty() { 0 } else { count }));
        Ok(())
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}
