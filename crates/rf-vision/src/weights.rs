//! Tensors of a projector file as weights of a graph.

use std::collections::HashSet;
use std::sync::Arc;

use rf_gguf::{Gguf, Metadata, TensorData, TensorInfo};
use rf_graph::layer::{Clamps, LayerSpec, LayerWeights, Role, RoleShape};
use rf_graph::{DType, GraphBuilder, Weight, WeightBytes, WeightId};

use crate::error::Error;
use crate::modality::Modality;

/// The weights of a projector, and the graph that they are registered in.
pub(crate) struct ProjectorWeights<'a> {
    gguf: &'a Gguf,
    modality: Modality,
    pub(crate) graph: GraphBuilder,
    /// The names of the current layer's tensors begin so.
    layer: String,
    /// Names of the tensors that were looked up.
    used: HashSet<String>,
    constants: Vec<(usize, f32, WeightId)>,
    /// The order in which the rows of each head of queries and keys are read.
    head_order: Option<Vec<usize>>,
}

struct Mapped(TensorData);

impl WeightBytes for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn release(&self) {
        self.0.release();
    }
}

impl<'a> ProjectorWeights<'a> {
    pub(crate) fn new(gguf: &'a Gguf, modality: Modality) -> Self {
        Self {
            gguf,
            modality,
            graph: GraphBuilder::new(),
            layer: String::new(),
            used: HashSet::new(),
            constants: Vec::new(),
            head_order: None,
        }
    }

    /// Turns to the layer whose tensors have this prefix.
    pub(crate) fn enter(&mut self, prefix: String) {
        self.layer = prefix;
    }

    /// The names of the encoder's tensors begin so.
    pub(crate) fn prefix(&self) -> &'static str {
        self.modality.prefix()
    }

    /// Reads row `order[i]` of each head of queries and keys as row `i`. Scores do not depend on
    /// the order, but the pairs of RoPE do.
    pub(crate) fn order_heads(&mut self, order: Vec<usize>) {
        self.head_order = Some(order);
    }

    /// The metadata of the file.
    pub(crate) fn metadata(&self) -> &'a Metadata {
        self.gguf.metadata()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// The length of an axis of a required tensor, contiguous axis first.
    pub(crate) fn axis(&self, name: &str, axis: usize) -> Result<usize, Error> {
        let tensor = self.gguf.required_tensor(name)?;
        Ok(tensor.shape().get(axis).map_or(1, |n| *n as usize))
    }

    /// Names of the first tensors of the encoder that were not looked up.
    pub(crate) fn unused(&self) -> Vec<String> {
        const SHOWN: usize = 4;
        let names = self.gguf.tensors().iter().map(TensorInfo::name);
        let unused = names.filter(|name| self.modality.owns(name) && !self.used.contains(*name));
        unused.take(SHOWN).map(str::to_owned).collect()
    }

    /// A required matrix; leading axes of the file's tensor count as one.
    pub(crate) fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<WeightId, Error> {
        let weight = self.read(name, rows, columns)?;
        Ok(self.graph.weight(weight))
    }

    /// A required vector, whose values are finite.
    pub(crate) fn vector(&mut self, name: &str, len: usize) -> Result<WeightId, Error> {
        let weight = self.read(name, 1, len)?;
        check_finite(name, &weight.row_f32(0))?;
        Ok(self.graph.weight(weight))
    }

    pub(crate) fn optional_vector(
        &mut self,
        name: &str,
        len: usize,
    ) -> Result<Option<WeightId>, Error> {
        self.has(name).then(|| self.vector(name, len)).transpose()
    }

    /// The finite values of a required tensor `[rows, columns]`, on the host.
    pub(crate) fn values(
        &mut self,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<Vec<f32>, Error> {
        let weight = self.read(name, rows, columns)?;
        let values: Vec<f32> = (0..rows).flat_map(|row| weight.row_f32(row)).collect();
        check_finite(name, &values)?;
        Ok(values)
    }

    /// A required matrix `[rows, columns]` of which the file has the transpose.
    pub(crate) fn transposed(
        &mut self,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<WeightId, Error> {
        let stored = self.read(name, columns, rows)?;
        let dtype = match stored.dtype() {
            dtype @ (DType::F32 | DType::Bf16) => dtype,
            _ => DType::F16,
        };
        let mut values = vec![0.0; rows * columns];
        for column in 0..columns {
            for (row, value) in stored.row_f32(column).into_iter().enumerate() {
                values[row * columns + column] = value;
            }
        }
        let bytes = rf_quant::quantize_to_vec(dtype, &values).expect("floats have no blocks");
        let weight = Weight::new(name, dtype, rows, columns, Arc::new(bytes));
        Ok(self.graph.weight(weight.expect("the same elements")))
    }

    /// The bounds of the input and the output of a matrix.
    pub(crate) fn clamps_of(&mut self, stem: &str) -> Result<Clamps, Error> {
        let mut bounds = |side: &str| -> Result<Option<[f32; 2]>, Error> {
            let [min, max] = ["min", "max"].map(|end| format!("{stem}.{side}_{end}"));
            if !self.has(&min) && !self.has(&max) {
                return Ok(None);
            }
            // An end may be infinite: no bound.
            let mut read = |name: &str| Ok::<_, Error>(self.read(name, 1, 1)?.row_f32(0)[0]);
            let bounds = [read(&min)?, read(&max)?];
            if bounds[0] <= bounds[1] { Ok(Some(bounds)) } else { Err(not_finite(&min)) }
        };
        Ok(Clamps { input: bounds("input")?, output: bounds("output")? })
    }

    fn read(&mut self, name: &str, rows: usize, columns: usize) -> Result<Weight, Error> {
        self.used.insert(name.to_owned());
        let tensor = self.gguf.required_tensor(name)?;
        let expected = [columns as u64, rows as u64];
        let shape_error = || Error::Shape {
            name: name.to_owned(),
            found: tensor.shape().to_vec(),
            expected: expected.to_vec(),
        };
        // Some prefix of the axes is a row, the others are the rows.
        let shape = tensor.shape();
        let product = |axes: &[u64]| axes.iter().try_fold(1_u64, |all, n| all.checked_mul(*n));
        let is_matrix = |axes| {
            let (row, others) = shape.split_at(axes);
            [product(row), product(others)] == expected.map(Some)
        };
        if !(0..=shape.len()).any(is_matrix) {
            return Err(shape_error());
        }
        let data = Arc::new(Mapped(self.gguf.data(tensor)));
        Weight::new(name, tensor.dtype()?, rows, columns, data).ok_or_else(shape_error)
    }

    /// The tensor of a role of the current layer without `.weight` or `.bias`, and its first row
    /// there; `None` if layers have none.
    fn place(&self, spec: &LayerSpec, role: Role) -> Option<(String, usize, usize)> {
        let rows = |role: Role| role.shape(spec).rows();
        let stem = match role {
            Role::AttentionNorm => "ln1",
            Role::Query => "attn_q",
            Role::Key => "attn_k",
            Role::Value => "attn_v",
            Role::QueryNorm => "attn_q_norm",
            Role::KeyNorm => "attn_k_norm",
            Role::AttentionOutput => "attn_out",
            Role::AttentionScale => "ls1",
            Role::PostAttentionNorm => "attn_post_norm",
            Role::FeedForwardNorm => "ln2",
            Role::Gate => "ffn_gate",
            Role::Up if self.swaps_matrices(spec) => "ffn_down",
            Role::Down if self.swaps_matrices(spec) => "ffn_up",
            Role::Up => "ffn_up",
            Role::Down => "ffn_down",
            Role::PostFeedForwardNorm => "ffn_post_norm",
            Role::FeedForwardScale => "ls2",
            Role::OutputScale => "out_scale",
            _ => return None,
        };
        let all = rows(role);
        let name = format!("{}.{stem}", self.layer);
        if matches!(role, Role::Query | Role::Key | Role::Value) {
            let fused = format!("{}.attn_qkv", self.layer);
            if self.has(&format!("{fused}.weight")) {
                let (q, kv) = (rows(Role::Query), rows(Role::Key));
                let first = match role {
                    Role::Query => 0,
                    Role::Key => q,
                    _ => q + kv,
                };
                return Some((fused, first, q + 2 * kv));
            }
        }
        Some((name, 0, all))
    }

    /// True in files of old converters, which exchanged the names of the two matrices.
    fn swaps_matrices(&self, spec: &LayerSpec) -> bool {
        let columns = self.axis(&format!("{}.ffn_down.weight", self.layer), 0);
        let inner = spec.dense.map_or(0, |dense| dense.intermediate_size);
        inner != spec.hidden_size && columns.is_ok_and(|columns| columns == spec.hidden_size)
    }

    /// Some rows of a tensor, in the order of heads where that matters.
    fn rows(
        &mut self,
        spec: &LayerSpec,
        role: Role,
        name: &str,
        (first, rows, all): (usize, usize, usize),
        columns: usize,
    ) -> Result<Weight, Error> {
        let whole = self.read(name, all, columns)?;
        let is_rotated = matches!(role, Role::Query | Role::Key);
        let order = self.head_order.as_ref().filter(|_| is_rotated);
        if first == 0 && rows == all && order.is_none() {
            return Ok(whole);
        }
        let head_dim = spec.attention().map_or(1, |attention| attention.head_dim);
        let place =
            |row: usize| order.map_or(row, |order| row - row % head_dim + order[row % head_dim]);
        let bytes: Vec<u8> = if order.is_none() {
            whole.rows_bytes(first..first + rows).into_owned()
        } else {
            (0..rows).flat_map(|row| whole.row(first + place(row)).to_vec()).collect()
        };
        let part = Weight::new(name, whole.dtype(), rows, columns, Arc::new(bytes));
        Ok(part.expect("whole rows"))
    }
}

impl LayerWeights for ProjectorWeights<'_> {
    type Error = Error;

    fn graph(&mut self) -> &mut GraphBuilder {
        &mut self.graph
    }

    fn weight(&mut self, spec: &LayerSpec, role: Role) -> Result<Option<WeightId>, Error> {
        let Some((stem, first, all)) = self.place(spec, role) else { return Ok(None) };
        let name = format!("{stem}.weight");
        match role.shape(spec) {
            RoleShape::Vector(len) => {
                if !self.has(&name) && is_optional(role) {
                    return Ok(None);
                }
                match (&self.head_order, role) {
                    (Some(order), Role::QueryNorm | Role::KeyNorm) => {
                        let order = order.clone();
                        let values = self.values(&name, 1, len)?;
                        let values: Vec<f32> = order.iter().map(|i| values[*i]).collect();
                        Ok(Some(self.graph.weight(Weight::f32(name, 1, len, values))))
                    }
                    _ => self.vector(&name, len).map(Some),
                }
            }
            RoleShape::Matrix([rows, columns]) => {
                let part = (first, rows, all);
                let weight = self.rows(spec, role, &name, part, columns)?;
                Ok(Some(self.graph.weight(weight)))
            }
            RoleShape::Experts(_) => unreachable!("an encoder has no experts"),
        }
    }

    fn bias(&mut self, spec: &LayerSpec, role: Role) -> Result<Option<WeightId>, Error> {
        let Some((stem, first, all)) = self.place(spec, role) else { return Ok(None) };
        let name = format!("{stem}.bias");
        if !self.has(&name) {
            return Ok(None);
        }
        match role.shape(spec) {
            RoleShape::Vector(len) => self.vector(&name, len).map(Some),
            shape => {
                let rows = shape.rows();
                // A bias has an element for each row of the matrix.
                let values = {
                    let weight = self.rows(spec, role, &name, (first, rows, all), 1)?;
                    (0..rows).flat_map(|row| weight.row_f32(row)).collect::<Vec<f32>>()
                };
                check_finite(&name, &values)?;
                Ok(Some(self.graph.weight(Weight::f32(name, 1, rows, values))))
            }
        }
    }

    fn clamps(&mut self, spec: &LayerSpec, role: Role) -> Result<Clamps, Error> {
        match self.place(spec, role) {
            Some((stem, ..)) => self.clamps_of(&stem),
            None => Ok(Clamps::default()),
        }
    }

    fn experts(&mut self, _spec: &LayerSpec, role: Role) -> Result<Vec<WeightId>, Error> {
        unreachable!("an encoder has no {role:?}")
    }

    fn constant(&mut self, len: usize, value: f32) -> WeightId {
        let known = self.constants.iter().find(|(l, v, _)| (*l, *v) == (len, value));
        if let Some((_, _, id)) = known {
            return *id;
        }
        let id = self.graph.weight(Weight::f32("constant", 1, len, vec![value; len]));
        self.constants.push((len, value, id));
        id
    }
}

fn is_optional(role: Role) -> bool {
    !matches!(role, Role::AttentionNorm | Role::FeedForwardNorm | Role::QueryNorm | Role::KeyNorm)
}

fn check_finite(name: &str, values: &[f32]) -> Result<(), Error> {
    if values.iter().all(|value| value.is_finite()) { Ok(()) } else { Err(not_finite(name)) }
}

fn not_finite(name: &str) -> Error {
    Error::NotFinite { name: name.to_owned() }
}
