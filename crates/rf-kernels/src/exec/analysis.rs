//! The properties of a program that its launches depend on and that no batch changes.

use rf_graph::{
    Attention, Combine, DType, Epilogue, ExpertMatMul, Graph, MatMul, Op, Prologue, Storage,
    ValueId, WeightId, WeightShape,
};

use crate::params::{
    Address, ExpertGroups, ExpertTile, FEW_TOKENS, Halves, MatmulDevice, SMALLEST_TILE,
};
use crate::tuning::Knob;

/// Spare rows after the last row of an operand. Kernels for several columns read them and ignore
/// the values.
pub(super) const SPARE_ROWS: usize = 8;

/// Properties of a graph on a device.
pub(super) struct GraphAnalysis {
    pub(super) matmul_device: MatmulDevice,
    /// Operands by value, for those with [`Storage::MatMulOperand`].
    operands: Vec<Option<OperandForm>>,
    /// Elements per token of the largest scratch operand of int8, and of f16.
    scratch_per_token: usize,
    scratch_halves_per_token: usize,
    /// Rows per token of a scratch operand of f16, each with a scale.
    scratch_scales_per_token: usize,
    /// Elements of all query heads of the largest attention.
    pub(super) attention_width: usize,
    /// Query heads of the largest attention.
    pub(super) attention_heads: usize,
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

/// The forms in which a value is stored for the matmuls that read it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct OperandForm {
    /// Forms for one row.
    one: Forms,
    /// Forms for two rows.
    two: Forms,
    /// Forms for 3 to `few_tokens` rows.
    few: Forms,
    few_tokens: usize,
    /// Forms for more rows, up to `grouped_tokens`: experts read int8 there.
    many: Forms,
    grouped_tokens: usize,
    /// Forms for still more rows.
    most: Forms,
    /// Columns of a row. A value that the experts of each slot read has several rows per token.
    pub(super) columns: usize,
    /// The most rows that the op that writes them may leave without the factor of the norm.
    lacking_rows: usize,
    /// The most rows to which all readers apply that factor in matrix-vector kernels.
    applied_rows: usize,
    /// True if the op that writes several rows as f16 may leave the factor of the norm out, too.
    few_lack_norm: bool,
    /// `eps` of the norm whose sums of squares are stored with rows. A single row, and few where
    /// [`missing_norm`](Self::missing_norm) says so, lacks the factor of the norm, which the
    /// reading matmul applies.
    pub(super) norm_eps: Option<f32>,
}

/// Forms of a left operand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Forms {
    /// Stored as int8 with a scale per block.
    pub(super) q8: bool,
    /// Stored as f32.
    pub(super) f32: bool,
    /// Stored as f16 with a scale per row, in this order of columns.
    pub(super) f16: Option<ColumnOrder>,
}

/// The order of the columns of f16.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ColumnOrder {
    /// The order in which weights are unpacked.
    Unpacked,
    /// The order of the columns themselves.
    Natural,
}

impl ColumnOrder {
    /// Marks activations with the order.
    pub(super) fn of(self, halves: Halves) -> Halves {
        match self {
            Self::Unpacked => halves,
            Self::Natural => halves.natural(),
        }
    }
}

impl Forms {
    const NONE: Self = Self { q8: false, f32: false, f16: None };
    const Q8: Self = Self { q8: true, ..Self::NONE };
    const F32: Self = Self { f32: true, ..Self::NONE };
    const F16: Self = Self { f16: Some(ColumnOrder::Unpacked), ..Self::NONE };
    const NATURAL: Self = Self { f16: Some(ColumnOrder::Natural), ..Self::NONE };

    fn and(self, other: Self) -> Self {
        let f16 = match (self.f16, other.f16) {
            (Some(a), Some(b)) if a != b => Some(ColumnOrder::Unpacked),
            (a, b) => a.or(b),
        };
        Self { q8: self.q8 || other.q8, f32: self.f32 || other.f32, f16 }
    }

    /// Floats of a row of `width` columns, which are rows of `columns` for a matmul: f32, codes and
    /// scales, f16 and the scales of rows.
    fn floats(self, width: usize, columns: usize) -> usize {
        let f32 = if self.f32 { width } else { 0 };
        let q8 = if self.q8 { width / 4 + width / 16 } else { 0 };
        let f16 = if self.f16.is_some() { width / 2 + width / columns } else { 0 };
        f32 + q8 + f16
    }
}

impl GraphAnalysis {
    pub(super) fn new(graph: &Graph, device: MatmulDevice) -> Self {
        let matmul_device = MatmulDevice { few_tokens: few_tokens(graph, device), ..device };
        let mut analysis = Self {
            matmul_device,
            operands: vec![None; graph.values().len()],
            scratch_per_token: 32,
            scratch_halves_per_token: 0,
            scratch_scales_per_token: 0,
            attention_width: 1,
            attention_heads: 1,
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
            if let Op::AllReduce { norm: Some(norm), .. } = op
                && let Some(form) = &mut analysis.operands[norm.out.index()]
            {
                // The kernel of sums writes any number of rows.
                form.norm_eps = Some(norm.eps);
                (form.lacking_rows, form.few_lack_norm) = (usize::MAX, true);
            }
            let (norm, weight, is_matmul) = match op {
                Op::MatMul(MatMul { projections, epilogue: Epilogue::RmsNorm(norm), .. }) => {
                    (*norm, Some(graph.weight(projections[0].weight)), true)
                }
                Op::ExpertMatMul(m) => match m.combine {
                    Some(Combine { norm: Some(norm), .. }) => (norm, graph.expert_weight(m), false),
                    _ => continue,
                },
                _ => continue,
            };
            if let Some(form) = &mut analysis.operands[norm.out.index()] {
                let is_fused = weight.is_some_and(|w| has_fused_rows(w.dtype, w.rows));
                form.norm_eps = is_fused.then_some(norm.eps);
                let is_skinny = |w: WeightShape| matmul_device.is_skinny(w.dtype, w.columns);
                let weight_rows = |w: WeightShape| matmul_device.fused_matvec_tokens(w.dtype);
                form.lacking_rows = if is_matmul { weight.map_or(1, weight_rows) } else { 1 };
                form.few_lack_norm = is_matmul && weight.is_some_and(is_skinny);
            }
        }
        analysis
    }

    fn add(&mut self, graph: &Graph, op: &Op) {
        match op {
            Op::MatMul(m) => {
                if let Prologue::Plain(x) = m.prologue {
                    self.add_operand(graph, x, form_of(graph, m, self.matmul_device));
                }
            }
            Op::ExpertMatMul(m) => {
                self.add_operand(graph, m.x, form_of_experts(graph, m, self.matmul_device));
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
                all.add(form);
            }
            Storage::F32 => {
                if form.all().q8 {
                    self.scratch_per_token = self.scratch_per_token.max(value.width);
                }
                if form.all().f16.is_some() {
                    let widest = self.scratch_halves_per_token.max(value.width);
                    self.scratch_halves_per_token = widest;
                    let rows = value.width / form.columns;
                    self.scratch_scales_per_token = self.scratch_scales_per_token.max(rows);
                }
            }
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

    /// Floats of the scratch operand of f16 for the largest batch: the halves, then the scales of
    /// rows. There is at least one.
    pub(super) fn scratch_half_floats(&self, max_tokens: usize) -> usize {
        match self.scratch_halves_per_token {
            0 => 1,
            width => {
                let scales = max_tokens * self.scratch_scales_per_token;
                self.scratch_half_scales(max_tokens) + scales.max(width)
            }
        }
    }

    /// The first float of the scales of rows of [`Self::scratch_half_floats`].
    pub(super) fn scratch_half_scales(&self, max_tokens: usize) -> usize {
        (self.scratch_halves_per_token * max_tokens / 2).next_multiple_of(64)
    }
}

impl OperandForm {
    /// A form with the same forms for any number of rows.
    fn always(forms: Forms, columns: usize) -> Self {
        let (one, two, few, many, most) = (forms, forms, forms, forms, forms);
        Self { one, two, few, many, most, columns, ..Self::default() }
    }

    /// Adds the forms of another reader.
    fn add(&mut self, other: Self) {
        self.one = self.one.and(other.one);
        self.two = self.two.and(other.two);
        self.applied_rows = self.applied_rows.min(other.applied_rows);
        self.few = self.few.and(other.few);
        self.many = self.many.and(other.many);
        self.most = self.most.and(other.most);
        self.few_tokens = self.few_tokens.max(other.few_tokens);
        self.grouped_tokens = self.grouped_tokens.max(other.grouped_tokens);
    }

    /// The forms for any number of rows.
    fn all(self) -> Forms {
        self.one.and(self.two).and(self.few).and(self.many).and(self.most)
    }

    /// The forms for a number of rows.
    pub(super) fn forms(self, rows: usize) -> Forms {
        match rows {
            0..=1 => self.one,
            2 => self.two,
            _ if rows <= self.few_tokens => self.few,
            _ if rows <= self.grouped_tokens => self.many,
            _ => self.most,
        }
    }

    /// The epsilon of a norm whose factor rows lack. Of several rows only matmuls without experts
    /// apply it: matrix-vector kernels, and those with f16 operands.
    pub(super) fn missing_norm(self, rows: usize) -> Option<f32> {
        let is_applied = match rows {
            0..=1 => true,
            _ if rows <= self.applied_rows => rows <= self.lacking_rows,
            _ if rows <= self.few_tokens => self.few_lack_norm && self.forms(rows) == Forms::F16,
            _ => false,
        };
        self.norm_eps.filter(|_| is_applied)
    }

    /// Floats of a row: the stored forms and sums of squares.
    pub(super) fn floats(self, width: usize) -> usize {
        let squares = if self.norm_eps.is_some() { width / 32 } else { 0 };
        let floats = |forms: Forms| forms.floats(width, self.columns);
        let fewer = floats(self.one).max(floats(self.two)).max(floats(self.few));
        (fewer + squares).max(floats(self.many)).max(floats(self.most))
    }
}

/// The most rows of skinny matmuls: the largest number among the choices of the card, or its
/// default, for the formats of the weights. It is [`FEW_TOKENS`] if more rows of a weight have no
/// f16 operands. Activations have one form for all weights that they are multiplied with.
fn few_tokens(graph: &Graph, device: MatmulDevice) -> usize {
    let matmuls = graph.ops().iter().filter_map(|op| match op {
        Op::MatMul(m) => Some(&m.projections),
        _ => None,
    });
    let weights = matmuls.flatten().map(|projection| graph.weight(projection.weight));
    let skinny = weights.filter(|weight| device.is_skinny(weight.dtype, weight.columns));
    let most = |weight: WeightShape| {
        let tuned = device.tuned(Knob::SkinnyTokens, weight.dtype);
        let has_tiles = device.halves(weight.dtype, weight.columns);
        let tokens = tuned.map_or(device.few_tokens, |tokens| tokens as usize);
        if has_tiles { tokens } else { FEW_TOKENS }
    };
    skinny.map(most).max().unwrap_or(device.few_tokens)
}

/// Returns true if matrix-vector kernels have epilogues for a weight: a quantised format with whole
/// blocks of output rows.
pub(super) fn has_fused_rows(dtype: DType, rows: usize) -> bool {
    !dtype.is_float() && rows.is_multiple_of(32)
}

/// The form in which a matmul of experts reads its left operand.
pub(super) fn form_of_experts(
    graph: &Graph,
    m: &ExpertMatMul,
    device: MatmulDevice,
) -> OperandForm {
    let Some(WeightShape { dtype, columns, .. }) = graph.expert_weight(m) else {
        return OperandForm::always(Forms::Q8, 1);
    };
    let fewer = if dtype.is_float() { Forms::F32 } else { Forms::Q8 };
    let slots_per_token = graph.value(m.route).width / 2;
    let form = OperandForm::always(fewer, columns);
    // The results of weights of floats are those of operands of f32.
    if dtype.is_float() || !device.halves(dtype, columns) {
        return form;
    }
    OperandForm {
        few_tokens: device.few_tokens,
        grouped_tokens: device.int8_expert_tokens(m.projections[0].weights.len(), slots_per_token),
        most: half_forms(dtype, device),
        ..form
    }
}

/// The form f16 of the operand of weights of a format.
fn half_forms(dtype: DType, device: MatmulDevice) -> Forms {
    if device.has_wgmma && dtype == DType::F16 { Forms::NATURAL } else { Forms::F16 }
}

/// The form in which a matmul with a matrix per head reads its left operand.
pub(super) fn form_of_heads(graph: &Graph, heads: &[WeightId]) -> OperandForm {
    let weight = graph.weight(heads[0]);
    let forms = if weight.dtype.is_float() { Forms::F32 } else { Forms::Q8 };
    OperandForm::always(forms, weight.columns)
}

/// The form in which a matmul reads its left operand.
pub(super) fn form_of(graph: &Graph, m: &MatMul, device: MatmulDevice) -> OperandForm {
    let columns = graph.value(m.prologue.shape_of()).width;
    let few_tokens = device.few_tokens;
    let none = OperandForm { few_tokens, columns, ..OperandForm::default() };
    let mut form = OperandForm { applied_rows: usize::MAX, ..none };
    for projection in &m.projections {
        let dtype = graph.weight(projection.weight).dtype;
        let one = if dtype.is_float() { Forms::F32 } else { Forms::Q8 };
        let few = if device.is_skinny(dtype, columns) { Forms::F16 } else { one };
        let applied_rows = device.fused_matvec_tokens(dtype);
        let two = if applied_rows >= 2 { one } else { few };
        let many = if device.halves(dtype, columns) { half_forms(dtype, device) } else { one };
        form.add(OperandForm { one, two, few, many, most: many, applied_rows, ..none });
    }
    form
}
