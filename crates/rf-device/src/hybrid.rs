//! One program on several backends: the first layers on one, the next ones on another. The
//! feed-forward parts with experts of the last layers may be on the first backend too, because
//! expert weights are most of a model and a token reads few of them.
//!
//! [`HybridBackend`] is a backend of two others. It splits the program ([`split`]), checks both
//! parts against free memory, fuses each for its backend, and runs the stages in turn. Two CPU
//! parts reproduce the bits of one. [`Placement`](crate::Placement) chooses the layers of each.
//!
//! The residual moves between the backends, with what later layers need besides it: the per-layer
//! inputs and shared keys and values of Gemma 4. It moves once per batch, and twice for each layer
//! whose experts are on the other backend.

use std::sync::Arc;

use rf_graph::{
    Backend, BackendError, BackendExecutionSummary, Batch, CopyPage, Executor, Fusions, Input,
    Layout, MemoryNeed, MemoryUse, Output, PageGroup, PageId, Program, Progress, QueuedRows, Side,
    Split, Telemetry, Timeline, Turn, split,
};

/// Two backends, or more, that run the stages of a program in turns.
///
/// Each part is fused for its backend. Where all backends compute the same bits, so does the
/// hybrid.
pub struct HybridBackend<'a> {
    first: &'a dyn Backend,
    second: Second<'a>,
    cut: Cut,
}

/// The backend of the ops that the first one does not run.
enum Second<'a> {
    Backend(&'a dyn Backend),
    Hybrid(Box<HybridBackend<'a>>),
}

/// The ops of the first backend.
#[derive(Clone, Copy)]
enum Cut {
    /// Those of a layout.
    Layout(Layout),
    /// The embedding and this share of the layers, with the output as one.
    Share(f32),
}

impl<'a> HybridBackend<'a> {
    /// The ops of the layout go to `first`, all others to `second`.
    pub fn new(first: &'a dyn Backend, second: &'a dyn Backend, layout: Layout) -> Self {
        Self { first, second: Second::Backend(second), cut: Cut::Layout(layout) }
    }

    /// Deals the layers of a program over backends as [`Self::deal`] says. `None` for fewer than
    /// two.
    ///
    /// The parts of a prompt that need no output rows do not wait for each other: while a device
    /// computes its layers of one chunk, the device before it computes the next chunk.
    pub fn dealt(backends: &[(&'a dyn Backend, f32)]) -> Option<Self> {
        let [(first, share), rest @ ..] = backends else { return None };
        let second = match rest {
            [] => return None,
            [(last, _)] => Second::Backend(*last),
            _ => Second::Hybrid(Box::new(Self::dealt(rest)?)),
        };
        let all: f32 = backends.iter().map(|(_, share)| share).sum();
        Some(Self { first: *first, second, cut: Cut::Share(share / all) })
    }

    /// Number of layers of each device, by their shares. In turn, each gets its share of the
    /// remaining layers, rounded. What is near a tie goes to the later device: the last one has the
    /// output as a layer, which has no work in most of a prompt, and the free memory of equal cards
    /// differs a little.
    pub fn deal(layers: usize, shares: &[f32]) -> Vec<usize> {
        let mut left = layers;
        let mut counts: Vec<usize> = (1..shares.len())
            .map(|next| {
                let of = &shares[next - 1..];
                let count = part_of(left, of[0] / of.iter().sum::<f32>());
                left -= count;
                count
            })
            .collect();
        counts.push(left);
        counts
    }
}

fn part_of(layers: usize, share: f32) -> usize {
    const TIE: f32 = 0.25;
    ((layers as f32 * share - TIE).round().max(0.0) as usize).min(layers)
}

/// A program for a hybrid.
enum Parts<'a> {
    /// A backend runs all of it.
    Whole(&'a dyn Backend, Box<Program>),
    /// Both have a part.
    Divided(Box<Split>),
}

impl HybridBackend<'_> {
    fn second(&self) -> &dyn Backend {
        match &self.second {
            Second::Backend(backend) => *backend,
            Second::Hybrid(hybrid) => &**hybrid,
        }
    }

    /// The parts of a program, each fused for its backend.
    fn parts(&self, program: Program) -> Result<Parts<'_>, BackendError> {
        let layout = match self.cut {
            Cut::Layout(layout) => layout,
            Cut::Share(share) => {
                let num_layers = program.graph.num_layers();
                match part_of(num_layers + 1, share) {
                    0 => {
                        let whole = program.fused_for(self.second());
                        return Ok(Parts::Whole(self.second(), Box::new(whole)));
                    }
                    layers if layers > num_layers => {
                        let whole = program.fused_for(self.first);
                        return Ok(Parts::Whole(self.first, Box::new(whole)));
                    }
                    layers => Layout { layers, expert_layers: 0 },
                }
            }
        };
        let parts = split(program, layout).map_err(|error| BackendError::Unsupported {
            backend: self.name(),
            what: format!("it: {error}"),
        })?;
        let (first, second) =
            (parts.first.fused_for(self.first), parts.second.fused_for(self.second()));
        Ok(Parts::Divided(Box::new(Split { first, second, ..parts })))
    }
}

impl Backend for HybridBackend<'_> {
    fn name(&self) -> &'static str {
        "hybrid"
    }

    fn description(&self) -> String {
        format!("{}; {}", self.first.description(), self.second().description())
    }

    /// None: the program is cut before each part is fused.
    fn fusions(&self) -> Fusions {
        Fusions::NONE
    }

    fn rounds_operands_to_f16(&self) -> bool {
        self.first.rounds_operands_to_f16() || self.second().rounds_operands_to_f16()
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        let first = self.first.available_memory_bytes()?;
        Some(first.saturating_add(self.second().available_memory_bytes()?))
    }

    fn memory_need(&self, program: &Program) -> Result<MemoryNeed, BackendError> {
        let Split { first, second, stages } = match self.parts(program.clone())? {
            Parts::Whole(backend, program) => return backend.memory_need(&program),
            Parts::Divided(split) => *split,
        };
        let width = widest(&stages);
        // What a stage reads, and what it writes.
        let buffers_bytes = (2 * program.max_batch_tokens * width * size_of::<f32>()) as u64;
        let held = MemoryUse { buffers_bytes, ..MemoryUse::default() };
        let buffers = MemoryNeed { held, reserve_bytes: 0 };
        Ok(self.first.memory_need(&first)? + self.second().memory_need(&second)? + buffers)
    }

    /// Checks each part against the memory of its backend.
    fn check_memory(&self, program: &Program) -> Result<(), BackendError> {
        match self.parts(program.clone())? {
            Parts::Whole(backend, program) => backend.check_memory(&program),
            Parts::Divided(parts) => {
                self.second().check_memory(&parts.second)?;
                self.first.check_memory(&parts.first)
            }
        }
    }

    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError> {
        let tokens = program.max_batch_tokens;
        let Split { first, second, stages } = match self.parts(program)? {
            Parts::Whole(backend, program) => return backend.compile(*program, progress),
            Parts::Divided(split) => *split,
        };
        let bytes = [weight_bytes(&second), weight_bytes(&first)];
        let total_bytes = bytes[0] + bytes[1];
        let mut load = |backend: &dyn Backend, part: Program, before, bytes: u64| {
            backend.compile(part, &mut |Progress { done_bytes, total_bytes: all }| {
                let share = u128::from(done_bytes) * u128::from(bytes) / u128::from(all.max(1));
                progress(Progress { done_bytes: before + share as u64, total_bytes });
            })
        };
        // The device has less memory than the host, so a failure shows first there.
        let second = load(self.second(), second, 0, bytes[0])?;
        let first = load(self.first, first, bytes[0], bytes[1])?;
        let floats = tokens * widest(&stages);
        let (input, output) = (vec![0.0; floats], vec![0.0; floats]);
        let max_tokens = tokens;
        Ok(Box::new(HybridExecutor { first, second, stages, max_tokens, input, output }))
    }
}

/// The largest width that a part hands over.
fn widest(stages: &[Vec<Turn>]) -> usize {
    stages.iter().flatten().map(|turn| turn.width).max().unwrap_or(0)
}

fn weight_bytes(program: &Program) -> u64 {
    program.weights.iter().map(|weight| weight.size_bytes() as u64).sum()
}

struct HybridExecutor {
    first: Box<dyn Executor>,
    second: Box<dyn Executor>,
    stages: Vec<Vec<Turn>>,
    /// Largest number of tokens of a batch.
    max_tokens: usize,
    /// The inputs of the next turn; it has room for the largest batch and width.
    input: Vec<f32>,
    /// The outputs of the next turn; it is as large as `input`.
    output: Vec<f32>,
}

/// The input of a turn: the rows of the turn before, or the input of the batch for the first one.
fn input_of<'a>(
    batch: &Batch<'a>,
    queued: Option<&'a Arc<dyn QueuedRows>>,
    rows: Option<&'a [f32]>,
) -> Option<Input<'a>> {
    queued.map(Input::Queued).or(rows.map(Input::Rows)).or(batch.input)
}

impl Executor for HybridExecutor {
    /// Runs the turns of a stage. All but the last are queued where their executors do so: then the
    /// next one begins when its device has the rows, and this thread does not wait.
    fn forward(&mut self, batch: &Batch<'_>, output: Output<'_>) -> Result<(), BackendError> {
        let tokens = batch.ids.len();
        if tokens > self.max_tokens {
            let what = format!("{tokens} tokens are more than the program allows");
            return Err(BackendError::InvalidBatch(what));
        }
        let stage = output.stage.unwrap_or(self.stages.len() - 1);
        let Some((last, turns)) = self.stages.get(stage).and_then(|turns| turns.split_last())
        else {
            let what = format!("stage {stage} of {}", self.stages.len());
            return Err(BackendError::InvalidBatch(what));
        };
        let mut floats = None;
        let mut queued: Option<Arc<dyn QueuedRows>> = None;
        let mut is_queued = false;
        for Turn { side, stage, width } in turns {
            let executor = match side {
                Side::First => &mut self.first,
                Side::Second => &mut self.second,
            };
            let input = input_of(batch, queued.as_ref(), floats.map(|len| &self.input[..len]));
            // What is handed over has one row per token, so no output rows are selected.
            let batch = Batch { output_rows: &[], input, ..*batch };
            let rows = &mut self.output[..tokens * width];
            let len = rows.len();
            let mut next = None;
            let output = Output { queued: Some(&mut next), ..Output::rows(rows).of_stage(*stage) };
            executor.forward(&batch, output)?;
            if next.is_some() {
                is_queued = true;
            } else {
                floats = Some(len);
                std::mem::swap(&mut self.input, &mut self.output);
            }
            queued = next;
        }
        let executor = match last.side {
            Side::First => &mut self.first,
            Side::Second => &mut self.second,
        };
        let input = input_of(batch, queued.as_ref(), floats.map(|len| &self.input[..len]));
        let has_output = !output.rows.is_empty();
        let output = Output { stage: Some(last.stage), queued: None, ..output };
        executor.forward(&Batch { input, ..*batch }, output)?;
        // The output is wrong if a queued turn failed.
        if is_queued && has_output { self.wait() } else { Ok(()) }
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        self.first.wait()?;
        self.second.wait()
    }

    fn max_top_k(&self) -> usize {
        match self.stages.iter().flatten().last().map(|turn| turn.side) {
            Some(Side::First) => self.first.max_top_k(),
            _ => self.second.max_top_k(),
        }
    }

    fn takes_media(&self) -> bool {
        self.first.takes_media() && self.second.takes_media()
    }

    fn copy_pages(&mut self, copies: &[CopyPage]) -> Result<(), BackendError> {
        self.first.copy_pages(copies)?;
        self.second.copy_pages(copies)
    }

    fn read_page(
        &self,
        group: PageGroup,
        page: PageId,
        out: &mut Vec<u8>,
    ) -> Result<(), BackendError> {
        let mut first = Vec::new();
        self.first.read_page(group, page, &mut first)?;
        out.extend_from_slice(&(first.len() as u64).to_le_bytes());
        out.extend_from_slice(&first);
        self.second.read_page(group, page, out)
    }

    fn write_page(
        &mut self,
        group: PageGroup,
        page: PageId,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        let parts = bytes.split_first_chunk().and_then(|(first_bytes, parts)| {
            parts.split_at_checked(usize::try_from(u64::from_le_bytes(*first_bytes)).ok()?)
        });
        let Some((first, second)) = parts else {
            return Err(BackendError::InvalidBatch("a page of another layout".into()));
        };
        self.first.write_page(group, page, first)?;
        self.second.write_page(group, page, second)
    }

    fn memory(&self) -> MemoryUse {
        let (first, second) = (self.first.memory(), self.second.memory());
        let residual_bytes = (size_of_val(&*self.input) + size_of_val(&*self.output)) as u64;
        first + second + MemoryUse { buffers_bytes: residual_bytes, ..MemoryUse::default() }
    }

    fn telemetry(&mut self) -> Option<&mut dyn Telemetry> {
        self.parts().next()?;
        Some(self)
    }
}

impl HybridExecutor {
    /// The measurements of the executors that take them.
    fn parts(&mut self) -> impl Iterator<Item = &mut dyn Telemetry> {
        self.first.telemetry().into_iter().chain(self.second.telemetry())
    }
}

impl Telemetry for HybridExecutor {
    fn profile(&mut self, on: bool) {
        self.parts().for_each(|part| part.profile(on));
    }

    fn record_timeline(&mut self, max_events: usize) -> bool {
        // All of them, even if only one can.
        self.parts().fold(false, |any, part| part.record_timeline(max_events) | any)
    }

    fn timelines(&mut self) -> Vec<Timeline> {
        self.parts().flat_map(Telemetry::timelines).collect()
    }

    fn summaries(&mut self) -> Vec<BackendExecutionSummary> {
        self.parts().flat_map(Telemetry::summaries).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_dealt_by_shares() {
        let deal = HybridBackend::deal;
        assert_eq!(deal(33, &[1.0, 1.0]), [16, 17]);
        assert_eq!(deal(33, &[1.01, 1.0]), [16, 17]);
        assert_eq!(deal(33, &[1.1, 1.0]), [17, 16]);
        assert_eq!(deal(33, &[3.0, 1.0]), [25, 8]);
        assert_eq!(deal(5, &[1.0, 1.0, 1.0]), [1, 2, 2]);
        assert_eq!(deal(4, &[0.0, 1.0]), [0, 4]);
        assert_eq!(deal(4, &[1.0]), [4]);
        assert!(HybridBackend::dealt(&[]).is_none());
    }
}
