//! The run of a step: by plain launches or as captured graphs, with the check of its result.

use std::sync::Arc;
use std::time::Instant;

use rf_graph::{BackendError, Batch, Costs, Input, OutputRows, Stage};
use rf_hip::Stream;

use super::hand_over::{HandOvers, HandedRows};
use super::kv::{KvMemory, SavedStates};
use super::launches::{LaunchesKey, ResultKind, StepLaunches, StepPlaces, output_shape};
use super::media::{MediaMemory, MediaPlaces};
use super::padding::{PaddedBatch, Padding};
use super::profile::LaunchProfile;
use super::program::DeviceProgram;
use super::replay::{KeptSteps, ReplayEntry};
use super::results::Results;
use super::rope::RopeTables;
use super::step::{BLOCKS, StepMemory, StepShape};
use super::sums::Sums;
use super::top_k::TopK;
use super::work::Work;
use crate::error::Error;
use crate::graphs::LaunchMark;
use crate::launch::Gpu;

/// Largest number of tokens of a step whose launches are kept and captured.
const MAX_KEPT_TOKENS: usize = 64;

/// The outcome of a replay.
enum Replayed {
    /// The result has the stamp of the step.
    Fresh,
    /// The result is that of another step.
    Stale,
    /// The runtime refused the graph; the number of parts that run nevertheless.
    Refused(usize, rf_hip::Error),
}

/// A program in device memory, and the steps that ran on it.
pub(super) struct ProgramRunner {
    pub(super) gpu: Arc<Gpu>,
    pub(super) stream: Stream,
    pub(super) program: DeviceProgram,
    pub(super) stages: Vec<Stage>,
    pub(super) kv: KvMemory,
    pub(super) ropes: RopeTables,
    /// `None` if the program takes no pictures.
    pub(super) media: Option<MediaMemory>,
    pub(super) step: StepMemory,
    pub(super) results: Results,
    pub(super) hand_overs: HandOvers,
    /// The connection to the other parts of a divided program.
    pub(super) sums: Sums,
    pub(super) top_k: TopK,
    pub(super) work: Work,
    pub(super) padding: Padding,
    pub(super) kept: KeptSteps,
    /// Marks the first replay of each graph; `None` if steps are not replayed.
    pub(super) graphs: Option<Arc<LaunchMark>>,
    /// The block of the next step whose launches are not kept.
    pub(super) next_block: usize,
    /// True if the runtime copied to device memory after the last step.
    pub(super) is_copied: bool,
    /// True if the cache may have wrong values.
    pub(super) is_damaged: bool,
    pub(super) costs: Costs,
    pub(super) profile: Option<LaunchProfile>,
}

impl ProgramRunner {
    /// Records the launches of a step, see [`StepPlaces::record`].
    pub(super) fn record(
        &self,
        key: LaunchesKey,
        block: usize,
        divided: bool,
    ) -> Result<StepLaunches, Error> {
        self.places(key.stage).record(key, block, divided)
    }

    fn places(&self, stage: usize) -> StepPlaces<'_> {
        StepPlaces {
            gpu: &self.gpu,
            program: &self.program,
            step: &self.step,
            results: &self.results,
            sums: &self.sums,
            top_k: &self.top_k,
            stage: &self.stages[stage],
            input: None,
            output: None,
            media: MediaPlaces::new(self.media.as_ref()),
        }
    }

    /// Returns true if the launches of a batch are not kept, so that they may access memory of this
    /// step only.
    pub(super) fn runs_once(&self, batch: &Batch<'_>) -> bool {
        let has_media = batch.spans.iter().any(|span| span.media.is_some());
        (batch.ids.len() > MAX_KEPT_TOKENS || has_media) && self.profile.is_none()
    }

    /// Takes queued rows of input out of a batch: those that the device can wait for. Waits for
    /// others.
    pub(super) fn take_input<'a>(
        &self,
        batch: &Batch<'a>,
        stage: usize,
    ) -> Result<(Batch<'a>, Option<Arc<HandedRows>>), BackendError> {
        let Some(Input::Queued(rows)) = batch.input else { return Ok((*batch, None)) };
        // Kernels read pairs, so each op but the last has a whole number of them.
        let widths = self.input_widths(stage);
        let odd = |width: &usize| (width * batch.ids.len()) % 2 == 1;
        let has_pairs = !widths.iter().rev().skip(1).any(odd);
        if self.runs_once(batch)
            && has_pairs
            && let Some(rows) = HandedRows::of(rows, self.gpu.context())
        {
            return Ok((Batch { input: None, ..*batch }, Some(rows)));
        }
        Ok((Batch { input: Some(Input::Rows(rows.wait()?)), ..*batch }, None))
    }

    fn input_widths(&self, stage: usize) -> Vec<usize> {
        let inputs = self.stages[stage].inputs.iter();
        inputs.map(|id| self.program.graph.value(*id).width).collect()
    }

    /// Queues a stage whose outputs another device reads, for a batch that runs once.
    pub(super) fn hand_over(
        &mut self,
        batch: &Batch<'_>,
        handed: Option<Arc<HandedRows>>,
        stage: usize,
    ) -> Result<Arc<HandedRows>, Error> {
        let key = self.prepare(batch, stage, 0)?;
        let (rows, width) = output_shape(&self.program.graph, &self.stages[stage], key.shape);
        let most = self.step.sizes().max_tokens * width;
        let to = self.hand_overs.take(self.gpu.context(), rows * width, most)?;
        let (launches, _) = self.queue_once(key, batch, handed, Some(&to))?;
        to.mark_written(&self.stream)?;
        self.step.leave(launches.block, &self.stream)?;
        Ok(to)
    }

    /// Runs a step, with rows of input from another device if there are any.
    pub(super) fn run(
        &mut self,
        batch: &Batch<'_>,
        handed: Option<Arc<HandedRows>>,
        stage: usize,
        mut out: OutputRows<'_>,
    ) -> Result<(), Error> {
        let started = Instant::now();
        if self.runs_once(batch) {
            let key = self.prepare(batch, stage, out.k())?;
            return self.run_once(key, batch, handed, &mut out);
        }
        let padding = self.padding.clone();
        let padded = padding.pad(batch);
        let all = padded.as_ref().map_or(*batch, PaddedBatch::batch);
        let key = self.prepare(&all, stage, out.k())?;
        if self.profile.is_some() {
            return self.run_profiled(key, (&all, batch), &mut out, started);
        }
        let mut entry = match self.kept.take(key) {
            Some(entry) => entry,
            None => ReplayEntry::new(self.record(key, 0, true)?),
        };
        let are_sums_new = self.sums.are_new();
        let outcome = self.run_kept(&mut entry, key, &all, &mut out);
        if !are_sums_new {
            self.kept.put(key, entry);
        }
        outcome
    }

    /// Prepares the memory for a step.
    fn prepare(&mut self, batch: &Batch<'_>, stage: usize, k: usize) -> Result<LaunchesKey, Error> {
        if self.is_damaged {
            return Err(Error::Stale);
        }
        let shape = StepShape::of(batch);
        self.make_room(batch, &shape)?;
        Ok(LaunchesKey { shape, stage, k })
    }

    /// Extends the arrays and the tables of RoPE for a batch, and copies its pictures.
    fn make_room(&mut self, batch: &Batch<'_>, shape: &StepShape) -> Result<(), Error> {
        let pages = self.step.pages_of(batch);
        if !self.step.has_room(shape, pages) {
            self.finish()?;
            // Recordings contain the addresses of the old memory.
            self.kept.clear();
            let sizes = self.step.sizes().with_room_for(pages);
            self.step = StepMemory::new(self.gpu.context(), sizes)?;
        }
        let positions = batch.spans.iter().map(|span| span.end().max(span.max_coordinate() + 1));
        let positions = positions.max().unwrap_or(0);
        self.is_copied |= self.ropes.extend_to(&self.stream, positions)?;
        if shape.has_positions {
            self.is_copied |= self.ropes.place(&self.stream, batch)?;
        }
        self.load_media(batch)
    }

    /// Copies the rows of pictures to the device.
    fn load_media(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        if self.media.as_ref().is_some_and(|media| !media.has_room(batch)) {
            // A queued step reads the memory that is replaced.
            self.finish()?;
        }
        if let Some(media) = &mut self.media {
            self.is_copied |= media.load(self.gpu.context(), &self.stream, batch)?;
        }
        Ok(())
    }

    /// Waits for all steps and checks those that nobody has checked.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.await_others()?;
        self.stream.synchronize()?;
        for (block, stamp) in self.step.take_unchecked().into_iter().enumerate() {
            self.check_stamp(block, stamp)?;
        }
        Ok(())
    }

    /// Waits for the work of other devices for which this one waits.
    fn await_others(&self) -> Result<(), Error> {
        self.step.await_handed()?;
        self.sums.wait(&self.stream)
    }

    /// Checks a step without outputs, which nobody waited for. Steps after it have read the cache
    /// that it wrote, so the executor is damaged if it was wrong.
    fn check_stamp(&mut self, block: usize, stamp: Option<u32>) -> Result<(), Error> {
        if stamp.is_some_and(|stamp| !self.results.are_of(block, 1, stamp)) {
            self.is_damaged = true;
            return Err(Error::Stale);
        }
        Ok(())
    }

    /// Writes the inputs of a step to a block that the device is done with. Returns the stamp of
    /// the step and the number of bytes.
    fn write_inputs(
        &mut self,
        block: usize,
        key: LaunchesKey,
        batch: &Batch<'_>,
    ) -> Result<(u32, usize), Error> {
        let unchecked = self.step.claim(block, &self.stream)?;
        self.check_stamp(block, unchecked)?;
        Ok(match batch.input {
            Some(Input::Rows(rows)) => {
                let widths = self.input_widths(key.stage);
                self.step.write(block, batch, rows, &widths, &self.ropes)
            }
            _ => self.step.write(block, batch, &[], &[], &self.ropes),
        })
    }

    /// Runs a step whose launches are not kept. A step without outputs is queued only, so that the
    /// device has the next chunk of a prompt when it is done with this one.
    fn run_once(
        &mut self,
        key: LaunchesKey,
        batch: &Batch<'_>,
        handed: Option<Arc<HandedRows>>,
        out: &mut OutputRows<'_>,
    ) -> Result<(), Error> {
        let (launches, stamp) = self.queue_once(key, batch, handed, None)?;
        if out.is_empty() {
            return self.step.leave(launches.block, &self.stream);
        }
        self.expect(&launches, stamp, key, out)
    }

    /// Queues a step whose launches are not kept, with the rows of other devices that it reads and
    /// writes.
    fn queue_once(
        &mut self,
        key: LaunchesKey,
        batch: &Batch<'_>,
        from: Option<Arc<HandedRows>>,
        to: Option<&HandedRows>,
    ) -> Result<(StepLaunches, u32), Error> {
        self.next_block = (self.next_block + 1) % BLOCKS;
        let input = from.as_ref().map(|rows| rows.address_on(self.gpu.context())).transpose()?;
        let places = self.places(key.stage);
        let places = StepPlaces { input, output: to.map(HandedRows::address), ..places };
        let launches = places.record(key, self.next_block, false)?;
        let (stamp, _) = self.write_inputs(launches.block, key, batch)?;
        if let Some(rows) = from {
            self.stream.wait(rows.written())?;
            self.step.hold(launches.block, rows);
        }
        self.queue(&launches)?;
        Ok((launches, stamp))
    }

    /// Runs a step by plain launches.
    fn run_plain(
        &mut self,
        launches: &StepLaunches,
        key: LaunchesKey,
        batch: &Batch<'_>,
        out: &mut OutputRows<'_>,
    ) -> Result<(), Error> {
        let stamp = self.queue_plain(launches, key, batch)?;
        self.expect(launches, stamp, key, out)
    }

    /// Queues the plain launches of a step. Returns its stamp.
    fn queue_plain(
        &mut self,
        launches: &StepLaunches,
        key: LaunchesKey,
        batch: &Batch<'_>,
    ) -> Result<u32, Error> {
        let (stamp, _) = self.write_inputs(launches.block, key, batch)?;
        self.queue(launches)?;
        Ok(stamp)
    }

    /// Queues the launches of a step and its sums.
    fn queue(&mut self, launches: &StepLaunches) -> Result<(), Error> {
        let Self { stream, sums, .. } = self;
        launches.input.queue(stream)?;
        let mut start = 0;
        for sum in &launches.sums {
            launches.ops.queue_range(start..sum.at, stream)?;
            sums.queue(stream, sum)?;
            start = sum.at;
        }
        launches.ops.queue_range(start..launches.ops.len(), stream)?;
        Ok(launches.output.queue(stream)?)
    }

    /// Runs a step whose launches are kept: as graphs from the third use on.
    fn run_kept(
        &mut self,
        entry: &mut ReplayEntry,
        key: LaunchesKey,
        batch: &Batch<'_>,
        out: &mut OutputRows<'_>,
    ) -> Result<(), Error> {
        // On AMD, a graph after a copy of the runtime may read what was there before the copy
        // (ROCm/hip #3902).
        let is_copied = std::mem::take(&mut self.is_copied);
        let mark = self.graphs.clone().filter(|_| !is_copied);
        let Some((replay, mark)) = mark.and_then(|mark| Some((entry.next_replay()?, mark))) else {
            let stamp = self.queue_plain(&entry.launches, key, batch)?;
            if self.graphs.is_some() {
                entry.note_use(&self.stream);
            }
            return self.expect(&entry.launches, stamp, key, out);
        };
        let is_checked = replay.is_power_of_two();
        let states = if is_checked {
            self.kv.save_states(&self.gpu, &self.stream, batch)?
        } else {
            SavedStates::default()
        };
        let launching = if replay == 1 { mark.set() } else { None };
        let replayed = self.replay(entry, key, batch, out);
        drop(launching);
        let mut has_run = true;
        let reason = match replayed? {
            Replayed::Fresh if !is_checked => return Ok(()),
            Replayed::Fresh => {
                let replayed = self.snapshot(key, out)?;
                self.kv.restore_states(&self.gpu, &self.stream, &states)?;
                self.run_plain(&entry.launches, key, batch, out)?;
                if replayed == self.snapshot(key, out)? {
                    return Ok(());
                }
                "the results of a replay differ from those of plain launches".to_owned()
            }
            Replayed::Stale => "a replay used the inputs of another step".to_owned(),
            Replayed::Refused(parts, error) => {
                has_run = parts > 0;
                format!("a replay failed: {error}")
            }
        };
        tracing::warn!(
            "captured graphs are switched off: {reason}; the step is computed again by plain \
             launches"
        );
        self.graphs = None;
        self.kept.clear();
        entry.forget_graphs();
        if self.kv.has_states() && has_run && !is_checked {
            // The states before the step are gone.
            return Err(Error::Stale);
        }
        self.kv.restore_states(&self.gpu, &self.stream, &states)?;
        self.work.reset_counters(&self.stream)?;
        self.top_k.reset_counters(&self.stream)?;
        self.run_plain(&entry.launches, key, batch, out)
    }

    fn replay(
        &mut self,
        entry: &ReplayEntry,
        key: LaunchesKey,
        batch: &Batch<'_>,
        out: &mut OutputRows<'_>,
    ) -> Result<Replayed, Error> {
        let (stamp, _) = self.write_inputs(entry.launches.block, key, batch)?;
        match entry.replay(&self.stream) {
            Ok(()) => {}
            Err((_, error)) if error.is_device_lost() => return Err(error.into()),
            Err((parts, error)) => return Ok(Replayed::Refused(parts, error)),
        }
        let is_fresh = self.collect(&entry.launches, stamp, key, out)?;
        Ok(if is_fresh { Replayed::Fresh } else { Replayed::Stale })
    }

    /// The bits of all output rows in device memory and of the result.
    fn snapshot(&mut self, key: LaunchesKey, out: &OutputRows<'_>) -> Result<Vec<u32>, Error> {
        let (rows, width) = output_shape(&self.program.graph, &self.stages[key.stage], key.shape);
        let mut values = vec![0.0_f32; rows * width];
        self.copy_rows(key, &mut values)?;
        self.stream.synchronize()?;
        if let Some(rows) = self.results.rows.get(..values.len()) {
            values.copy_from_slice(rows);
        }
        let mut bits: Vec<u32> = values.into_iter().map(f32::to_bits).collect();
        if let OutputRows::TopK { best, .. } = out {
            bits.extend(best.iter().flat_map(|best| [best.id, best.logit.to_bits()]));
        }
        Ok(bits)
    }

    /// Runs [`Self::collect`] for launches whose result has to be that of the step.
    fn expect(
        &mut self,
        launches: &StepLaunches,
        stamp: u32,
        key: LaunchesKey,
        out: &mut OutputRows<'_>,
    ) -> Result<(), Error> {
        if self.collect(launches, stamp, key, out)? { Ok(()) } else { Err(Error::Stale) }
    }

    /// Waits for a step and copies its result. Returns false, with a useless result, if it is that
    /// of another step.
    fn collect(
        &mut self,
        launches: &StepLaunches,
        stamp: u32,
        key: LaunchesKey,
        out: &mut OutputRows<'_>,
    ) -> Result<bool, Error> {
        let is_copied = matches!(launches.result.kind, ResultKind::CopiedRows) && !out.is_empty();
        if let (true, OutputRows::Whole(rows)) = (is_copied, &mut *out) {
            self.await_others()?;
            self.copy_rows(key, rows)?;
        }
        self.finish()?;
        if !self.results.are_of(launches.block, launches.result.stamps, stamp) {
            return Ok(false);
        }
        match (&launches.result.kind, out) {
            (ResultKind::CopiedRows, OutputRows::Whole(rows)) => {
                if is_copied && rows.len() <= self.results.rows.len() {
                    rows.copy_from_slice(&self.results.rows[..rows.len()]);
                }
            }
            (ResultKind::StoredRows(firsts), OutputRows::Whole(rows)) => {
                // Padding adds rows after those of the batch, and there are none of it in a stage
                // with several outputs.
                let outputs = &self.stages[key.stage].outputs;
                let total: usize = self.program.graph.width_of(outputs);
                let count = rows.len() / total.max(1);
                let mut rest = &mut **rows;
                for (id, first) in outputs.iter().zip(firsts) {
                    let floats = count * self.program.graph.value(*id).width;
                    let (part, others) = std::mem::take(&mut rest).split_at_mut(floats);
                    self.results.read_rows(*first, part);
                    rest = others;
                }
            }
            (ResultKind::Candidates(all), OutputRows::TopK { best, .. }) => {
                self.results.read_candidates(*all, best);
            }
            // The launches were recorded for this request.
            (_, _) => return Ok(false),
        }
        Ok(true)
    }

    /// Queues the copy of the rows of a stage's outputs.
    fn copy_rows(&mut self, key: LaunchesKey, out: &mut [f32]) -> Result<(), Error> {
        let outputs = &self.stages[key.stage].outputs;
        let total = self.program.graph.width_of(outputs);
        let rows = out.len() / total.max(1);
        let is_pinned = out.len() <= self.results.rows.len();
        let mut done = 0;
        for id in outputs {
            let first = self.program.plan.offset(*id) * key.shape.tokens;
            let range = done..done + rows * self.program.graph.value(*id).width;
            done = range.end;
            let arena = &self.work.arena;
            if is_pinned {
                arena.copy_to_pinned(&self.stream, first, &mut self.results.rows, range)?;
            } else {
                arena.copy_to_slice(&self.stream, first, &mut out[range])?;
            }
        }
        Ok(())
    }

    /// Runs a step with an event between launches. `all` is the padded batch.
    fn run_profiled(
        &mut self,
        key: LaunchesKey,
        (all, batch): (&Batch<'_>, &Batch<'_>),
        out: &mut OutputRows<'_>,
        started: Instant,
    ) -> Result<(), Error> {
        let launches = self.record(key, 0, false)?;
        let (stamp, bytes) = self.write_inputs(launches.block, key, all)?;
        let Self { stream, sums, profile: Some(profile), .. } = self else { return Ok(()) };
        profile.start(stream)?;
        launches.input.queue(stream)?;
        profile.uploaded(stream, bytes)?;
        profile.queue(&launches, stream, &mut |sum| sums.queue(stream, sum))?;
        let read_bytes = match &*out {
            OutputRows::Whole(rows) => size_of_val(&**rows),
            OutputRows::TopK { best, .. } => size_of_val(&**best),
        };
        profile.read_back(stream, read_bytes, || Ok(launches.output.queue(stream)?))?;
        self.expect(&launches, stamp, key, out)?;
        let is_last = key.stage + 1 == self.stages.len();
        let Some(profile) = &mut self.profile else { return Ok(()) };
        let program = (&self.program.graph, &self.costs);
        profile.finish(&launches, program, (batch, is_last), started)
    }
}
