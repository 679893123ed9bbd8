//! Programs of one op: their weights and batches, and a run on a backend.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rf_graph::conformance::Numbers;
use rf_graph::{
    Backend, Batch, DType, Executor, GraphBuilder, KvLayout, KvType, Program, Span, ValueId, Weight,
};
use rf_kv::{PageId, PageSize};

use crate::{Clock, Error, Prepared, Target};

/// What operands that are read once per token come to together, so that caches of hosts and devices do not
/// hold them.
const COLD_BYTES: usize = 256 << 20;

/// The most copies of an operand.
const MAX_COPIES: usize = 256;

/// Values that are made and quantised for a weight; the rest repeats them. Time does not depend on values, and
/// quantising large matrices takes longer than measuring them.
const DISTINCT_VALUES: usize = 1 << 18;

/// Tokens per page where it does not matter: what users get by default.
pub(crate) const PAGE_TOKENS: usize = PageSize::Tokens32.tokens();

/// A program that is run over and over with one batch.
pub(crate) struct OpProgram {
    pub(crate) program: Program,
    pub(crate) batch: OwnedBatch,
    /// Fed once, before everything else.
    pub(crate) fill: Vec<OwnedBatch>,
    pub(crate) timed: Timed,
}

/// What of a step is timed.
#[derive(Clone, Copy)]
pub(crate) enum Timed {
    /// All ops of a name, divided by a number.
    Op(&'static str, u32),
    /// The step as its caller sees it.
    Step,
}

/// A batch whose output nobody wants: copying it would take longer than many a step.
#[derive(Clone, Debug)]
pub(crate) struct OwnedBatch {
    ids: Vec<u32>,
    /// Tokens, past tokens and pages of each span.
    spans: Vec<(Range<usize>, usize, Vec<PageId>)>,
}

impl OwnedBatch {
    /// Tokens of one sequence after `past_tokens` others, whose pages are the first ones in order. Their ids go round
    /// a vocabulary.
    pub(crate) fn of_sequence(
        tokens: usize,
        past_tokens: usize,
        vocab_size: usize,
        page_tokens: usize,
    ) -> Self {
        let pages = (past_tokens + tokens).div_ceil(page_tokens) as u32;
        let pages = (0..pages).map(PageId::new).collect();
        Self { ids: ids(tokens, vocab_size), spans: vec![(0..tokens, past_tokens, pages)] }
    }

    /// Full pages, each as a sequence of its own: attention over them costs next to nothing, and what is in them can
    /// afterwards be the past of one long sequence.
    pub(crate) fn of_pages(pages: Range<u32>, vocab_size: usize, page_tokens: usize) -> Self {
        let spans: Vec<_> = pages
            .enumerate()
            .map(|(i, page)| (i * page_tokens..(i + 1) * page_tokens, 0, vec![PageId::new(page)]))
            .collect();
        Self { ids: ids(spans.len() * page_tokens, vocab_size), spans }
    }

    pub(crate) fn tokens(&self) -> usize {
        self.ids.len()
    }

    /// Calls `f` with the batch and these rows for its output.
    pub(crate) fn with<R>(&self, output_rows: &[usize], f: impl FnOnce(&Batch<'_>) -> R) -> R {
        let spans: Vec<Span<'_>> = self
            .spans
            .iter()
            .map(|(tokens, past_tokens, pages)| Span {
                tokens: tokens.clone(),
                past_tokens: *past_tokens,
                pages,
            })
            .collect();
        f(&Batch { ids: &self.ids, spans: &spans, output_rows, input: None })
    }
}

fn ids(tokens: usize, vocab_size: usize) -> Vec<u32> {
    (0..tokens).map(|i| (i % vocab_size) as u32).collect()
}

impl OpProgram {
    /// Compiles it, feeds what is to be in the cache, and runs it from then on.
    pub(crate) fn prepare(self, target: &Target) -> Result<Prepared, Error> {
        self.check_memory(target)?;
        self.prepare_on(target.backend())
    }

    /// The same on a given backend.
    pub(crate) fn prepare_on(self, backend: &dyn Backend) -> Result<Prepared, Error> {
        let Self { program, batch, fill, timed } = self;
        let mut executor = backend.compile(program, &mut |_| ())?;
        for batch in fill {
            batch.with(&[], |batch| executor.forward(batch, &mut []))?;
        }
        match timed {
            Timed::Step => Ok(Prepared::new(Clock::Host, move || {
                batch.with(&[], |batch| {
                    let start = Instant::now();
                    executor.forward(batch, &mut [])?;
                    Ok(start.elapsed())
                })
            })),
            Timed::Op(op, copies) => {
                if !executor.profile(true) {
                    let name = backend.name();
                    return Err(Error::Unsupported(format!("the {name} takes no times of ops")));
                }
                let mut before = Duration::ZERO;
                Ok(Prepared::new(Clock::Op, move || {
                    batch.with(&[], |batch| executor.forward(batch, &mut []))?;
                    let after = time_of(&*executor, op);
                    let time = after.saturating_sub(before) / copies;
                    before = after;
                    Ok(time)
                }))
            }
        }
    }

    /// Whether the host has room for the program, on the CPU twice: weights are packed into copies. A device's memory
    /// is checked by its backend.
    fn check_memory(&self, target: &Target) -> Result<(), Error> {
        let program = &self.program;
        let mut bytes: u64 = program.weights.iter().map(|w| w.bytes().len() as u64).sum();
        if target.is_gpu() {
            return Ok(());
        }
        bytes += program.kv.bytes() as u64;
        match target.backend().available_memory_bytes() {
            Some(available) if available < bytes => {
                Err(Error::OutOfMemory { what: "weights and KV cache", bytes })
            }
            _ => Ok(()),
        }
    }
}

/// The time of all ops of a name since times are taken.
fn time_of(executor: &dyn Executor, op: &str) -> Duration {
    let summaries = executor.summaries();
    summaries.iter().filter_map(|summary| summary.ops.get(op)).map(|op| op.time).sum()
}

/// How many operands of so many bytes it takes that no cache holds them.
pub(crate) fn cold_copies(bytes: usize) -> usize {
    COLD_BYTES.div_ceil(bytes.max(1)).clamp(1, MAX_COPIES)
}

/// A cache of no layers, with room for so many tokens: a batch names pages even then.
pub(crate) fn no_cache(tokens: usize) -> KvLayout {
    let num_pages = tokens.div_ceil(PAGE_TOKENS);
    KvLayout { layers: Vec::new(), page_tokens: PAGE_TOKENS, num_pages, dtype: KvType::F32 }
}

/// A format in names.
pub(crate) fn word(dtype: DType) -> String {
    dtype.name().to_ascii_lowercase()
}

/// A graph under construction, with weights out of nothing.
pub(crate) struct Net {
    pub(crate) g: GraphBuilder,
    numbers: Numbers,
}

impl Net {
    pub(crate) fn new() -> Self {
        Self { g: GraphBuilder::new(), numbers: Numbers::new("rf-bench") }
    }

    /// A value of nearly normal numbers `[tokens, width]`: rows of a table of `vocab_size` rows, by id.
    pub(crate) fn rows_of_table(&mut self, vocab_size: usize, width: usize) -> ValueId {
        let table = self.weight(DType::F32, vocab_size, width, 1.0);
        let table = self.g.weight(table);
        self.g.embed(table, 1.0)
    }

    /// A matrix that keeps the variance of what it multiplies. Clones share their bytes.
    pub(crate) fn matrix(&mut self, dtype: DType, rows: usize, columns: usize) -> Weight {
        self.weight(dtype, rows, columns, 1.0 / (columns as f32).sqrt())
    }

    fn weight(&mut self, dtype: DType, rows: usize, columns: usize, scale: f32) -> Weight {
        let distinct = rows.min((DISTINCT_VALUES / columns).max(1));
        let values: Vec<f32> =
            (0..distinct * columns).map(|_| scale * self.numbers.normal()).collect();
        let row_bytes = dtype.row_bytes(columns).expect("whole blocks");
        let some = rf_quant::quantize_to_vec(dtype, &values).expect("finite values, whole blocks");
        let bytes: Vec<u8> = some.iter().copied().cycle().take(rows * row_bytes).collect();
        Weight::new("weight", dtype, rows, columns, Arc::new(bytes)).expect("as many bytes")
    }

    /// The program whose output is a value; of it, whoever runs it asks for the rows wanted.
    pub(crate) fn finish(mut self, value: ValueId, kv: KvLayout, max_tokens: usize) -> Program {
        let out = self.g.select_rows(value);
        let (graph, weights) = self.g.finish(out);
        Program { graph, weights, kv, max_batch_tokens: max_tokens, max_output_rows: max_tokens }
    }
}

/// Runs a program on the CPU and by definition, and panics where the results differ by more than the bound. Gives
/// what one of the timed ops costs.
#[cfg(test)]
pub(crate) fn agreement(given: OpProgram, bound: rf_graph::conformance::Bound) -> rf_graph::OpCost {
    use rf_graph::conformance::Deviation;
    use rf_graph::{Costs, OpCost, ReferenceBackend};

    let OpProgram { program, batch, fill, timed } = given;
    let rows: Vec<usize> = (0..batch.tokens()).collect();
    let width = program.graph.value(program.graph.output()).width;
    let cost = match timed {
        Timed::Step => OpCost::default(),
        Timed::Op(name, count) => {
            let timed: Vec<_> = program.graph.ops().iter().filter(|op| op.name() == name).collect();
            assert!(timed.len().is_multiple_of(count as usize) && !timed.is_empty(), "{name}");
            batch.with(&rows, |batch| Costs::new(&program).of(&program.graph, timed[0], batch))
        }
    };
    let copy = |program: &Program| Program {
        graph: program.graph.clone(),
        weights: program.weights.clone(),
        kv: program.kv.clone(),
        ..*program
    };
    let run = |backend: &dyn Backend| {
        let mut executor = backend.compile(copy(&program), &mut |_| ()).unwrap();
        for batch in &fill {
            batch.with(&[], |batch| executor.forward(batch, &mut [])).unwrap();
        }
        let mut out = vec![f32::NAN; rows.len() * width];
        batch.with(&rows, |batch| executor.forward(batch, &mut out)).unwrap();
        vec![out]
    };
    let target = Target::cpu(Some(2), None).unwrap();
    let deviation = Deviation::between(&run(target.backend()), &run(&ReferenceBackend));
    assert!(deviation.is_within(bound), "{deviation}");
    cost
}
