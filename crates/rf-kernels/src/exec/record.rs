//! From ops to launches: which kernels a batch of some shape takes, in which order.

mod attention;
mod products;

use rf_graph::{
    Activation, Graph, MatMul, Op, Prologue, Rope, RopeStyle, ValueId, Weight, WeightId,
};

use super::GpuExecutor;
use super::step::Shape;
use crate::error::Error;
use crate::launch::{Gpu, Recording};
use crate::params::{
    self, Activations, AddScaleParams, Address, EmbedParams, GluParams, GroupNormParams,
    KvAppendParams, Launch, MatmulDevice, NormIn, Operand, QuantizeParams, RmsNormParams,
    RopeAppendParams, RopeParams, RopeTable, SelectRowsParams, embed_rms_norm_threads,
    rms_norm_threads,
};
use products::is_float;

/// What is known of a graph before any batch.
pub(super) struct Facts {
    compute_units: usize,
    matmul_device: MatmulDevice,
    /// Rows handed in with the batch.
    input: Option<ValueId>,
    /// Columns times rows per token of the largest operand.
    operand_per_token: usize,
    /// Elements of all query heads, and key/value heads, of the largest attention.
    attention_width: usize,
    attention_heads: usize,
    attention_kv_heads: usize,
    /// By op: a gate-and-up product whose outputs only the product at that op reads.
    glu_of: Vec<Option<usize>>,
    /// By op: an attention whose output only the product at that op reads.
    reader_of: Vec<Option<usize>>,
    /// By op: a product of quantised weights whose rows the product that follows normalises.
    norm_behind: Vec<Option<NormBehind>>,
}

/// An RMS norm that the product before it takes part in.
#[derive(Clone, Copy)]
struct NormBehind {
    weight: WeightId,
    eps: f32,
}

impl Facts {
    pub(super) fn of(graph: &Graph, weights: &[Weight], gpu: &Gpu) -> Self {
        let columns = |id: WeightId| weights[id.index()].columns();
        let mut facts = Self {
            compute_units: gpu.compute_units(),
            matmul_device: MatmulDevice::new(gpu.compute_units(), &gpu.context().info().arch),
            input: None,
            operand_per_token: 32,
            attention_width: 1,
            attention_heads: 1,
            attention_kv_heads: 1,
            glu_of: vec![None; graph.ops().len()],
            reader_of: vec![None; graph.ops().len()],
            norm_behind: vec![None; graph.ops().len()],
        };
        for (i, op) in graph.ops().iter().enumerate() {
            match op {
                Op::Input { out } => facts.input = Some(*out),
                Op::MatMul(m) => {
                    facts.operand_per_token =
                        facts.operand_per_token.max(columns(m.projections[0].weight));
                    facts.glu_of[i] = fused_glu(graph, weights, i);
                    facts.norm_behind[i] = norm_behind(graph, weights, i);
                }
                Op::ExpertMatMul { x, route, .. } => {
                    let used = graph.value(*route).width / 2;
                    facts.operand_per_token =
                        facts.operand_per_token.max(graph.value(*x).width * used);
                }
                Op::Attention { attention: a, out, .. } => {
                    facts.attention_width = facts.attention_width.max(a.num_heads * a.head_dim);
                    facts.attention_heads = facts.attention_heads.max(a.num_heads);
                    facts.attention_kv_heads = facts.attention_kv_heads.max(a.num_kv_heads);
                    facts.reader_of[i] = only_reader(graph, *out).filter(|reader| {
                        matches!(&graph.ops()[*reader],
                            Op::MatMul(m) if m.prologue == Prologue::Plain(*out))
                    });
                }
                _ => {}
            }
        }
        facts
    }

    /// The value that [`Op::Input`] writes.
    pub(super) fn input(&self) -> Option<ValueId> {
        self.input
    }

    /// Elements of an operand of the largest batch, with spare rows.
    pub(super) fn operand_elements(&self, max_tokens: usize) -> usize {
        (self.operand_per_token * (max_tokens + super::SPARE_ROWS)).next_multiple_of(256)
    }
}

/// The only op that reads a value, unless it is the graph's output.
fn only_reader(graph: &Graph, id: ValueId) -> Option<usize> {
    let mut readers =
        graph.ops().iter().enumerate().filter(|(_, op)| op.inputs().contains(&id)).map(|(i, _)| i);
    let reader = readers.next()?;
    (readers.next().is_none() && graph.output() != id).then_some(reader)
}

/// The product that alone reads what gate and up give, if the two can be one launch: one quantised format, no
/// bias, whole blocks of output.
fn fused_glu(graph: &Graph, weights: &[Weight], op: usize) -> Option<usize> {
    let Op::MatMul(m) = &graph.ops()[op] else { return None };
    let [a, b] = m.projections.as_slice() else { return None };
    let (gate_weight, up_weight) = (&weights[a.weight.index()], &weights[b.weight.index()]);
    let alike = gate_weight.dtype() == up_weight.dtype() && gate_weight.rows() == up_weight.rows();
    let plain = a.bias.is_none() && b.bias.is_none() && m.residual.is_none();
    if !alike || !plain || is_float(gate_weight.dtype()) || !gate_weight.rows().is_multiple_of(32) {
        return None;
    }
    let reader = only_reader(graph, a.out)?;
    let Op::MatMul(down) = &graph.ops()[reader] else { return None };
    let reads_both =
        matches!(down.prologue, Prologue::Glu { gate, up, .. } if gate == a.out && up == b.out);
    (reads_both && only_reader(graph, b.out) == Some(reader)).then_some(reader)
}

/// The norm that the next op, a product of quantised weights only, has for its prologue, if the product `op` can
/// do its part of it: one quantised matrix of whole blocks of output.
fn norm_behind(graph: &Graph, weights: &[Weight], op: usize) -> Option<NormBehind> {
    let [Op::MatMul(m), Op::MatMul(next)] = graph.ops().get(op..op + 2)? else { return None };
    let [projection] = m.projections.as_slice() else { return None };
    let Prologue::RmsNorm { x, weight, eps } = next.prologue else { return None };
    let quantised =
        |m: &MatMul| m.projections.iter().all(|p| !is_float(weights[p.weight.index()].dtype()));
    let whole = weights[projection.weight.index()].rows().is_multiple_of(32);
    (x == projection.out && quantised(m) && quantised(next) && whole)
        .then_some(NormBehind { weight, eps })
}

/// The rotation that an op makes.
pub(super) fn rope_of(op: &Op) -> Option<&Rope> {
    match op {
        Op::Rope { rope, .. } | Op::RopeAppend { rope, .. } => Some(rope),
        _ => None,
    }
}

/// The left operand of the product at op `reader`.
#[derive(Clone, Copy)]
struct Ready {
    reader: usize,
    operand: Operand,
    /// The factor that it lacks.
    norm: NormIn,
}

/// Writes down the launches of a batch.
pub(super) struct Recorder<'a> {
    exec: &'a GpuExecutor,
    shape: Shape,
    batch: params::Batch,
    recording: Recording,
    /// The op that is being recorded.
    op: usize,
    /// Which of the two int8 operands was written last.
    last_q8: usize,
    /// The operand of a product that an earlier launch made already.
    ready: Option<Ready>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(exec: &'a GpuExecutor, shape: Shape) -> Self {
        let batch = exec.step.params(&shape);
        let recording = Recording::default();
        Self { exec, shape, batch, recording, op: 0, last_q8: 0, ready: None }
    }

    /// All launches of the graph.
    pub(super) fn record(mut self) -> Result<Recording, Error> {
        let exec = self.exec;
        for (i, op) in exec.graph.ops().iter().enumerate() {
            self.op = i;
            self.record_op(op)?;
        }
        Ok(self.recording)
    }

    fn push<P: bytemuck::Pod + Send>(&mut self, launch: Launch, params: P) -> Result<(), Error> {
        self.recording.push(&self.exec.gpu, self.op, launch, params)
    }

    /// Address of a value.
    fn at(&self, id: ValueId) -> Address {
        self.exec.value(id, &self.shape).0
    }

    /// Rows of a value in this batch.
    fn rows(&self, id: ValueId) -> usize {
        self.exec.value(id, &self.shape).1
    }

    fn width(&self, id: ValueId) -> usize {
        self.exec.graph.value(id).width
    }

    /// The int8 operand that was not written last.
    fn next_q8(&mut self) -> Activations {
        self.last_q8 = 1 - self.last_q8;
        self.exec.work.operands_q8[self.last_q8].params()
    }

    fn record_op(&mut self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Embed { table, scale, out } => self.embed(*table, *scale, *out),
            Op::RmsNorm { x, weight, eps, out } => {
                let group = self.exec.graph.weight_columns(*weight);
                let params = GroupNormParams {
                    x: self.at(*x),
                    weight: self.exec.weights.vector(*weight),
                    out: self.at(*out),
                    eps: *eps,
                    group: group as u32,
                    groups: (self.rows(*x) * self.width(*x) / group) as u32,
                    reserved: 0,
                };
                self.push(params.launch(), params)
            }
            Op::MatMul(m) => self.matmul(m),
            Op::Rope { x, rope, out } => {
                let params = RopeParams {
                    batch: self.batch,
                    rope: self.rope(rope),
                    x: self.at(*x),
                    out: self.at(*out),
                    num_heads: (self.width(*x) / rope.head_dim) as u32,
                    head_dim: rope.head_dim as u32,
                };
                self.push(params.launch(), params)
            }
            Op::KvAppend { k, v, layer } => {
                let params = KvAppendParams {
                    batch: self.batch,
                    cache: self.exec.kv.layer(*layer),
                    k: self.at(*k),
                    v: self.at(*v),
                };
                self.push(params.launch(), params)
            }
            Op::Attention { q, attention, out } => self.attention(*q, attention, *out),
            Op::Glu { activation, gate, up, out } => {
                let params = GluParams {
                    gate: self.at(*gate),
                    up: self.at(*up),
                    out: Operand { f32: self.at(*out), ..Operand::default() },
                    columns: self.width(*out) as u32,
                    rows: self.rows(*out) as u32,
                    activation: activation_number(*activation),
                    reserved: 0,
                };
                self.push(params.launch(), params)
            }
            Op::Add { a, b, out } => self.add_scale(*a, Some(*b), 1.0, *out),
            Op::Scale { x, factor, out } => self.add_scale(*x, None, *factor, *out),
            Op::SelectRows { x, out } => {
                let params = SelectRowsParams {
                    x: self.at(*x),
                    output_rows: self.batch.output_rows,
                    out: self.at(*out),
                    columns: self.width(*x) as u32,
                    rows: self.shape.outputs as u32,
                };
                self.push(params.launch(), params)
            }
            Op::RopeAppend { q, k, v, qk_norm, rope, layer, q_out } => {
                let norm = |pick: fn(&rf_graph::QkNorm) -> WeightId| {
                    qk_norm.as_ref().map_or(0, |norm| self.exec.weights.vector(pick(norm)))
                };
                let params = RopeAppendParams {
                    batch: self.batch,
                    cache: self.exec.kv.layer(*layer),
                    rope: self.rope(rope),
                    q: self.at(*q),
                    k: self.at(*k),
                    v: self.at(*v),
                    q_out: self.at(*q_out),
                    q_norm: norm(|norm| norm.q),
                    k_norm: norm(|norm| norm.k),
                    eps: qk_norm.map_or(0.0, |norm| norm.eps),
                    num_heads: (self.width(*q) / rope.head_dim) as u32,
                };
                self.push(params.launch(), params)
            }
            Op::Route { logits, used, out } => self.route(*logits, *used, *out),
            Op::ExpertMatMul { x, route, weights, out } => {
                self.expert_matmul(*x, *route, weights, *out)
            }
            Op::CombineExperts { x, route, out } => self.combine_experts(*x, *route, *out),
            // Uploaded with the batch.
            Op::Input { .. } => Ok(()),
            other => Err(Error::Unsupported { what: other.name().into() }),
        }
    }

    /// [`Op::Embed`], with the norm of the product that follows, if there is one.
    fn embed(&mut self, table: WeightId, scale: f32, out: ValueId) -> Result<(), Error> {
        let place = self.exec.weights.place(table);
        let (columns, rows) = (self.width(out) as u32, self.rows(out) as u32);
        let params = EmbedParams {
            table: place.planes,
            ids: self.batch.ids,
            x: self.at(out),
            scale,
            columns,
            rows,
            ..EmbedParams::default()
        };
        let reader = self.op + 1;
        if let Some(Op::MatMul(next)) = self.exec.graph.ops().get(reader)
            && let Prologue::RmsNorm { x, weight, eps } = next.prologue
            && x == out
            && columns.is_multiple_of(4)
        {
            let operand = self.room_for(self.wants(next));
            let norm = self.exec.weights.vector(weight);
            let threads = embed_rms_norm_threads(columns);
            let params = EmbedParams { norm, out: operand, eps, threads, ..params };
            self.ready = Some(Ready { reader, operand, norm: NormIn::default() });
            return self.push(params.embed_rms_norm(place.dtype), params);
        }
        self.push(params.embed(place.dtype), params)
    }

    /// The forms in which a product reads its left operand.
    fn wants(&self, m: &MatMul) -> Wants {
        let float = |p: &rf_graph::Projection| is_float(self.exec.weights.place(p.weight).dtype);
        Wants { q8: !m.projections.iter().all(float), f32: m.projections.iter().any(float) }
    }

    /// Where the operand of the next product goes.
    fn room_for(&mut self, wants: Wants) -> Operand {
        let q8 = if wants.q8 { self.next_q8() } else { Activations::default() };
        let f32 = if wants.f32 { self.exec.work.operand_f32.address() } else { 0 };
        Operand { q8, f32 }
    }

    fn add_scale(
        &mut self,
        a: ValueId,
        b: Option<ValueId>,
        factor: f32,
        out: ValueId,
    ) -> Result<(), Error> {
        let params = AddScaleParams {
            a: self.at(a),
            b: b.map_or(0, |b| self.at(b)),
            out: self.at(out),
            count: (self.rows(out) * self.width(out)) as u64,
            factor,
            reserved: 0,
        };
        self.push(params.launch(), params)
    }

    fn rope(&self, rope: &Rope) -> RopeTable {
        RopeTable {
            table: self.exec.rope_addresses[self.op],
            dims: rope.dims() as u32,
            style: match rope.style {
                RopeStyle::Normal => 0,
                RopeStyle::Neox => 1,
            },
        }
    }

    /// Launches what makes the left operand of a product, in the forms that it wants.
    fn operand(&mut self, prologue: &Prologue, wants: Wants) -> Result<(Operand, NormIn), Error> {
        if let Some(ready) = self.ready.take_if(|ready| ready.reader == self.op) {
            return Ok((ready.operand, ready.norm));
        }
        Ok((self.make_operand(prologue, wants)?, NormIn::default()))
    }

    fn make_operand(&mut self, prologue: &Prologue, wants: Wants) -> Result<Operand, Error> {
        let x = prologue.inputs()[0];
        let (rows, columns) = (self.rows(x) as u32, self.width(x) as u32);
        let out = self.room_for(wants);
        match *prologue {
            Prologue::Plain(x) => {
                if wants.q8 {
                    let out = Operand { f32: 0, ..out };
                    let params = QuantizeParams { x: self.at(x), out, columns, rows };
                    self.push(params.launch(), params)?;
                }
                Ok(Operand { f32: self.at(x), ..out })
            }
            Prologue::RmsNorm { x, weight, eps } => {
                let params = RmsNormParams {
                    x: self.at(x),
                    weight: self.exec.weights.vector(weight),
                    out,
                    eps,
                    columns,
                    rows,
                    threads: rms_norm_threads(columns, rows),
                    ..RmsNormParams::default()
                };
                self.push(params.launch(), params)?;
                Ok(out)
            }
            Prologue::Glu { activation, gate, up } => {
                let params = GluParams {
                    gate: self.at(gate),
                    up: self.at(up),
                    out,
                    columns,
                    rows,
                    activation: activation_number(activation),
                    reserved: 0,
                };
                self.push(params.launch(), params)?;
                Ok(out)
            }
        }
    }
}

/// The forms of an operand that a product's formats read.
#[derive(Clone, Copy)]
struct Wants {
    q8: bool,
    f32: bool,
}

fn activation_number(activation: Activation) -> u32 {
    match activation {
        Activation::GeluTanh => 1,
        _ => 0,
    }
}
