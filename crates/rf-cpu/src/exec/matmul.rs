//! Matmul steps: the operand is prepared once for all projections, and threads share the panels.

use std::ops::Range;

use rf_graph::{Graph, MatMul, Projection, Prologue};

use super::experts::{ExpertRows, ExpertSizes};
use super::phases::StepPart;
use super::rows::row_ns;
use super::steps::Step;
use super::storage::StoragePlan;
use super::{Region, rows};
use crate::simd::activations::{ACT_BLOCK, ActBlock, Quantize, RowSource};
use crate::simd::attention::AttentionScratch;
use crate::simd::float_gemm::{self, FloatGemm, PackFloats};
use crate::simd::gemm::GemmScratch;
use crate::simd::kernels::{FloatMatMul, Gemm, MatVec, MatmulOperand, has_gemm};
use crate::simd::latent::LatentScratch;
use crate::simd::tiles::{FLOAT_TOKENS, GEMM_GROUP, GEMM_TOKENS, MatmulTarget, TargetRows};
use crate::simd::{FLOAT_CHUNK, Isa, LANES};
use crate::team::{DisjointSlice, PieceDivision, Rows, Share};

/// The smallest number of tokens at which unpacking into tiles is cheaper than in registers.
pub(super) const BLOCKED_TOKENS: usize = 9;

/// About how long a panel takes: its bytes are read at 16 GB/s, and 64 products take a nanosecond.
pub(super) fn matmul_ns(panel_bytes: usize, columns: usize, tokens: usize) -> usize {
    (panel_bytes / 16).max(LANES * columns * tokens / 64)
}

/// [`rf_graph::Op::MatMul`] and the operands that its formats take.
pub(super) struct MatMulStep {
    op: MatMul,
    float: bool,
    /// Elements per scale of the int8 operands: 32, 256 or both.
    groups: Vec<usize>,
    /// True if [`Gemm`] runs large batches. All formats must support it, as they share the operand.
    blocks: bool,
}

impl MatMulStep {
    pub(super) fn new(op: MatMul, storage: &StoragePlan<'_>, isa: Isa) -> Self {
        let mut step = Self { op, float: false, groups: Vec::new(), blocks: isa.has_gemm() };
        for p in &step.op.projections {
            let Some(m) = storage.matrix(p.weight) else { continue };
            step.blocks &= has_gemm(m.dtype());
            match MatmulOperand::of(m.dtype()) {
                MatmulOperand::Float => step.float = true,
                MatmulOperand::Int8 { group } if !step.groups.contains(&group) => {
                    step.groups.push(group);
                }
                MatmulOperand::Int8 { .. } => {}
            }
        }
        step
    }

    /// Returns true if [`Gemm`] runs a batch of `tokens`.
    fn is_blocked(&self, tokens: usize) -> bool {
        self.blocks && tokens >= BLOCKED_TOKENS
    }

    /// Rows of the int8 operand for a batch of `tokens`.
    fn stride(&self, tokens: usize) -> usize {
        if self.is_blocked(tokens) { tokens.next_multiple_of(GEMM_TOKENS) } else { tokens }
    }

    /// Number of columns of the operand.
    fn columns(&self, graph: &Graph) -> usize {
        graph.value(self.op.prologue.shape_of()).width
    }
}

/// The operand sizes of a program's matmuls.
pub(super) struct OperandSizes {
    /// Number of f32 for all tokens.
    floats: usize,
    /// Number of int8 blocks for all tokens, for 32 and for 256 elements per scale.
    blocks: [usize; 2],
    /// Number of columns of the widest operand.
    columns: usize,
    max_tokens: usize,
    experts: ExpertSizes,
}

/// The operands of the current matmul, shared by the team.
pub(super) struct OperandBuffers {
    /// The operand of float formats, in the layout of [`FloatGemm`], or `[tokens, columns]` if the
    /// prologue computes it.
    float: Vec<f32>,
    /// `[columns / 256, tokens]` for 32 and for 256 elements per scale.
    int8: [Vec<ActBlock>; 2],
}

/// [`OperandBuffers`] during a region.
#[derive(Clone, Copy)]
pub(super) struct SharedOperands<'a> {
    pub(super) float: DisjointSlice<'a, f32>,
    pub(super) int8: [DisjointSlice<'a, ActBlock>; 2],
}

/// The buffers of one thread.
pub(super) struct Scratch {
    float: Vec<f32>,
    int8: [Vec<ActBlock>; 2],
    pub(super) gemm: GemmScratch,
    pub(super) attention: AttentionScratch,
    pub(super) latent: LatentScratch,
    pub(super) experts: ExpertRows,
}

pub(super) fn group_index(group: usize) -> usize {
    usize::from(group != 32)
}

impl OperandSizes {
    pub(super) fn new(steps: &[Step], graph: &Graph, max_tokens: usize) -> Self {
        let (mut columns, mut floats, mut blocks) = (0, 0, [0; 2]);
        let mut experts = ExpertSizes::default();
        for step in steps {
            let mut grow = |group: usize, count: usize| {
                let blocks = &mut blocks[group_index(group)];
                *blocks = count.max(*blocks);
            };
            match step {
                Step::MatMul(m) => {
                    let width = m.columns(graph);
                    columns = width.max(columns);
                    if m.float && (m.blocks || !matches!(m.op.prologue, Prologue::Plain(_))) {
                        floats = float_gemm::operand_floats(width).max(floats);
                    }
                    m.groups.iter().for_each(|g| grow(*g, width.div_ceil(ACT_BLOCK)));
                }
                Step::ExpertMatMul(m) => experts.grow(m, graph, max_tokens),
                Step::HeadMatMul(m) => {
                    floats = m.operand_floats().max(floats);
                    if let Some((group, count)) = m.operand_blocks() {
                        grow(group, count);
                    }
                }
                _ => {}
            }
        }
        let rows = max_tokens.next_multiple_of(GEMM_TOKENS);
        Self {
            floats: floats * max_tokens.next_multiple_of(FLOAT_TOKENS),
            blocks: [0, 1].map(|group| experts.blocks[group].max(blocks[group] * rows)),
            columns,
            max_tokens,
            experts,
        }
    }

    /// Bytes of [`OperandBuffers`].
    pub(super) fn bytes(&self) -> usize {
        let blocks: usize = self.blocks.iter().sum();
        self.floats * size_of::<f32>() + blocks * size_of::<ActBlock>()
    }

    /// Bytes of [`Scratch`].
    pub(super) fn scratch_bytes(&self) -> usize {
        let blocks: usize = self.scratch_blocks().iter().sum();
        self.scratch_floats() * size_of::<f32>()
            + blocks * size_of::<ActBlock>()
            + GemmScratch::bytes_for(self.max_tokens)
            + self.experts.bytes()
    }

    /// Number of f32 per token; 0 if no matmul has a float operand.
    fn scratch_floats(&self) -> usize {
        if self.floats == 0 { 0 } else { self.columns }
    }

    /// Number of int8 blocks per token and group; 0 if no matmul has such an operand.
    fn scratch_blocks(&self) -> [usize; 2] {
        self.blocks.map(|blocks| if blocks == 0 { 0 } else { self.columns.div_ceil(ACT_BLOCK) })
    }
}

impl OperandBuffers {
    pub(super) fn new(sizes: &OperandSizes) -> Self {
        Self {
            float: vec![0.0; sizes.floats],
            int8: sizes.blocks.map(|blocks| vec![ActBlock::ZERO; blocks]),
        }
    }

    pub(super) fn share(&mut self) -> SharedOperands<'_> {
        let [a, b] = &mut self.int8;
        SharedOperands {
            float: DisjointSlice::new(&mut self.float),
            int8: [DisjointSlice::new(a), DisjointSlice::new(b)],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.float.as_slice())
            + self.int8.iter().map(|b| size_of_val(b.as_slice())).sum::<usize>()
    }
}

impl Scratch {
    pub(super) fn new(sizes: &OperandSizes) -> Self {
        Self {
            float: vec![0.0; sizes.scratch_floats()],
            int8: sizes.scratch_blocks().map(|blocks| vec![ActBlock::ZERO; blocks]),
            gemm: GemmScratch::new(sizes.max_tokens),
            attention: AttentionScratch::default(),
            latent: LatentScratch::default(),
            experts: ExpertRows::new(&sizes.experts),
        }
    }

    /// Bytes held, without the attention scores, which grow with the context.
    pub(super) fn bytes(&self) -> usize {
        let int8: usize = self.int8.iter().map(|blocks| size_of_val(blocks.as_slice())).sum();
        size_of_val(self.float.as_slice()) + int8 + self.gemm.bytes() + self.experts.bytes()
    }
}

/// The operand of float formats.
#[derive(Clone, Copy)]
enum FloatOperand<'a> {
    Absent,
    Rows(Rows<'a>),
    /// Blocks in the layout of [`FloatGemm`].
    Blocks(&'a [f32]),
}

/// The prepared operands of a matmul.
#[derive(Clone, Copy)]
struct Operands<'a> {
    float: FloatOperand<'a>,
    int8: [&'a [ActBlock]; 2],
    tokens: usize,
}

impl Region<'_> {
    /// Deals the rows of the operand, then the panels of the weights.
    pub(super) fn matmul_deals(&self, step: &MatMulStep) -> [PieceDivision; 2] {
        let tokens = self.num_rows(step.op.prologue.shape_of());
        if tokens == 0 {
            return [PieceDivision::NOTHING; 2];
        }
        let columns = step.columns(self.graph);
        // One token: each member prepares the whole operand, which is cheaper than a phase.
        let operand = match tokens {
            1 => PieceDivision::NOTHING,
            _ => PieceDivision::new(tokens, row_ns(columns), self.threads),
        };
        let matrices = step.op.projections.iter().map(|p| self.matrix(p.weight));
        let (panels, bytes) = matrices.fold((0, 0), |(panels, bytes), matrix| {
            (panels + matrix.num_panels(), bytes + matrix.bytes())
        });
        let panel_ns = matmul_ns(bytes / panels.max(1), columns, tokens);
        // The float kernels take 4 panels at a time.
        let most = if step.is_blocked(tokens) { GEMM_GROUP } else { 64 };
        [operand, PieceDivision::in_multiples(panels, panel_ns, self.threads, 4, most)]
    }

    pub(super) fn matmul(
        &self,
        share: &mut Share<'_>,
        step: &MatMulStep,
        part: StepPart,
        scratch: &mut Scratch,
    ) {
        let tokens = self.num_rows(step.op.prologue.shape_of());
        if part == StepPart::First {
            share.for_each(|rows| self.prepare(step, self.operands, rows, tokens));
            return;
        }
        let Scratch { float, int8, gemm, .. } = scratch;
        let operands = if tokens == 1 {
            let [a, b] = int8;
            let own = SharedOperands {
                float: DisjointSlice::new(float),
                int8: [DisjointSlice::new(a), DisjointSlice::new(b)],
            };
            self.prepare(step, own, 0..1, tokens);
            self.operands(step, own, tokens)
        } else {
            self.operands(step, self.operands, tokens)
        };
        for range in share {
            let mut first = 0;
            for p in &step.op.projections {
                let end = first + self.matrix(p.weight).num_panels();
                let here = range.start.max(first)..range.end.min(end);
                if !here.is_empty() {
                    let own = here.start - first..here.end - first;
                    self.panels(step, p, own, operands, gemm);
                }
                first = end;
            }
        }
    }

    /// Evaluates the prologue for some tokens into every operand that `step` takes.
    fn prepare(
        &self,
        step: &MatMulStep,
        buffers: SharedOperands<'_>,
        rows: Range<usize>,
        tokens: usize,
    ) {
        let columns = step.columns(self.graph);
        let (stride, biased) = (step.stride(tokens), step.is_blocked(tokens));
        for token in rows {
            // SAFETY: the prologue's values were written in an earlier phase.
            let row = |id| unsafe { self.rows(id).row(token) };
            let source = match step.op.prologue {
                Prologue::Plain(x) => RowSource::Plain(row(x)),
                Prologue::RmsNorm { x, weight, eps } => {
                    rows::norm_source(self.isa, row(x), self.vector(weight), eps)
                }
                Prologue::Glu { activation, gate, up } => {
                    RowSource::Glu { activation, gate: row(gate), up: row(up) }
                }
            };
            if step.float && step.is_blocked(tokens) {
                let stride = tokens.next_multiple_of(FLOAT_TOKENS);
                let chunks = float_gemm::operand_floats(columns) / FLOAT_CHUNK;
                let last = (chunks - 1) * stride + token + 1;
                // SAFETY: the kernel writes every `stride`-th block of the range, which are this
                // token's.
                let out = unsafe { buffers.float.get_mut(token * FLOAT_CHUNK..last * FLOAT_CHUNK) };
                self.isa.run(PackFloats { source, out, stride });
            } else if step.float && !matches!(step.op.prologue, Prologue::Plain(_)) {
                // SAFETY: each token belongs to one piece.
                let out = unsafe { buffers.float.get_mut(token * columns..(token + 1) * columns) };
                rows::evaluate(self.isa, source, out);
            }
            for &group in &step.groups {
                let int8 = buffers.int8[group_index(group)];
                let last = (columns.div_ceil(ACT_BLOCK) - 1) * stride + token + 1;
                // SAFETY: the kernel writes every `stride`-th block of the range, which are this
                // token's.
                let blocks = unsafe { int8.get_mut(token..last) };
                self.isa.run(Quantize { source, group, biased, blocks, stride });
            }
        }
    }

    /// The operands that [`Self::prepare`] wrote.
    fn operands<'b>(
        &self,
        step: &MatMulStep,
        buffers: SharedOperands<'b>,
        tokens: usize,
    ) -> Operands<'b>
    where
        Self: 'b,
    {
        let columns = step.columns(self.graph);
        let stride = step.stride(tokens);
        let float = match step.op.prologue {
            _ if !step.float => FloatOperand::Absent,
            _ if step.is_blocked(tokens) => {
                let rows = tokens.next_multiple_of(FLOAT_TOKENS);
                // SAFETY: written in an earlier phase.
                let blocks =
                    unsafe { buffers.float.get(0..rows * float_gemm::operand_floats(columns)) };
                FloatOperand::Blocks(blocks)
            }
            Prologue::Plain(x) => FloatOperand::Rows(self.rows(x)),
            _ => {
                let data = buffers.float.part(0..tokens * columns);
                FloatOperand::Rows(Rows { data, width: columns })
            }
        };
        let int8 = [32, 256].map(|group| {
            let wanted = step.groups.contains(&group);
            let blocks = if wanted { columns.div_ceil(ACT_BLOCK) * stride } else { 0 };
            // SAFETY: written in an earlier phase.
            unsafe { buffers.int8[group_index(group)].get(0..blocks) }
        });
        Operands { float, int8, tokens }
    }

    /// Computes panels of one projection.
    fn panels(
        &self,
        step: &MatMulStep,
        projection: &Projection,
        panels: Range<usize>,
        operands: Operands<'_>,
        scratch: &mut GemmScratch,
    ) {
        let tokens = operands.tokens;
        let weight = self.matrix(projection.weight);
        let target = MatmulTarget {
            out: self.rows(projection.out),
            bias: projection.bias.map(|b| self.vector(b)),
            residual: step.op.residual.map(|r| self.rows(r)),
            rows: TargetRows::From(0),
        };
        let group = match (MatmulOperand::of(weight.dtype()), operands.float) {
            (MatmulOperand::Int8 { group }, _) => group,
            (MatmulOperand::Float, FloatOperand::Rows(x)) => {
                self.isa.run(FloatMatMul { weight, panels, x, tokens, target });
                return;
            }
            (MatmulOperand::Float, FloatOperand::Blocks(x)) => {
                let stride = tokens.next_multiple_of(FLOAT_TOKENS);
                self.isa.run(FloatGemm { weight, panels, x, stride, tokens, target, scratch });
                return;
            }
            (MatmulOperand::Float, FloatOperand::Absent) => unreachable!("no float operand"),
        };
        let activations = operands.int8[group_index(group)];
        let stride = step.stride(tokens);
        if !step.is_blocked(tokens) {
            MatVec { weight, panels, activations, stride, tokens, target }.run(self.isa);
            return;
        }
        Gemm { weight, panels, activations, stride, tokens, target, scratch }.run(self.isa);
    }
}
