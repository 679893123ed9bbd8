//! The properties of a program that its launches depend on and that no batch changes.

use rf_graph::{
    Attention, Combine, DType, Epilogue, ExpertMatMul, Graph, MatMul, Op, Prologue, Storage,
    ValueId, WeightId,
};

use crate::params::{Address, ExpertGroups, ExpertTile, MatmulDevice, SMALLEST_TILE};

/// Spare rows after the last row of an operand. Kernels for several columns read them and ignore
/// the values.
pub(super) const SPARE_ROWS: usize = 8;

/// Properties of a graph on a device.
pub(super) struct GraphAnalysis {
    pub(super) matmul_device: MatmulDevice,
    /// Operands by value, for those with [`Storage::MatMulOperand`].
    operands: Vec<Option<OperandForm>>,
    /// Elements per token of the largest scratch operand.
    scratch_per_token: usize,
    /// Elements of all query heads of the largest attention.
    pub(super) attention_width: usize,
    /// Query heads of the largest attention.
    pub(super) attention_heads: usize,
    /// Key and value heads of the largest attention.
    pub(super) attention_kv_heads: usize,
    /// Experts per token and experts of the largest mixture.
    expert_slots: usize,
    experts: usize,
    /// Every number of heads with a matrix each.
    head_counts: Vec<usize>,
    /// Elements of the value of the largest latent attention.
    pub(super) latent_dim: usize,
    /// Output features of the largest sum of experts.
    pub(super) sum_width: usize,
}

/// The form in which a value is stored for the matmul that reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct OperandForm {
    /// As int8 with a scale per block, for quantised weights.
    pub(super) q8: bool,
    /// As f32, for float weights.
    pub(super) f32: bool,
    /// Columns of a row. A value that the experts of each slot read has several rows per token.
    pub(super) columns: usize,
    /// `eps` of the norm whose sums of squares are stored with a single row. Such a row lacks the
    /// factor of the norm, which the reading matmul applies.
    pub(super) norm_eps: Option<f32>,
}

impl GraphAnalysis {
    pub(super) fn new(graph: &Graph, matmul_device: MatmulDevice) -> Self {
        let mut analysis = Self {
            matmul_device,
            operands: vec![None; graph.values().len()],
            scratch_per_token: 32,
            attention_width: 1,
            attention_heads: 1,
            attention_kv_heads: 1,
            expert_slots: 0,
            experts: 0,
            head_counts: Vec::new(),
            latent_dim: 0,
            sum_width: 0,
        };
        for op in graph.ops() {
            analysis.add(graph, op);
        }
        for op in graph.ops() {
            let (norm, weight) = match op {
                Op::MatMul(MatMul { projections, epilogue: Epilogue::RmsNorm(norm), .. }) => {
                    (*norm, Some(graph.weight(projections[0].weight)))
                }
                Op::ExpertMatMul(m) => match m.combine {
                    Some(Combine { norm: Some(norm), .. }) => (norm, graph.expert_weight(m)),
                    _ => continue,
                },
                _ => continue,
            };
            if let Some(form) = &mut analysis.operands[norm.out.index()] {
                let is_fused = weight.is_some_and(|w| has_fused_rows(w.dtype, w.rows));
                form.norm_eps = is_fused.then_some(norm.eps);
            }
        }
        analysis
    }

    fn add(&mut self, graph: &Graph, op: &Op) {
        match op {
            Op::MatMul(m) => {
                if let Prologue::Plain(x) = m.prologue {
                    self.add_operand(graph, x, form_of(graph, m));
                }
            }
            Op::ExpertMatMul(m) => {
                self.add_operand(graph, m.x, form_of_experts(graph, m));
                self.expert_slots = self.expert_slots.max(graph.value(m.route).width / 2);
                let experts = m.projections.iter().map(|p| p.weights.len()).max();
                self.experts = self.experts.max(experts.unwrap_or(0));
                let sum_width = m.combine.map_or(0, |sum| graph.value(sum.out).width);
                self.sum_width = self.sum_width.max(sum_width);
            }
            Op::HeadMatMul { x, weights, .. } => {
                self.add_operand(graph, *x, form_of_heads(graph, weights));
                self.expert_slots = self.expert_slots.max(weights.len());
                self.experts = self.experts.max(weights.len());
                if !self.head_counts.contains(&weights.len()) {
                    self.head_counts.push(weights.len());
                }
            }
            Op::Attention { attention: Attention { latent_dim: Some(latent_dim), .. }, .. } => {
                self.latent_dim = self.latent_dim.max(*latent_dim);
            }
            Op::Attention { attention: a, .. } => {
                self.attention_width = self.attention_width.max(a.num_heads * a.head_dim);
                self.attention_heads = self.attention_heads.max(a.num_heads);
                self.attention_kv_heads = self.attention_kv_heads.max(a.num_kv_heads);
            }
            _ => {}
        }
    }

    /// Adds a left operand in the form that one of its readers needs.
    fn add_operand(&mut self, graph: &Graph, x: ValueId, form: OperandForm) {
        let value = graph.value(x);
        match value.storage {
            Storage::MatMulOperand => {
                let all = self.operands[x.index()].get_or_insert(form);
                (all.q8, all.f32) = (all.q8 || form.q8, all.f32 || form.f32);
            }
            Storage::F32 if form.q8 => {
                self.scratch_per_token = self.scratch_per_token.max(value.width);
            }
            Storage::F32 => {}
        }
    }

    /// Words of u32 for the groups of the largest batch: the tiles, then the slots.
    pub(super) fn group_words(&self, max_tokens: usize) -> usize {
        let slots = max_tokens * self.expert_slots;
        let tiles = ExpertGroups::num_tiles(slots, self.experts, SMALLEST_TILE);
        (tiles * size_of::<ExpertTile>() / size_of::<u32>() + slots).max(1)
    }

    /// The heads of all rows of an operand with a row per token and head, for each number of heads.
    /// There is at least one element.
    pub(super) fn head_rows(&self, max_tokens: usize) -> Vec<f32> {
        let of = |heads: usize| (0..max_tokens * heads).map(move |row| (row % heads) as f32);
        let rows: Vec<f32> = self.head_counts.iter().flat_map(|heads| of(*heads)).collect();
        if rows.is_empty() { vec![0.0] } else { rows }
    }

    /// Each number of heads with the address of its part of [`Self::head_rows`].
    pub(super) fn head_routes(&self, max_tokens: usize, base: Address) -> Vec<(usize, Address)> {
        let mut next = base;
        let mut place = |heads: usize| {
            let at = next;
            next += (max_tokens * heads * size_of::<f32>()) as Address;
            (heads, at)
        };
        self.head_counts.iter().map(|heads| place(*heads)).collect()
    }

    /// The form of a value that is stored as an operand; `None` for values stored as f32.
    pub(super) fn operand(&self, id: ValueId) -> Option<OperandForm> {
        self.operands[id.index()]
    }

    /// Floats of a row of a value in the arena.
    pub(super) fn floats(&self, graph: &Graph, id: ValueId) -> usize {
        let width = graph.value(id).width;
        let floats = self.operand(id).map_or(width, |form| form.floats(width));
        floats.next_multiple_of(64)
    }

    /// Elements of the scratch operand for the largest batch, with spare rows.
    pub(super) fn scratch_elements(&self, max_tokens: usize) -> usize {
        (self.scratch_per_token * (max_tokens + SPARE_ROWS)).next_multiple_of(256)
    }
}

impl OperandForm {
    /// Floats of a row: the stored parts of f32, codes, scales and sums of squares.
    pub(super) fn floats(self, width: usize) -> usize {
        let f32 = if self.f32 { width } else { 0 };
        let q8 = if self.q8 { width / 4 + width / 16 } else { 0 };
        let squares = if self.norm_eps.is_some() { width / 32 } else { 0 };
        f32 + q8 + squares
    }
}

/// Returns true if matrix-vector kernels have epilogues for a weight: a quantised format with whole
/// blocks of output rows.
pub(super) fn has_fused_rows(dtype: DType, rows: usize) -> bool {
    !dtype.is_float() && rows.is_multiple_of(32)
}

/// The form in which a matmul of experts reads its left operand.
pub(super) fn form_of_experts(graph: &Graph, m: &ExpertMatMul) -> OperandForm {
    let weight = graph.expert_weight(m);
    let is_float = weight.is_some_and(|weight| weight.dtype.is_float());
    let columns = weight.map_or(1, |weight| weight.columns);
    OperandForm { q8: !is_float, f32: is_float, columns, norm_eps: None }
}

/// The form in which a matmul with a matrix per head reads its left operand.
pub(super) fn form_of_heads(graph: &Graph, heads: &[WeightId]) -> OperandForm {
    let weight = graph.weight(heads[0]);
    let is_float = weight.dtype.is_float();
    OperandForm { q8: !is_float, f32: is_float, columns: weight.columns, norm_eps: None }
}

/// The form in which a matmul reads its left operand.
pub(super) fn form_of(graph: &Graph, m: &MatMul) -> OperandForm {
    let is_float = |p: &rf_graph::Projection| graph.weight(p.weight).dtype.is_float();
    OperandForm {
        q8: !m.projections.iter().all(is_float),
        f32: m.projections.iter().any(is_float),
        columns: graph.value(m.prologue.shape_of()).width,
        norm_eps: None,
    }
}
