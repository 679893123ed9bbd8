//! The definition of every op: scalar, f64 sums, one loop per formula. Backends are checked against
//! it and it is never fast.

mod cache;
mod ops;

use crate::backend::{
    Backend, BackendError, Batch, BatchLimits, Executor, MemoryUse, Program, Progress,
};
use crate::fuse::Fusions;
use crate::graph::RowKind;
use crate::op::{Op, Prologue, Rope, ValueId, WeightId};
use cache::Cache;
use rf_kv::PageId;

pub use ops::{attention, combine_experts, glu, matmul, rms_norm, rope, route};

/// Executes graphs by definition.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceBackend;

impl Backend for ReferenceBackend {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn description(&self) -> String {
        "scalar, f64 sums".into()
    }

    fn fusions(&self) -> Fusions {
        Fusions::ALL
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        None
    }

    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError> {
        let total_bytes = program.weights.iter().map(|w| w.bytes().len() as u64).sum();
        progress(Progress { done_bytes: total_bytes, total_bytes });
        Ok(Box::new(Reference {
            limits: BatchLimits::new(&program),
            cache: Cache::new(&program.kv),
            program,
        }))
    }
}

struct Reference {
    program: Program,
    limits: BatchLimits,
    cache: Cache,
}

impl Executor for Reference {
    fn forward(&mut self, batch: &Batch<'_>, out: &mut [f32]) -> Result<(), BackendError> {
        batch.check(&self.limits)?;
        let graph = &self.program.graph;
        let output = graph.value(graph.output());
        let due = output.width * rows(batch, output.rows);
        if out.len() != due {
            let what = format!("room for {} values of output, {due} are due", out.len());
            return Err(BackendError::InvalidBatch(what));
        }
        let mut run = Run {
            program: &self.program,
            cache: &mut self.cache,
            batch,
            values: vec![Vec::new(); graph.values().len()],
        };
        for op in graph.ops() {
            run.op(op);
        }
        out.copy_from_slice(&run.values[graph.output().index()]);
        Ok(())
    }

    fn copy_pages(&mut self, copies: &[(PageId, PageId)]) -> Result<(), BackendError> {
        for &(from, to) in copies {
            self.cache.copy_page(from, to)?;
        }
        Ok(())
    }

    fn memory(&self) -> MemoryUse {
        MemoryUse {
            weights_bytes: self.program.weights.iter().map(|w| w.bytes().len() as u64).sum(),
            kv_bytes: self.cache.bytes() as u64,
            buffers_bytes: 0,
        }
    }
}

/// One batch on its way through the graph; `values[i]` is `[rows, width]`.
struct Run<'a> {
    program: &'a Program,
    cache: &'a mut Cache,
    batch: &'a Batch<'a>,
    values: Vec<Vec<f32>>,
}

impl Run<'_> {
    #[expect(clippy::too_many_lines, reason = "one arm per op, to be read as a table")]
    fn op(&mut self, op: &Op) {
        let weights = &self.program.weights;
        match op {
            Op::Embed { table, scale, out } => {
                let table = &weights[table.index()];
                let rows = self.batch.ids.iter().flat_map(|id| table.row_f32(*id as usize));
                let x = rows.map(|v| v * scale).collect();
                self.set(*out, x);
            }
            Op::Input { out } => {
                let x = self.batch.input.unwrap_or_default().to_vec();
                self.set(*out, x);
            }
            Op::RmsNorm { x, weight, eps, out } => {
                let weight = weights[weight.index()].row_f32(0);
                let y = rms_norm(self.get(*x), &weight, *eps);
                self.set(*out, y);
            }
            Op::MatMul(m) => {
                let x = match &m.prologue {
                    Prologue::Plain(x) => self.get(*x).to_vec(),
                    Prologue::RmsNorm { x, weight, eps } => {
                        rms_norm(self.get(*x), &weights[weight.index()].row_f32(0), *eps)
                    }
                    Prologue::Glu { activation, gate, up } => {
                        glu(*activation, self.get(*gate), self.get(*up))
                    }
                };
                for p in &m.projections {
                    let mut y = matmul(&x, &weights[p.weight.index()]);
                    if let Some(bias) = p.bias {
                        let bias = weights[bias.index()].row_f32(0);
                        y.iter_mut().zip(bias.iter().cycle()).for_each(|(y, b)| *y += b);
                    }
                    if let Some(residual) = m.residual {
                        y.iter_mut().zip(self.get(residual)).for_each(|(y, r)| *y += r);
                    }
                    self.set(p.out, y);
                }
            }
            Op::Rope { x, rope, out } => {
                let y = self.rotated(self.get(*x).to_vec(), rope);
                self.set(*out, y);
            }
            Op::KvAppend { k, v, layer } => {
                let (k, v) = (self.get(*k).to_vec(), self.get(*v).to_vec());
                self.cache.append(*layer, self.batch, &k, &v);
            }
            Op::Attention { q, attention: a, out } => {
                let sinks = a.sinks.map(|s| weights[s.index()].row_f32(0));
                let y = attention(a, sinks.as_deref(), self.get(*q), self.batch, |span, p| {
                    self.cache.read(a.layer, span, p)
                });
                self.set(*out, y);
            }
            Op::Glu { activation, gate, up, out } => {
                let y = glu(*activation, self.get(*gate), self.get(*up));
                self.set(*out, y);
            }
            Op::Add { a, b, out } => {
                let y = self.get(*a).iter().zip(self.get(*b)).map(|(a, b)| a + b).collect();
                self.set(*out, y);
            }
            Op::Scale { x, factor, out } => {
                let y = self.get(*x).iter().map(|x| x * factor).collect();
                self.set(*out, y);
            }
            Op::SelectRows { x, out } => {
                let width = self.program.graph.value(*x).width;
                let x = self.get(*x);
                let rows = self.batch.output_rows.iter();
                let y = rows.flat_map(|row| x[row * width..][..width].to_vec()).collect();
                self.set(*out, y);
            }
            Op::Route { logits, used, out } => {
                let experts = self.program.graph.value(*logits).width;
                let rows = self.get(*logits).chunks_exact(experts);
                let y = rows.flat_map(|logits| route(logits, *used)).collect();
                self.set(*out, y);
            }
            Op::ExpertMatMul { x, route, weights: experts, out } => {
                let used = self.program.graph.value(*route).width / 2;
                let columns = weights[experts[0].index()].columns();
                let x_width = self.program.graph.value(*x).width;
                let routes = self.get(*route).chunks_exact(2 * used);
                let mut y = Vec::new();
                for (x, route) in self.get(*x).chunks_exact(x_width).zip(routes) {
                    for (slot, expert) in route[..used].iter().enumerate() {
                        let x =
                            &x[if x_width == columns { 0 } else { slot * columns }..][..columns];
                        y.extend(matmul(x, &weights[experts[*expert as usize].index()]));
                    }
                }
                self.set(*out, y);
            }
            Op::CombineExperts { x, route, out } => {
                let used = self.program.graph.value(*route).width / 2;
                let width = self.program.graph.value(*out).width;
                let routes = self.get(*route).chunks_exact(2 * used);
                let rows = self.get(*x).chunks_exact(used * width).zip(routes);
                let y = rows.flat_map(|(x, route)| combine_experts(x, &route[used..])).collect();
                self.set(*out, y);
            }
            Op::RopeAppend { q, k, v, qk_norm, rope, layer, q_out } => {
                let normalised = |x: ValueId, weight: Option<WeightId>| match (weight, qk_norm) {
                    (Some(weight), Some(norm)) => {
                        rms_norm(self.get(x), &weights[weight.index()].row_f32(0), norm.eps)
                    }
                    _ => self.get(x).to_vec(),
                };
                let q = self.rotated(normalised(*q, qk_norm.map(|norm| norm.q)), rope);
                let k = self.rotated(normalised(*k, qk_norm.map(|norm| norm.k)), rope);
                let v = self.get(*v).to_vec();
                self.cache.append(*layer, self.batch, &k, &v);
                self.set(*q_out, q);
            }
        }
    }

    /// Every head of every token turned to its position.
    fn rotated(&self, mut y: Vec<f32>, frequencies: &Rope) -> Vec<f32> {
        let width = y.len() / self.batch.ids.len();
        for span in self.batch.spans {
            for (i, token) in span.tokens.clone().enumerate() {
                rope(&mut y[token * width..][..width], frequencies, span.past_tokens + i);
            }
        }
        y
    }

    fn get(&self, id: ValueId) -> &[f32] {
        &self.values[id.index()]
    }

    fn set(&mut self, id: ValueId, x: Vec<f32>) {
        let value = self.program.graph.value(id);
        debug_assert_eq!(x.len(), rows(self.batch, value.rows) * value.width);
        self.values[id.index()] = x;
    }
}

/// Rows that a value has in a batch.
fn rows(batch: &Batch<'_>, kind: RowKind) -> usize {
    match kind {
        RowKind::Token => batch.ids.len(),
        RowKind::Output => batch.output_rows.len(),
    }
}
