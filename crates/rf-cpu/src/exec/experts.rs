//! Mixture of experts: the matmuls of the selected experts.
//!
//! A batch reads each expert's matrix once: its rows are grouped by expert, and each group is a
//! separate matmul. One token runs a GEMV per selected expert. Gate and up are projections of one
//! step, so their rows are grouped and quantised once.

use rf_graph::{ExpertMatMul, ExpertProjection, Graph, ValueId};

use super::Region;
use super::matmul::{BLOCKED_TOKENS, Scratch, group_index, matmul_ns};
use super::phases::StepPart;
use super::rows::row_ns;
use super::storage::StoragePlan;
use crate::simd::activations::{ACT_BLOCK, Quantize, RowSource};
use crate::simd::kernels::{FloatMatMul, Gemm, MatVec, MatmulOperand, has_gemm};
use crate::simd::tiles::{GEMM_GROUP, GEMM_TOKENS, MatmulTarget, TargetRows};
use crate::simd::{Isa, LANES};
use crate::team::{PieceDivision, Rows, Share};

/// [`rf_graph::Op::ExpertMatMul`] and the operand of its format.
pub(super) struct ExpertMatMulStep {
    op: ExpertMatMul,
    num_experts: usize,
    columns: usize,
    operand: MatmulOperand,
    /// True if [`Gemm`] runs large groups.
    blocks: bool,
}

impl ExpertMatMulStep {
    pub(super) fn new(op: ExpertMatMul, storage: &StoragePlan<'_>, isa: Isa) -> Self {
        // All projections have the shape and the format of the first.
        let weights = op.projections.first().map_or(&[][..], |first| &first.weights);
        let num_experts = weights.len();
        let first = weights.first().and_then(|id| storage.matrix(*id));
        let (columns, operand, blocks) = first.map_or((1, MatmulOperand::Float, false), |m| {
            let blocks = isa.has_gemm() && has_gemm(m.dtype());
            (m.columns(), MatmulOperand::of(m.dtype()), blocks)
        });
        Self { op, num_experts, columns, operand, blocks }
    }

    /// Returns true if the rows of a batch of `tokens` are grouped by expert.
    fn is_grouped(&self, tokens: usize) -> bool {
        tokens > 1 && matches!(self.operand, MatmulOperand::Int8 { .. })
    }

    /// Returns true if [`Gemm`] runs a group.
    fn is_blocked(&self, group: Group) -> bool {
        self.blocks && group.count as usize >= BLOCKED_TOKENS
    }

    /// 1 if all slots of a token read the same row, otherwise the number of slots.
    fn operand_rows_per_token(&self, graph: &Graph) -> usize {
        graph.value(self.op.x).width / self.columns
    }

    /// Experts per token.
    fn slots(&self, graph: &Graph) -> usize {
        graph.value(self.op.route).width / 2
    }

    /// Blocks of 256 activations per row.
    fn row_blocks(&self) -> usize {
        self.columns.div_ceil(ACT_BLOCK)
    }
}

/// The largest buffers of a program's expert matmuls.
#[derive(Default)]
pub(super) struct ExpertSizes {
    /// Number of int8 blocks, for 32 and for 256 elements per scale.
    pub(super) blocks: [usize; 2],
    /// Selected experts of all tokens.
    rows: usize,
    experts: usize,
}

impl ExpertSizes {
    /// Grows to what one op needs.
    pub(super) fn grow(&mut self, step: &ExpertMatMulStep, graph: &Graph, max_tokens: usize) {
        let MatmulOperand::Int8 { group } = step.operand else { return };
        let rows = max_tokens * step.slots(graph);
        let experts = step.num_experts;
        // Each group is padded to whole register tiles.
        let padded = rows + (GEMM_TOKENS - 1) * experts.min(rows);
        let blocks = &mut self.blocks[group_index(group)];
        *blocks = (*blocks).max(padded * step.row_blocks());
        self.rows = self.rows.max(rows);
        self.experts = self.experts.max(experts);
    }

    /// Bytes of [`ExpertRows`].
    pub(super) fn bytes(&self) -> usize {
        2 * self.rows * size_of::<u32>() + self.experts * size_of::<Group>()
    }
}

/// The rows of a batch, grouped by expert. A row is a slot of a token: `token · slots + slot`.
pub(super) struct ExpertRows {
    /// Rows in the order of their experts.
    rows: Vec<u32>,
    /// Index of each row in its group.
    places: Vec<u32>,
    /// One group per expert, in order; empty ones included.
    groups: Vec<Group>,
    /// The batch and the route that the groups are of.
    grouped: Option<(u64, ValueId)>,
}

/// Parts of a matrix.
#[derive(Clone, Copy)]
struct Parts {
    /// Panels per part.
    panels: usize,
    count: usize,
}

/// The rows of one expert.
#[derive(Clone, Copy, Default)]
struct Group {
    /// Index of the first row in [`ExpertRows::rows`].
    first: u32,
    count: u32,
    /// Rows of the operand before this group, each group padded to whole register tiles.
    first_padded: u32,
}

impl Group {
    /// Rows of the operand: whole register tiles.
    fn stride(self) -> usize {
        (self.count as usize).next_multiple_of(GEMM_TOKENS)
    }
}

impl ExpertRows {
    pub(super) fn new(sizes: &ExpertSizes) -> Self {
        let (rows, groups) = (vec![0; sizes.rows], vec![Group::default(); sizes.experts]);
        Self { places: rows.clone(), rows, groups, grouped: None }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.rows.as_slice())
            + size_of_val(self.places.as_slice())
            + size_of_val(self.groups.as_slice())
    }

    /// Groups the rows by a counting sort.
    fn group(&mut self, experts: impl Iterator<Item = usize> + Clone, num_experts: usize) {
        let groups = &mut self.groups[..num_experts];
        groups.fill(Group::default());
        for (place, expert) in self.places.iter_mut().zip(experts.clone()) {
            *place = groups[expert].count;
            groups[expert].count += 1;
        }
        let (mut first, mut first_padded) = (0, 0);
        for group in &mut *groups {
            (group.first, group.first_padded) = (first, first_padded);
            first += group.count;
            first_padded += group.stride() as u32;
        }
        for ((row, place), expert) in (0..).zip(&self.places).zip(experts) {
            self.rows[(groups[expert].first + place) as usize] = row;
        }
    }

    /// The rows of a group.
    fn of(&self, group: Group) -> &[u32] {
        &self.rows[group.first as usize..][..group.count as usize]
    }
}

impl Region<'_> {
    /// How the operand and the matrices of [`rf_graph::Op::ExpertMatMul`] are dealt.
    pub(super) fn expert_deals(&self, step: &ExpertMatMulStep) -> [PieceDivision; 2] {
        let (tokens, slots) = (self.tokens(), step.slots(self.graph));
        let per_token = step.operand_rows_per_token(self.graph);
        let Some(first) = step.op.projections.first() else { return [PieceDivision::NOTHING; 2] };
        let row_ns = row_ns(step.columns);
        let panel_bytes = first.weights.first().map_or(0, |id| self.matrix(*id).bytes())
            / self.outputs(step, slots).div_ceil(LANES).max(1);
        let parts = self.expert_parts(step);
        let (operand, items, rows) = match step.operand {
            MatmulOperand::Int8 { .. } if step.is_grouped(tokens) => {
                let operand = PieceDivision::new(tokens, row_ns * per_token, self.threads);
                (operand, step.num_experts, (tokens * slots).div_ceil(step.num_experts))
            }
            MatmulOperand::Int8 { .. } => {
                (PieceDivision::new(tokens * per_token, row_ns, self.threads), tokens * slots, 1)
            }
            MatmulOperand::Float => (PieceDivision::NOTHING, tokens * slots, 1),
        };
        let item_ns = parts.panels * matmul_ns(panel_bytes, step.columns, rows);
        let items = items * step.op.projections.len() * parts.count;
        // Groups differ in size, so an item is a piece.
        [operand, PieceDivision::in_multiples(items, item_ns, self.threads, 1, 1)]
    }

    /// The parts into which the panels of each matrix are divided.
    fn expert_parts(&self, step: &ExpertMatMulStep) -> Parts {
        let tokens = self.tokens();
        let panels = self.outputs(step, step.slots(self.graph)).div_ceil(LANES);
        let part = if step.is_grouped(tokens) {
            // About four parts per expert balance the end of the loop.
            (panels / 4).next_multiple_of(GEMM_GROUP).max(GEMM_GROUP)
        } else {
            // The loop runs one row at a time, in about two parts per thread.
            panels.div_ceil(self.threads * 2).next_multiple_of(4).max(4)
        };
        Parts { panels: part, count: panels.div_ceil(part) }
    }

    /// Runs one member's share of a part of [`rf_graph::Op::ExpertMatMul`].
    pub(super) fn expert_matmul(
        &self,
        share: &mut Share<'_>,
        step: &ExpertMatMulStep,
        part: StepPart,
        scratch: &mut Scratch,
    ) {
        match (step.operand, part) {
            (MatmulOperand::Int8 { group }, StepPart::First) if step.is_grouped(self.tokens()) => {
                self.grouped_operand(share, step, group, scratch);
            }
            (MatmulOperand::Int8 { group }, StepPart::Second) if step.is_grouped(self.tokens()) => {
                self.grouped_experts(share, step, group, scratch);
            }
            (MatmulOperand::Int8 { group }, StepPart::First) => {
                self.row_operand(share, step, group);
            }
            (operand, _) => self.single_rows(share, step, operand),
        }
    }

    /// Groups the rows of the batch, if that is not done yet. Each member groups for itself, which
    /// is cheaper than a phase.
    fn group_rows<'e>(
        &self,
        step: &ExpertMatMulStep,
        experts: &'e mut ExpertRows,
    ) -> &'e ExpertRows {
        let grouped = Some((self.serial, step.op.route));
        if experts.grouped != grouped {
            let slots = step.slots(self.graph);
            let route = self.rows(step.op.route);
            // SAFETY: written in an earlier phase.
            let selected = |token: usize| unsafe { &route.row(token)[..slots] };
            let all =
                (0..self.tokens()).flat_map(|token| selected(token).iter().map(|e| *e as usize));
            experts.group(all, step.num_experts);
            experts.grouped = grouped;
        }
        experts
    }

    /// Quantises rows into the places that their experts read.
    fn grouped_operand(
        &self,
        share: &mut Share<'_>,
        step: &ExpertMatMulStep,
        group_elements: usize,
        scratch: &mut Scratch,
    ) {
        let slots = step.slots(self.graph);
        let experts = self.group_rows(step, &mut scratch.experts);
        let route = self.rows(step.op.route);
        let int8 = self.operands.int8[group_index(group_elements)];
        let row_blocks = step.row_blocks();
        let shared_x = step.operand_rows_per_token(self.graph) == 1;
        let x = Rows { data: self.rows(step.op.x).data, width: step.columns };
        for token in share.flatten() {
            // SAFETY: written in an earlier phase.
            let selected = unsafe { &route.row(token)[..slots] };
            let mut copied: [Option<(usize, usize)>; 2] = [None; 2];
            for (slot, expert) in selected.iter().enumerate() {
                let row = token * slots + slot;
                let group = experts.groups[*expert as usize];
                let (stride, biased) = (group.stride(), step.is_blocked(group));
                let first = group.first_padded as usize * row_blocks + experts.places[row] as usize;
                if let Some((from, from_stride)) = copied[usize::from(biased)] {
                    for block in 0..row_blocks {
                        let (from, to) = (from + block * from_stride, first + block * stride);
                        // SAFETY: the block belongs to this token and is complete.
                        let block = unsafe { int8.get(from..from + 1) }[0];
                        // SAFETY: the block belongs to this token.
                        let copy = unsafe { int8.get_mut(to..to + 1) };
                        copy[0] = block;
                    }
                    continue;
                }
                // SAFETY: written in an earlier phase.
                let source = RowSource::Plain(unsafe { x.row(if shared_x { token } else { row }) });
                let last = first + (row_blocks - 1) * stride + 1;
                // SAFETY: the kernel writes every `stride`-th block of the range: the blocks of
                // this row.
                let blocks = unsafe { int8.get_mut(first..last) };
                let group = group_elements;
                self.isa.run(Quantize { source, group, biased, blocks, stride });
                if shared_x {
                    copied[usize::from(biased)] = Some((first, stride));
                }
            }
        }
    }

    /// One matmul per expert, over all its rows.
    fn grouped_experts(
        &self,
        share: &mut Share<'_>,
        step: &ExpertMatMulStep,
        group_elements: usize,
        scratch: &mut Scratch,
    ) {
        let Scratch { gemm, experts, .. } = scratch;
        let experts = self.group_rows(step, experts);
        let int8 = self.operands.int8[group_index(group_elements)];
        let row_blocks = step.row_blocks();
        let outputs = self.outputs(step, step.slots(self.graph));
        let panels = outputs.div_ceil(LANES);
        let Parts { panels: chunk, count: parts } = self.expert_parts(step);
        let projections = &step.op.projections;
        for range in share {
            for item in range {
                let (matrix, part) = (item / parts, item % parts);
                let expert = matrix / projections.len();
                let projection = &projections[matrix % projections.len()];
                let group = experts.groups[expert];
                let tokens = group.count as usize;
                if tokens == 0 {
                    continue;
                }
                let weight = self.matrix(projection.weights[expert]);
                let panels = part * chunk..panels.min((part + 1) * chunk);
                let rows = TargetRows::Each(experts.of(group));
                let target = self.expert_target(projection, expert, outputs, rows);
                let stride = group.stride();
                let first = group.first_padded as usize * row_blocks;
                // SAFETY: written in an earlier phase.
                let activations = unsafe { int8.get(first..first + row_blocks * stride) };
                if step.is_blocked(group) {
                    let scratch = &mut *gemm;
                    Gemm { weight, panels, activations, stride, tokens, target, scratch }
                        .run(self.isa);
                } else {
                    MatVec { weight, panels, activations, stride, tokens, target }.run(self.isa);
                }
            }
        }
    }

    /// Output features of an expert.
    fn outputs(&self, step: &ExpertMatMulStep, slots: usize) -> usize {
        step.op.projections.first().map_or(0, |first| self.graph.value(first.out).width / slots)
    }

    /// The rows of a projection that one expert writes.
    fn expert_target<'a>(
        &'a self,
        projection: &ExpertProjection,
        expert: usize,
        outputs: usize,
        rows: TargetRows<'a>,
    ) -> MatmulTarget<'a> {
        let out = Rows { data: self.rows(projection.out).data, width: outputs };
        let bias = projection.bias.map(|id| &self.vector(id)[expert * outputs..][..outputs]);
        MatmulTarget { out, bias, residual: None, rows }
    }

    /// Quantises rows in their order.
    fn row_operand(&self, share: &mut Share<'_>, step: &ExpertMatMulStep, group: usize) {
        let stride = self.tokens() * step.operand_rows_per_token(self.graph);
        let x = Rows { data: self.rows(step.op.x).data, width: step.columns };
        let int8 = self.operands.int8[group_index(group)];
        for row in share.flatten() {
            let last = (step.row_blocks() - 1) * stride + row + 1;
            // SAFETY: the kernel writes every `stride`-th block of the range: the blocks of this
            // row.
            let blocks = unsafe { int8.get_mut(row..last) };
            // SAFETY: written in an earlier phase.
            let source = RowSource::Plain(unsafe { x.row(row) });
            self.isa.run(Quantize { source, group, biased: false, blocks, stride });
        }
    }

    /// One GEMV per row with the matrix of its expert.
    fn single_rows(&self, share: &mut Share<'_>, step: &ExpertMatMulStep, operand: MatmulOperand) {
        let per_token = step.operand_rows_per_token(self.graph);
        let slots = step.slots(self.graph);
        let operand_rows = self.tokens() * per_token;
        let x = Rows { data: self.rows(step.op.x).data, width: step.columns };
        let route = self.rows(step.op.route);
        let outputs = self.outputs(step, slots);
        let panels = outputs.div_ceil(LANES);
        let Parts { panels: chunk, count: parts } = self.expert_parts(step);
        let projections = &step.op.projections;
        for range in share {
            for item in range {
                let (matrix, part) = (item / parts, item % parts);
                let row = matrix / projections.len();
                let projection = &projections[matrix % projections.len()];
                let (token, slot) = (row / slots, row % slots);
                // SAFETY: written in an earlier phase.
                let expert = unsafe { route.row(token) }[slot] as usize;
                let weight = self.matrix(projection.weights[expert]);
                let panels = part * chunk..panels.min((part + 1) * chunk);
                let x_row = if per_token == 1 { token } else { row };
                let target = self.expert_target(projection, expert, outputs, TargetRows::From(row));
                match operand {
                    MatmulOperand::Float => {
                        let first = x_row * step.columns;
                        let data = x.data.part(first..first + step.columns);
                        let x = Rows { data, width: step.columns };
                        self.isa.run(FloatMatMul { weight, panels, x, tokens: 1, target });
                    }
                    MatmulOperand::Int8 { group } => {
                        let blocks = step.row_blocks() * operand_rows;
                        let int8 = self.operands.int8[group_index(group)];
                        // SAFETY: written in an earlier phase.
                        let activations = unsafe { int8.get(x_row..blocks) };
                        let stride = operand_rows;
                        MatVec { weight, panels, activations, stride, tokens: 1, target }
                            .run(self.isa);
                    }
                }
            }
        }
    }
}
