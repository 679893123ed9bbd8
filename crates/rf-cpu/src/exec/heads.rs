//! Matmuls with a matrix per head: each multiplies its part of every row.

use rf_graph::{ValueId, WeightId};

use super::Region;
use super::matmul::{BLOCKED_TOKENS, Scratch, group_index, matmul_ns};
use super::phases::StepPart;
use super::rows::row_ns;
use super::storage::StoragePlan;
use crate::simd::activations::{ACT_BLOCK, Quantize, RowSource};
use crate::simd::float_gemm::{self, FloatGemm, PackFloats};
use crate::simd::kernels::{FloatMatMul, Gemm, MatVec, MatmulOperand, has_gemm};
use crate::simd::tiles::{FLOAT_TOKENS, GEMM_GROUP, GEMM_TOKENS, MatmulTarget, TargetRows};
use crate::simd::{FLOAT_CHUNK, Isa, LANES};
use crate::team::{PieceDivision, Rows, Share};

/// [`rf_graph::Op::HeadMatMul`] and the operand of its format.
pub(super) struct HeadMatMulStep {
    x: ValueId,
    weights: Vec<WeightId>,
    out: ValueId,
    /// Output features of a head.
    outputs: usize,
    columns: usize,
    operand: MatmulOperand,
    /// True if [`Gemm`] or [`FloatGemm`] runs large batches.
    blocks: bool,
}

impl HeadMatMulStep {
    pub(super) fn new(
        x: ValueId,
        weights: Vec<WeightId>,
        out: ValueId,
        storage: &StoragePlan<'_>,
        isa: Isa,
    ) -> Self {
        // All heads have the shape and the format of the first.
        let first = weights.first().and_then(|id| storage.matrix(*id));
        let (outputs, columns, operand, blocks) =
            first.map_or((1, 1, MatmulOperand::Float, false), |m| {
                let blocks = isa.has_gemm() && has_gemm(m.dtype());
                (m.rows(), m.columns(), MatmulOperand::of(m.dtype()), blocks)
            });
        Self { x, weights, out, outputs, columns, operand, blocks }
    }

    fn heads(&self) -> usize {
        self.weights.len()
    }

    /// Returns true if a GEMM runs a batch of `tokens`.
    fn is_blocked(&self, tokens: usize) -> bool {
        self.blocks && tokens >= BLOCKED_TOKENS
    }

    /// Rows of the operand of a head for a batch of `tokens`.
    fn stride(&self, tokens: usize) -> usize {
        match self.operand {
            _ if !self.is_blocked(tokens) => tokens,
            MatmulOperand::Float => tokens.next_multiple_of(FLOAT_TOKENS),
            MatmulOperand::Int8 { .. } => tokens.next_multiple_of(GEMM_TOKENS),
        }
    }

    /// Number of f32 per token in the operand of all heads.
    pub(super) fn operand_floats(&self) -> usize {
        match self.operand {
            MatmulOperand::Float if self.blocks => self.heads() * self.head_floats(),
            _ => 0,
        }
    }

    /// Elements per scale, and number of int8 blocks per token in the operand of all heads.
    pub(super) fn operand_blocks(&self) -> Option<(usize, usize)> {
        match self.operand {
            MatmulOperand::Float => None,
            MatmulOperand::Int8 { group } => Some((group, self.heads() * self.head_blocks())),
        }
    }

    fn head_floats(&self) -> usize {
        float_gemm::operand_floats(self.columns)
    }

    fn head_blocks(&self) -> usize {
        self.columns.div_ceil(ACT_BLOCK)
    }

    /// Panels of an item, and items of a head.
    fn parts(&self, threads: usize) -> (usize, usize) {
        let panels = self.outputs.div_ceil(LANES);
        let parts = (2 * threads).div_ceil(self.heads());
        let chunk = panels.div_ceil(parts).next_multiple_of(GEMM_GROUP);
        (chunk, panels.div_ceil(chunk))
    }
}

impl Region<'_> {
    /// How the operand and the matrices of [`rf_graph::Op::HeadMatMul`] are dealt.
    pub(super) fn head_deals(&self, step: &HeadMatMulStep) -> [PieceDivision; 2] {
        let tokens = self.tokens();
        let operand = match step.operand {
            MatmulOperand::Float if !step.is_blocked(tokens) => PieceDivision::NOTHING,
            _ => PieceDivision::new(tokens * step.heads(), row_ns(step.columns), self.threads),
        };
        let (chunk, parts) = step.parts(self.threads);
        let panel_bytes = step.weights.first().map_or(0, |id| self.matrix(*id).bytes())
            / step.outputs.div_ceil(LANES);
        let item_ns = chunk * matmul_ns(panel_bytes, step.columns, tokens);
        [operand, PieceDivision::new(step.heads() * parts, item_ns, self.threads)]
    }

    /// Runs one member's share of a part of [`rf_graph::Op::HeadMatMul`].
    pub(super) fn head_matmul(
        &self,
        share: &mut Share<'_>,
        step: &HeadMatMulStep,
        part: StepPart,
        scratch: &mut Scratch,
    ) {
        match part {
            StepPart::First => self.head_operand(share, step),
            StepPart::Second => self.heads(share, step, scratch),
        }
    }

    /// Prepares the operand: the rows of each head together.
    fn head_operand(&self, share: &mut Share<'_>, step: &HeadMatMulStep) {
        let (tokens, heads) = (self.tokens(), step.heads());
        let (stride, biased) = (step.stride(tokens), step.is_blocked(tokens));
        let x = Rows { data: self.rows(step.x).data, width: step.columns };
        for row in share.flatten() {
            let (token, head) = (row / heads, row % heads);
            // SAFETY: written in an earlier phase.
            let source = RowSource::Plain(unsafe { x.row(row) });
            let MatmulOperand::Int8 { group } = step.operand else {
                let first = head * step.head_floats() * stride + token * FLOAT_CHUNK;
                let chunks = step.head_floats() / FLOAT_CHUNK;
                let last = first + ((chunks - 1) * stride + 1) * FLOAT_CHUNK;
                // SAFETY: the kernel writes every `stride`-th block of the range: the blocks of
                // this row.
                let out = unsafe { self.operands.float.get_mut(first..last) };
                self.isa.run(PackFloats { source, out, stride });
                continue;
            };
            let first = head * step.head_blocks() * stride + token;
            let last = first + (step.head_blocks() - 1) * stride + 1;
            // SAFETY: as above.
            let blocks = unsafe { self.operands.int8[group_index(group)].get_mut(first..last) };
            self.isa.run(Quantize { source, group, biased, blocks, stride });
        }
    }

    /// One matmul per head.
    fn heads(&self, share: &mut Share<'_>, step: &HeadMatMulStep, scratch: &mut Scratch) {
        let (tokens, heads) = (self.tokens(), step.heads());
        let (stride, is_blocked) = (step.stride(tokens), step.is_blocked(tokens));
        let (chunk, parts) = step.parts(self.threads);
        let all_panels = step.outputs.div_ceil(LANES);
        let out = Rows { data: self.rows(step.out).data, width: step.outputs };
        for item in share.flatten() {
            let (head, part) = (item / parts, item % parts);
            let weight = self.matrix(step.weights[head]);
            let panels = part * chunk..all_panels.min((part + 1) * chunk);
            let rows = TargetRows::Every { first: head, step: heads };
            let target = MatmulTarget { out, bias: None, residual: None, rows };
            match step.operand {
                MatmulOperand::Float if is_blocked => {
                    let floats = step.head_floats() * stride;
                    // SAFETY: written in an earlier phase.
                    let x = unsafe { self.operands.float.get(head * floats..(head + 1) * floats) };
                    let scratch = &mut scratch.gemm;
                    self.isa.run(FloatGemm { weight, panels, x, stride, tokens, target, scratch });
                }
                MatmulOperand::Float => {
                    let x = self.rows(step.x).data;
                    for row in (head..tokens * heads).step_by(heads) {
                        let data = x.part(row * step.columns..(row + 1) * step.columns);
                        let x = Rows { data, width: step.columns };
                        let target = MatmulTarget { rows: TargetRows::From(row), ..target };
                        let panels = panels.clone();
                        self.isa.run(FloatMatMul { weight, panels, x, tokens: 1, target });
                    }
                }
                MatmulOperand::Int8 { group } => {
                    let blocks = step.head_blocks() * stride;
                    let int8 = self.operands.int8[group_index(group)];
                    // SAFETY: written in an earlier phase.
                    let activations = unsafe { int8.get(head * blocks..(head + 1) * blocks) };
                    if is_blocked {
                        let scratch = &mut scratch.gemm;
                        Gemm { weight, panels, activations, stride, tokens, target, scratch }
                            .run(self.isa);
                    } else {
                        MatVec { weight, panels, activations, stride, tokens, target }
                            .run(self.isa);
                    }
                }
            }
        }
    }
}
