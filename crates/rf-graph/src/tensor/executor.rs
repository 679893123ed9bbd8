//! The executor of a divided program.

use std::panic;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rf_kv::{CopyPage, PageGroup, PageId};

use super::PartOutput;
use super::worker::{BatchStep, PartRows, PartWorker, Reply};
use crate::backend::Executor;
use crate::batch::Batch;
use crate::collective::Rendezvous;
use crate::error::BackendError;
use crate::memory::{MemoryNeed, MemoryUse};
use crate::output::{Candidate, Output, OutputRows};
use crate::program::Program;
use crate::telemetry::{BackendExecutionSummary, Telemetry, Timeline};
use crate::value::RowKind;

/// The parts of a program, each on a separate thread.
pub(super) struct TensorExecutor {
    workers: Vec<PartWorker>,
    replies: Receiver<Reply>,
    rendezvous: Arc<Rendezvous>,
    stages: Vec<Vec<PartOutput>>,
    /// The outputs of each part; they have room for the largest batch.
    buffers: Vec<Vec<f32>>,
    buffers_bytes: u64,
    /// The longest time from the end of a step on one part to its end on all others.
    limit: Duration,
    /// True if a part did not finish a step.
    is_lost: bool,
}

/// The memory of the outputs of all parts.
pub(super) fn memory_need(
    program: &Program,
    stages: &[Vec<PartOutput>],
    parts: usize,
) -> MemoryNeed {
    let floats: usize = (0..parts).map(|part| output_floats(program, stages, part)).sum();
    let buffers_bytes = (floats * size_of::<f32>()) as u64;
    MemoryNeed { held: MemoryUse { buffers_bytes, ..MemoryUse::default() }, reserve_bytes: 0 }
}

/// Elements of the largest output of a part.
fn output_floats(program: &Program, stages: &[Vec<PartOutput>], part: usize) -> usize {
    let rows = |kind| match kind {
        RowKind::Token => program.max_batch_tokens,
        RowKind::Output => program.max_output_rows,
    };
    let floats = |outputs: &Vec<PartOutput>| {
        outputs.iter().map(|output| rows(output.rows) * output.of_part(part).len()).sum()
    };
    stages.iter().map(floats).max().unwrap_or(0)
}

impl TensorExecutor {
    pub(super) fn new(
        program: &Program,
        executors: Vec<Box<dyn Executor>>,
        stages: Vec<Vec<PartOutput>>,
        rendezvous: Arc<Rendezvous>,
        limit: Duration,
    ) -> Result<Self, BackendError> {
        let buffers_bytes = memory_need(program, &stages, executors.len()).held.buffers_bytes;
        let buffers = (0..executors.len())
            .map(|part| Vec::with_capacity(output_floats(program, &stages, part)))
            .collect();
        let (send, replies) = mpsc::channel();
        let workers = executors.into_iter().enumerate().map(|(part, executor)| {
            PartWorker::start(part, executor, Arc::clone(&rendezvous), send.clone())
        });
        let workers = workers.collect::<Result<_, _>>()?;
        let is_lost = false;
        Ok(Self { workers, replies, rendezvous, stages, buffers, buffers_bytes, limit, is_lost })
    }

    /// An error if a part has not come back from an earlier step.
    fn check(&self) -> Result<(), BackendError> {
        if self.is_lost {
            return Err(BackendError::Device("a part of the model does not answer".into()));
        }
        Ok(())
    }

    /// Runs a step on all parts, and returns their outputs in the order of the parts.
    fn run(&mut self, step: BatchStep, k: usize) -> Result<Vec<PartRows>, BackendError> {
        self.rendezvous.reset();
        let stage = &self.stages[step.stage];
        let step_rows = |output: &PartOutput| step.rows(output.rows);
        let rows = self.buffers.iter_mut().enumerate().map(|(part, buffer)| {
            let floats = |output: &PartOutput| step_rows(output) * output.of_part(part).len();
            if k == 0 {
                let mut rows = std::mem::take(buffer);
                rows.resize(stage.iter().map(floats).sum(), 0.0);
                return PartRows::Whole(rows);
            }
            let output = &stage[stage.len() - 1];
            let k = k.min(output.of_part(part).len());
            PartRows::TopK(k, vec![Candidate::default(); k * step_rows(output)])
        });
        let rows: Vec<PartRows> = rows.collect();
        let step = Arc::new(step);
        for (worker, rows) in self.workers.iter().zip(rows) {
            if let Err(error) = worker.begin(Arc::clone(&step), rows) {
                self.is_lost = true;
                self.rendezvous.abort(0, &error);
                return Err(error);
            }
        }
        drop(step);
        self.collect()
    }

    /// Waits for the ends of a step.
    fn collect(&mut self) -> Result<Vec<PartRows>, BackendError> {
        let mut all: Vec<Option<PartRows>> = self.workers.iter().map(|_| None).collect();
        let mut errors = Vec::new();
        let mut panic = None;
        for received in 0..all.len() {
            // If all parts hang, so does the caller, as it does with one device.
            let reply = match received {
                0 => self.replies.recv().ok(),
                _ => self.replies.recv_timeout(self.limit).ok(),
            };
            let Some(Reply { part, rows, outcome }) = reply else {
                self.is_lost = true;
                let missing = all.iter().position(Option::is_none).unwrap_or(0);
                let what = format!("part {} of the model does not answer", missing + 1);
                self.workers.iter_mut().for_each(PartWorker::abandon);
                return Err(BackendError::Device(what));
            };
            match outcome {
                Ok(Ok(())) => {}
                Ok(Err(error)) => errors.push((part, error)),
                Err(payload) => panic = Some(payload),
            }
            all[part] = Some(rows);
        }
        if let Some(payload) = panic {
            panic::resume_unwind(payload);
        }
        // The others report that this part failed.
        let first = self.rendezvous.failed_part();
        errors.sort_by_key(|(part, _)| Some(*part) != first);
        match errors.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(all.into_iter().flatten().collect()),
        }
    }
}

/// Puts the columns of the parts side by side. `rows` are those of the outputs of a stage.
fn join(outputs: &[(&PartOutput, usize)], parts: &[&[f32]], out: &mut [f32]) {
    let mut starts = vec![0; parts.len()];
    let mut rest = out;
    for (output, rows) in outputs {
        let (own, others) = std::mem::take(&mut rest).split_at_mut(output.width * rows);
        rest = others;
        for (part, (values, start)) in parts.iter().zip(&mut starts).enumerate() {
            let columns = output.of_part(part);
            let values = &values[*start..][..columns.len() * rows];
            *start += values.len();
            if part > 0 && output.columns.is_none() {
                continue;
            }
            let values = values.chunks_exact(columns.len().max(1));
            for (row, values) in own.chunks_exact_mut(output.width.max(1)).zip(values) {
                row[columns.clone()].copy_from_slice(values);
            }
        }
    }
}

/// The best of the candidates of all parts.
fn merge(output: &PartOutput, k: usize, parts: &[(usize, &[Candidate])], best: &mut [Candidate]) {
    let mut all = Vec::new();
    for (row, best) in best.chunks_exact_mut(k).enumerate() {
        all.clear();
        for (part, (own, candidates)) in parts.iter().enumerate() {
            if part > 0 && output.columns.is_none() {
                break;
            }
            let first = output.of_part(part).start as u32;
            let candidates = &candidates[row * own..][..*own];
            all.extend(candidates.iter().map(|c| Candidate { id: first + c.id, logit: c.logit }));
        }
        let value = |c: &Candidate| if c.logit.is_nan() { f32::NEG_INFINITY } else { c.logit };
        all.sort_by(|a, b| value(b).total_cmp(&value(a)).then(a.id.cmp(&b.id)));
        best.iter_mut().zip(&all).for_each(|(best, candidate)| *best = *candidate);
    }
}

impl Executor for TensorExecutor {
    fn forward(&mut self, batch: &Batch<'_>, output: Output<'_>) -> Result<(), BackendError> {
        self.check()?;
        let invalid = |what| Err(BackendError::InvalidBatch(what));
        let stage = output.stage.unwrap_or(self.stages.len() - 1);
        let Some(outputs) = self.stages.get(stage) else {
            return invalid(format!("stage {stage} of {}", self.stages.len()));
        };
        let rows = outputs.iter().map(|output| batch.rows(output.rows));
        let rows: Vec<usize> = rows.collect();
        let k = output.rows.k();
        if k > self.max_top_k() {
            return invalid(format!("the {k} largest elements of a row"));
        }
        let expected: usize = match k {
            0 => outputs.iter().zip(&rows).map(|(output, rows)| output.width * rows).sum(),
            k => k * rows.iter().sum::<usize>(),
        };
        if output.rows.len() != expected {
            return invalid(format!("room for {} outputs, {expected} are due", output.rows.len()));
        }
        let parts = self.run(BatchStep::new(batch, stage), k)?;
        let outputs: Vec<_> = self.stages[stage].iter().zip(rows).collect();
        match output.rows {
            OutputRows::Whole(out) => {
                let values: Vec<&[f32]> = parts.iter().map(PartRows::whole).collect();
                join(&outputs, &values, out);
            }
            OutputRows::TopK { k, best } => {
                let candidates: Vec<_> = parts.iter().map(PartRows::top_k).collect();
                if let Some((output, _)) = outputs.last() {
                    merge(output, k, &candidates, best);
                }
            }
        }
        for (buffer, rows) in self.buffers.iter_mut().zip(parts) {
            if let PartRows::Whole(rows) = rows {
                *buffer = rows;
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        self.check()?;
        self.workers.iter().try_for_each(|worker| worker.executor().wait())
    }

    fn max_top_k(&self) -> usize {
        if self.is_lost {
            return 0;
        }
        self.workers.iter().map(|worker| worker.executor().max_top_k()).min().unwrap_or(0)
    }

    fn takes_media(&self) -> bool {
        !self.is_lost && self.workers.iter().all(|worker| worker.executor().takes_media())
    }

    fn copy_pages(&mut self, copies: &[CopyPage]) -> Result<(), BackendError> {
        self.check()?;
        self.workers.iter().try_for_each(|worker| worker.executor().copy_pages(copies))
    }

    /// The pages of all parts, each after its length.
    fn read_page(
        &self,
        group: PageGroup,
        page: PageId,
        out: &mut Vec<u8>,
    ) -> Result<(), BackendError> {
        self.check()?;
        let mut own = Vec::new();
        for worker in &self.workers {
            own.clear();
            worker.executor().read_page(group, page, &mut own)?;
            out.extend_from_slice(&(own.len() as u64).to_le_bytes());
            out.extend_from_slice(&own);
        }
        Ok(())
    }

    fn write_page(
        &mut self,
        group: PageGroup,
        page: PageId,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        self.check()?;
        let mut rest = bytes;
        for worker in &self.workers {
            let part = rest.split_first_chunk().and_then(|(len, rest)| {
                rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)
            });
            let Some((own, others)) = part else {
                return Err(BackendError::InvalidBatch("a page of another layout".into()));
            };
            worker.executor().write_page(group, page, own)?;
            rest = others;
        }
        Ok(())
    }

    fn memory(&self) -> MemoryUse {
        let outputs = MemoryUse { buffers_bytes: self.buffers_bytes, ..MemoryUse::default() };
        if self.is_lost {
            return outputs;
        }
        self.workers.iter().fold(outputs, |sum, worker| sum + worker.executor().memory())
    }

    fn telemetry(&mut self) -> Option<&mut dyn Telemetry> {
        self.check().ok()?;
        let is_measured = |worker: &PartWorker| worker.executor().telemetry().is_some();
        self.workers.iter().any(is_measured).then_some(self as _)
    }
}

impl TensorExecutor {
    /// Calls the measurements of each part that takes them.
    fn each_telemetry<R>(&self, call: impl Fn(&mut dyn Telemetry) -> R) -> Vec<R> {
        let calls = self.workers.iter().map(|worker| worker.executor().telemetry().map(&call));
        calls.flatten().collect()
    }
}

impl Telemetry for TensorExecutor {
    fn profile(&mut self, on: bool) {
        self.each_telemetry(|part| part.profile(on));
    }

    fn record_timeline(&mut self, max_events: usize) -> bool {
        self.each_telemetry(|part| part.record_timeline(max_events)).contains(&true)
    }

    fn timelines(&mut self) -> Vec<Timeline> {
        self.each_telemetry(|part| part.timelines()).concat()
    }

    fn summaries(&mut self) -> Vec<BackendExecutionSummary> {
        self.each_telemetry(|part| part.summaries()).concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(width: usize, at: usize) -> PartOutput {
        let columns = Some(vec![0..at, at..width]);
        PartOutput { rows: RowKind::Output, width, columns }
    }

    #[test]
    fn columns_of_parts_are_put_side_by_side() {
        let whole = PartOutput { rows: RowKind::Output, width: 2, columns: None };
        let outputs = [(&whole, 2), (&divided(3, 1), 2)];
        let first: &[f32] = &[1.0, 2.0, 3.0, 4.0, 10.0, 20.0];
        let second: &[f32] = &[1.0, 2.0, 3.0, 4.0, 11.0, 12.0, 21.0, 22.0];
        let mut out = [0.0; 10];
        join(&outputs, &[first, second], &mut out);
        let expected = [1.0, 2.0, 3.0, 4.0, 10.0, 11.0, 12.0, 20.0, 21.0, 22.0];
        assert_eq!(out.map(f32::to_bits), expected.map(f32::to_bits));
    }

    #[test]
    fn the_best_candidates_of_all_parts_are_in_the_order_of_the_row() {
        let candidate = |id, logit| Candidate { id, logit };
        let first = [candidate(1, 5.0), candidate(0, f32::NAN)];
        let second = [candidate(2, 7.0), candidate(0, 5.0), candidate(1, 1.0)];
        let mut best = [Candidate::default(); 3];
        merge(&divided(5, 2), 3, &[(2, &first), (3, &second)], &mut best);
        assert_eq!(best.map(|c| c.id), [4, 1, 2]);
    }
}
