//! The launches of a step: inputs, ops, and results.

use rf_graph::{Graph, Op, Stage, ValueId};
use rf_kv::PageGroup;

use super::media::MediaPlaces;
use super::program::{BatchProgram, DeviceProgram};
use super::record;
use super::results::{MAX_STORED_FLOATS, Results};
use super::step::{STAMPS, StepMemory, StepShape};
use super::sums::{SumPlace, Sums};
use super::top_k::{self, TopK};
use crate::error::Error;
use crate::launch::{Gpu, LaunchList, Recording};
use crate::params::{Address, PassStampParams, RowMemory as _, StoreRowsParams, SumPartsParams};

/// Most launches of a captured graph. On AMD, replays of graphs of 200 launches read stale
/// addresses (ROCm/hip #3887), so longer steps are several graphs.
pub(super) const MAX_GRAPH_LAUNCHES: usize = 149;

/// Launches of the first of several graphs. A device may start when the host has queued a whole
/// graph, and at the same time the host queues the next one.
const FIRST_GRAPH_LAUNCHES: usize = 24;

/// The steps that share their launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaunchesKey {
    pub(super) shape: StepShape,
    pub(super) stage: usize,
    /// The number of candidates per output row; 0 for whole rows.
    pub(super) k: usize,
}

/// The recorded launches of a step.
pub(super) struct StepLaunches {
    /// The block of host memory with the inputs.
    pub(super) block: usize,
    pub(super) input: Recording,
    pub(super) ops: Recording,
    pub(super) output: Recording,
    /// Ends of the parts of `ops` that are separate graphs, except the last part.
    pub(super) cuts: Vec<usize>,
    /// The sums over the parts of a divided program, in order.
    pub(super) sums: Vec<SumPlace>,
    pub(super) result: ResultPlan,
}

/// The result of a step in host memory.
#[derive(Clone, Debug)]
pub(super) struct ResultPlan {
    /// Number of stamps.
    pub(super) stamps: usize,
    pub(super) kind: ResultKind,
}

#[derive(Clone, Debug)]
pub(super) enum ResultKind {
    /// Rows that the step stores: the first element of each output.
    StoredRows(Vec<usize>),
    /// Rows that are copied after the step.
    CopiedRows,
    /// Rows that another device reads.
    HandedRows,
    /// Candidates: their number.
    Candidates(usize),
}

impl StepLaunches {
    /// Number of launches.
    pub(super) fn len(&self) -> usize {
        self.input.len() + self.ops.len() + self.output.len()
    }
}

/// The number of output rows of a stage, and their width.
pub(super) fn output_shape(graph: &Graph, stage: &Stage, shape: StepShape) -> (usize, usize) {
    // Several outputs have as many rows each.
    let rows = graph.value(stage.outputs[0]).rows;
    (shape.rows_of(rows), graph.width_of(&stage.outputs))
}

/// The places that the launches of a stage's steps access.
pub(super) struct StepPlaces<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) program: &'a DeviceProgram,
    pub(super) step: &'a StepMemory,
    pub(super) results: &'a Results,
    pub(super) sums: &'a Sums,
    pub(super) top_k: &'a TopK,
    pub(super) stage: &'a Stage,
    /// The rows of input, if they are not in the block.
    pub(super) input: Option<Address>,
    /// The place of the outputs, if they are handed over.
    pub(super) output: Option<Address>,
    pub(super) media: MediaPlaces<'a>,
}

impl StepPlaces<'_> {
    /// Records the launches of a step that reads its inputs from a block. Steps that may become
    /// graphs are `divided`.
    pub(super) fn record(
        &self,
        key: LaunchesKey,
        block: usize,
        divided: bool,
    ) -> Result<StepLaunches, Error> {
        let (shape, stage) = (key.shape, self.stage);
        let groups = PageGroup::ALL.map(|group| self.step.params(&shape, group));
        let rope_rows = self.step.rope_rows(&shape);
        let summands = &self.sums.direct(&self.program.graph, stage, &shape);
        let (program, media) = (self.program, self.media);
        let program = BatchProgram { program, shape, groups, rope_rows, media, summands };

        let mut input = LaunchList::default();
        let load = self.step.load(block);
        input.push(load.launch(), load);
        let inputs = stage
            .inputs
            .iter()
            .map(|id| (self.program.graph.value(*id).width * shape.tokens, program.address(*id)));
        let from = self.input.unwrap_or_else(|| self.step.rows(block));
        for rows in StepMemory::load_rows(from, inputs) {
            input.push(rows.launch(), rows);
        }

        let mut ops = record::record(&program, stage.ops.clone())?;
        // A stage has as many launches of results as outputs, or more for many candidates.
        let edges = input.len() + stage.outputs.len() + shape.outputs.div_ceil(64);
        let cuts = if divided { cuts(ops.len(), edges) } else { Vec::new() };
        for (part, end) in cuts.iter().enumerate() {
            let (from, to) = (self.step.stamp(part), self.step.stamp(part + 1));
            let params = PassStampParams { from, to };
            ops.insert(end - 1, PassStampParams::launch(), params);
        }

        let sums = self.sums(&program, &ops);
        let tuning = &self.program.analysis.matmul_device.tuning;
        let mut output = LaunchList::default();
        let stamp = self.step.stamp(cuts.len());
        let result = self.record_result(key, &program, (block, stamp), &mut output);
        Ok(StepLaunches {
            block,
            input: Recording::load(self.gpu, input)?,
            ops: Recording::load_tuned(self.gpu, tuning, ops)?.starting_in_order(),
            output: Recording::load(self.gpu, output)?,
            cuts,
            sums,
            result,
        })
    }

    /// The places of the sums between launches of ops.
    fn sums(&self, program: &BatchProgram<'_>, launches: &LaunchList) -> Vec<SumPlace> {
        let stage = self.stage.ops.clone();
        let ops = stage.clone().zip(&self.program.graph.ops()[stage]);
        let sums = ops.filter_map(|(i, op)| {
            let Op::AllReduce { x, residual, norm, out } = op else { return None };
            let params = SumPartsParams {
                residual: residual.map_or(0, |id| program.address(id)),
                out: program.address(*out),
                norm_out: norm.and_then(|norm| program.norm_out(&norm)).unwrap_or_default(),
                count: (program.rows(*x) * program.width(*x)) as u64,
                columns: program.width(*x) as u32,
                ..SumPartsParams::default()
            };
            let slot = program.summands.get(x).map(|slot| slot.index);
            let place =
                SumPlace { at: launches.len_before(i), x: program.address(*x), slot, params };
            // All parts have as many rows.
            (params.count > 0).then_some(place)
        });
        sums.collect()
    }

    fn record_result(
        &self,
        key: LaunchesKey,
        program: &BatchProgram<'_>,
        (block, stamp): (usize, Address),
        launches: &mut LaunchList,
    ) -> ResultPlan {
        let LaunchesKey { shape, k, .. } = key;
        let outputs = &self.stage.outputs;
        let (stamps, values) = (self.results.stamps(block), self.results.values());
        let words = |count: usize| 4 * count as Address;
        let rows = output_shape(&self.program.graph, self.stage, shape).0;
        if k > 0 && rows > 0 {
            let request = top_k::TopKRequest {
                logits: program.address(outputs[0]),
                rows,
                width: program.width(outputs[0]),
                k,
                ids: values,
                values: values + words(rows * k),
                stamp,
                stamps,
            };
            self.top_k.record(request, launches);
            return ResultPlan { stamps: rows, kind: ResultKind::Candidates(rows * k) };
        }
        let floats = |id: &ValueId| rows * program.width(*id);
        if let Some(to) = self.output {
            let outputs = outputs.iter().map(|id| (program.address(*id), floats(id)));
            hand_over(outputs, to, (stamp, stamps), launches);
            return ResultPlan { stamps: 1, kind: ResultKind::HandedRows };
        }
        let is_stored = outputs.iter().map(floats).sum::<usize>() <= MAX_STORED_FLOATS;
        let mut result = ResultPlan { stamps: 0, kind: ResultKind::CopiedRows };
        if !is_stored || rows == 0 {
            let params = StoreRowsParams { stamp, stamps, ..StoreRowsParams::default() };
            launches.push(params.launch(), params);
            result.stamps = StoreRowsParams::groups(0);
            return result;
        }
        let (mut firsts, mut first) = (Vec::new(), 0);
        for id in outputs {
            let params = StoreRowsParams {
                from: program.address(*id),
                to: values + words(first),
                stamp,
                stamps: stamps + words(result.stamps),
                count: floats(id) as u32,
                reserved: 0,
            };
            launches.push(params.launch(), params);
            firsts.push(first);
            first += floats(id);
            result.stamps += StoreRowsParams::groups(floats(id));
        }
        result.kind = ResultKind::StoredRows(firsts);
        result
    }
}

/// Stores outputs, `(address, elements)` each, one after the other. Launches of limited size share
/// the stamps.
fn hand_over(
    outputs: impl Iterator<Item = (Address, usize)>,
    mut to: Address,
    (stamp, stamps): (Address, Address),
    launches: &mut LaunchList,
) {
    for (mut from, mut left) in outputs {
        while left > 0 {
            let floats = left.min(MAX_STORED_FLOATS);
            let (count, bytes) = (floats as u32, (4 * floats) as Address);
            let params = StoreRowsParams { from, to, stamp, stamps, count, reserved: 0 };
            launches.push(params.launch(), params);
            (from, to, left) = (from + bytes, to + bytes, left - floats);
        }
    }
}

/// The ends of all parts but the last of `ops` launches: a short part, if that needs no further
/// one, and parts of equal length. Each becomes a graph with at most [`MAX_GRAPH_LAUNCHES`], of
/// which `edges` are left for inputs and results. All parts but the last end with an additional
/// launch, which passes the stamp on.
fn cuts(ops: usize, edges: usize) -> Vec<usize> {
    let most = MAX_GRAPH_LAUNCHES.saturating_sub(edges).max(2);
    let parts = ops.saturating_sub(1).div_ceil(most - 1).clamp(1, STAMPS);
    if parts == 1 {
        return Vec::new();
    }
    let (all, others) = (ops + parts - 1, parts - 1);
    let first = all.saturating_sub(others * most).max(FIRST_GRAPH_LAUNCHES);
    let part = (all - first).div_ceil(others);
    (0..others).map(|cut| first + cut * part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_has_less_than_150_launches() {
        for (ops, edges, parts) in
            [(1, 2, 1), (147, 2, 1), (148, 2, 2), (293, 2, 2), (484, 2, 4), (1000, 7, 8)]
        {
            let cuts = cuts(ops, edges);
            assert_eq!(cuts.len() + 1, parts, "{ops}");
            let all = ops + cuts.len();
            let ends: Vec<_> = cuts.into_iter().chain([all]).collect();
            let starts = [0].into_iter().chain(ends.iter().copied());
            for (start, end) in starts.zip(&ends) {
                assert!(start < *end && end - start + edges < 150, "{ops}: {start}..{end}");
            }
        }
    }
}
