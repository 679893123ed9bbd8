//! The weights of a model: tables of names, and lookups by role in a file.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use rf_gguf::{Gguf, TensorData};
use rf_graph::layer::{LayerSpec, LayerWeights, Role, RoleShape};
use rf_graph::{DType, GraphBuilder, LowRank, ValueId, Weight, WeightBytes, WeightId};

use crate::adapter::{AdapterSet, EMBEDDING, Update};
use crate::error::Error;

/// A weight of every layer of a family. Its shape is [`Role::shape`]. A table may have several rows
/// of a role, for the names that it has in different files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WeightRow {
    pub(crate) role: Role,
    /// The tensor is `blk.N.{stem}.{suffix}`.
    stem: &'static str,
    suffix: &'static str,
    is_optional: bool,
    /// The weight is not in the file: it is a vector of ones.
    is_ones: bool,
    bias: Bias,
    /// Roles whose matrices form one tensor, rows after rows.
    fused: &'static [Role],
    /// The stems of further tensors of a convolution, whose columns follow those of the first one.
    further: &'static [&'static str],
}

/// The weights of the layers of a family, in parts that families share.
pub(crate) type WeightTable = &'static [&'static [WeightRow]];

/// True if a weight has a bias, `blk.N.{stem}.bias`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bias {
    Never,
    Optional,
    Required,
}

/// A row of a weight table: a required weight without bias.
pub(crate) const fn row(role: Role, stem: &'static str) -> WeightRow {
    WeightRow {
        role,
        stem,
        suffix: "weight",
        is_optional: false,
        is_ones: false,
        bias: Bias::Never,
        fused: &[],
        further: &[],
    }
}

/// The row of a norm without a weight.
pub(crate) const fn unweighted(role: Role) -> WeightRow {
    WeightRow { is_ones: true, ..row(role, "") }
}

impl WeightRow {
    /// Files may lack the weight.
    pub(crate) const fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    /// The weight has a bias.
    pub(crate) const fn with_bias(mut self) -> Self {
        self.bias = Bias::Required;
        self
    }

    /// Files may have a bias.
    pub(crate) const fn with_optional_bias(mut self) -> Self {
        self.bias = Bias::Optional;
        self
    }

    /// The tensor holds the matrices of these roles, rows after rows; the row's own is among them.
    pub(crate) const fn part_of(mut self, fused: &'static [Role]) -> Self {
        self.fused = fused;
        self
    }

    /// The filter of a convolution is in several tensors, columns after columns, with as many
    /// columns each.
    pub(crate) const fn followed_by(mut self, stems: &'static [&'static str]) -> Self {
        self.further = stems;
        self
    }

    /// The last part of the tensor's name, otherwise `weight`; nothing if empty.
    pub(crate) const fn suffix(mut self, suffix: &'static str) -> Self {
        self.suffix = suffix;
        self
    }

    /// The name of the tensor of a layer.
    pub(crate) fn tensor(&self, layer: usize) -> String {
        match self.suffix {
            "" => format!("blk.{layer}.{}", self.stem),
            suffix => format!("blk.{layer}.{}.{suffix}", self.stem),
        }
    }

    fn bias_tensor(&self, layer: usize) -> String {
        format!("blk.{layer}.{}.bias", self.stem)
    }

    /// The first of the row's rows in the tensor, and the rows of the whole tensor.
    fn rows(&self, spec: &LayerSpec) -> (usize, usize) {
        let rows = |roles: &[Role]| roles.iter().map(|role| role.shape(spec).rows()).sum();
        match self.fused.iter().position(|role| *role == self.role) {
            Some(index) => (rows(&self.fused[..index]), rows(self.fused)),
            None => (0, self.role.shape(spec).rows()),
        }
    }
}

/// Tensors of a file, as weights of a graph.
pub(crate) struct FileWeights<'a> {
    gguf: &'a Gguf,
    table: WeightTable,
    pub(crate) graph: GraphBuilder,
    layer: usize,
    /// Vectors of equal values: their lengths and values.
    constants: Vec<(usize, f32, WeightId)>,
    /// Names of the tensors that were looked up.
    used: HashSet<String>,
    /// The adapters, and the input with their factors.
    adapters: Option<(&'a AdapterSet, ValueId)>,
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

impl LayerWeights for FileWeights<'_> {
    type Error = Error;

    fn graph(&mut self) -> &mut GraphBuilder {
        &mut self.graph
    }

    fn weight(&mut self, spec: &LayerSpec, role: Role) -> Result<Option<WeightId>, Error> {
        let Some(row) = self.row(role) else { return Ok(None) };
        let name = row.tensor(self.layer);
        if row.is_optional && self.gguf.tensor(&name).is_none() {
            return Ok(None);
        }
        match role.shape(spec) {
            RoleShape::Vector(len) if row.is_ones => Ok(Some(self.constant(len, 1.0))),
            RoleShape::Vector(len) => self.vector(&name, len).map(Some),
            RoleShape::Matrix([taps, width]) if matches!(role, Role::ConvFilter | Role::Decay) => {
                let further = row.further.iter().map(|stem| WeightRow { stem, ..row });
                let further = further.map(|row| row.tensor(self.layer));
                let names: Vec<_> = std::iter::once(name).chain(further).collect();
                self.transposed(&names, [taps, width]).map(Some)
            }
            RoleShape::Matrix([rows, columns]) => {
                let (first, all) = row.rows(spec);
                let tensor = self.tensor(&name, &[columns, all])?;
                let bytes = tensor.rows(first, rows, all);
                let weight = self.weight_of(&name, tensor.dtype, [rows, columns], bytes)?;
                if matches!(role, Role::MixerNorm | Role::QueryNorm | Role::KeyNorm) {
                    (0..rows).try_for_each(|row| check_finite(&name, &weight.row_f32(row)))?;
                }
                let id = self.graph.weight(weight);
                self.adapt(&name, &[id], first..first + rows);
                Ok(Some(id))
            }
            RoleShape::Experts(_) => unreachable!("{role:?} is a stack of matrices"),
        }
    }

    fn bias(&mut self, spec: &LayerSpec, role: Role) -> Result<Option<WeightId>, Error> {
        let Some(row) = self.row(role) else { return Ok(None) };
        let name = row.bias_tensor(self.layer);
        let is_missing = || self.gguf.tensor(&name).is_none();
        if row.bias == Bias::Never || (row.bias == Bias::Optional && is_missing()) {
            return Ok(None);
        }
        match role.shape(spec) {
            RoleShape::Vector(len) => self.vector(&name, len).map(Some),
            RoleShape::Matrix([rows, _]) => {
                let (first, all) = row.rows(spec);
                let tensor = self.tensor(&name, &[all])?;
                let bytes = tensor.rows(first, rows, all);
                let bias = self.weight_of(&name, tensor.dtype, [1, rows], bytes)?;
                check_finite(&name, &bias.row_f32(0))?;
                Ok(Some(self.graph.weight(bias)))
            }
            RoleShape::Experts([count, rows, _]) => self.matrix(&name, count, rows).map(Some),
        }
    }

    fn scale(&mut self, _spec: &LayerSpec, role: Role) -> Result<Option<f32>, Error> {
        let Some(row) = self.row(role) else { return Ok(None) };
        let name = format!("blk.{}.{}.scale", self.layer, row.stem);
        // Gemma 4 has weights of these names: the norm before its router, and factors of experts.
        if self.table.iter().copied().flatten().any(|row| row.tensor(self.layer) == name) {
            return Ok(None);
        }
        let Some(values) = values(self.gguf, &name, 1)? else { return Ok(None) };
        check_finite(&name, &values)?;
        self.used.insert(name);
        Ok(values.first().copied())
    }

    fn experts(&mut self, spec: &LayerSpec, role: Role) -> Result<Vec<WeightId>, Error> {
        let row = self.row(role).unwrap_or_else(|| panic!("the weight table has no {role:?}"));
        let name = row.tensor(self.layer);
        let RoleShape::Experts([count, rows, columns]) = role.shape(spec) else {
            unreachable!("{role:?} is one matrix")
        };
        if let (Role::LatentKey | Role::LatentValue, [_, ..]) = (role, row.fused) {
            return self.heads(spec, role, &name);
        }
        let (first, all) = row.rows(spec);
        let tensor = self.tensor(&name, &[columns, all, count])?;
        let matrix = |expert: usize| {
            let bytes = tensor.rows(expert * all + first, rows, count * all);
            let name = format!("{name}[{expert}]");
            self.register(&name, tensor.dtype, [rows, columns], bytes)
        };
        let weights = (0..count).map(matrix).collect::<Result<Vec<_>, _>>()?;
        // Matrices of heads and those that several experts share have ops of other forms.
        if matches!(role, Role::ExpertGate | Role::ExpertUp | Role::ExpertDown) {
            self.adapt(&name, &weights, first..first + rows);
        }
        Ok(weights)
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

impl<'a> FileWeights<'a> {
    /// `used` names tensors that were read before.
    pub(crate) fn new(
        gguf: &'a Gguf,
        table: WeightTable,
        used: &[String],
        adapters: &'a AdapterSet,
    ) -> Self {
        let mut graph = GraphBuilder::new();
        let scales = |graph: &mut GraphBuilder| graph.input(adapters.input_width());
        let adapters = (!adapters.is_empty()).then(|| (adapters, scales(&mut graph)));
        Self {
            gguf,
            table,
            graph,
            layer: 0,
            constants: Vec::new(),
            used: used.iter().cloned().collect(),
            adapters,
        }
    }

    /// Gives the matrices of a tensor, or of some of its rows, the update of the adapters.
    fn adapt(&mut self, name: &str, weights: &[WeightId], rows: Range<usize>) {
        let Some((update, scales)) = self.update(name) else { return };
        let b = (0..update.b.len()).map(|matrix| update.rows_of_b(matrix, rows.clone()));
        // Others than the experts of the tensor: the build ends with the tensor's name.
        let Some(b) = b.collect::<Option<Vec<_>>>().filter(|b| b.len() == weights.len()) else {
            return;
        };
        let mut register =
            |all: Vec<Weight>| all.into_iter().map(|weight| self.graph.weight(weight)).collect();
        let (a, b) = (register(update.a.clone()), register(b));
        self.graph.update(weights[0], LowRank { a, b, scales });
    }

    /// The embedding of the tokens, `x`, with the update of its table.
    pub(crate) fn adapted_embedding(&mut self, x: ValueId, scale: f32) -> ValueId {
        let Some((update, scales)) = self.update(EMBEDDING) else { return x };
        let [a, b] = [&update.a, &update.b].map(|all| self.graph.weight(all[0].clone()));
        let latent = self.graph.embed(a, scale);
        let latent = self.graph.mul(latent, scales);
        let update = self.graph.matmul(latent, b);
        self.graph.add(x, update)
    }

    /// The update of a tensor, and its factors.
    fn update(&mut self, name: &str) -> Option<(&'a Update, ValueId)> {
        let (adapters, scales) = self.adapters?;
        let update = adapters.update(name)?;
        let all = 0..adapters.input_width();
        let is_all = update.columns == all;
        let own = |graph: &mut GraphBuilder| graph.slice(scales, update.columns.clone());
        Some((update, if is_all { scales } else { own(&mut self.graph) }))
    }

    /// Names of the tensors that were not looked up, except those of blocks from `num_layers` to
    /// `num_blocks`, which predict further tokens.
    pub(crate) fn unused(&self, num_layers: usize, num_blocks: usize) -> Vec<String> {
        let is_ignored = |name: &str| {
            let predicts = |block: &str| {
                block.parse().is_ok_and(|block: usize| (num_layers..num_blocks).contains(&block))
            };
            name.ends_with(ACTIVATION_SCALE)
                || block_of(name)
                    .is_some_and(|(block, rest)| predicts(block) || rest == REPEATED_FREQUENCIES)
        };
        let names = self.gguf.tensors().iter().map(rf_gguf::TensorInfo::name);
        let unused = names.filter(|name| !self.used.contains(*name) && !is_ignored(name));
        unused.map(str::to_owned).collect()
    }

    /// Turns to another layer.
    pub(crate) fn enter(&mut self, layer: usize) {
        self.layer = layer;
    }

    /// The row of a role. Of several, the first one whose tensor the file has.
    fn row(&self, role: Role) -> Option<WeightRow> {
        let mut rows = self.table.iter().copied().flatten().filter(|row| row.role == role);
        let exists = |row: &&WeightRow| self.has(&row.tensor(self.layer));
        rows.clone().find(exists).or_else(|| rows.next()).copied()
    }

    /// Returns true if the file has a tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// A required matrix.
    pub(crate) fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<WeightId, Error> {
        let tensor = self.tensor(name, &[columns, rows])?;
        let id = self.register(name, tensor.dtype, [rows, columns], tensor.data)?;
        // The table of the embedding has an update of another form, which the output matrix that is
        // the same tensor does not share.
        if name != EMBEDDING {
            self.adapt(name, &[id], 0..rows);
        }
        Ok(id)
    }

    /// A stack of `count` square matrices.
    pub(crate) fn squares(
        &mut self,
        name: &str,
        count: usize,
        rows: usize,
    ) -> Result<Vec<WeightId>, Error> {
        let tensor = self.tensor(name, &[rows, rows, count])?;
        let matrix = |i: usize| {
            let bytes = tensor.rows(i * rows, rows, count * rows);
            self.register(&format!("{name}[{i}]"), tensor.dtype, [rows, rows], bytes)
        };
        (0..count).map(matrix).collect()
    }

    /// The first row of a required matrix of any number of rows.
    pub(crate) fn first_row(&mut self, name: &str, columns: usize) -> Result<WeightId, Error> {
        let rows = self.rows(name);
        let tensor = self.tensor(name, &[columns, rows])?;
        let bytes = tensor.rows(0, 1, rows);
        self.register(name, tensor.dtype, [1, columns], bytes)
    }

    /// Rows of a matrix; 1 if the file lacks it.
    pub(crate) fn rows(&self, name: &str) -> usize {
        let rows = self.gguf.tensor(name).and_then(|tensor| tensor.shape().get(1).copied());
        rows.and_then(|rows| usize::try_from(rows).ok()).unwrap_or(1)
    }

    /// A required vector, whose values are finite: one value that is not would spoil all results,
    /// and activations rounded to integers could hide it.
    pub(crate) fn vector(&mut self, name: &str, len: usize) -> Result<WeightId, Error> {
        let Tensor { data, dtype } = self.tensor(name, &[len])?;
        let weight = self.weight_of(name, dtype, [1, len], data)?;
        check_finite(name, &weight.row_f32(0))?;
        Ok(self.graph.weight(weight))
    }

    /// The matrices of the heads of latent attention, from a tensor that has those of a head one
    /// after the other, both with the columns of the latent.
    fn heads(&mut self, spec: &LayerSpec, role: Role, name: &str) -> Result<Vec<WeightId>, Error> {
        let (RoleShape::Experts([count, latent, keys]), RoleShape::Experts([_, values, _])) =
            (Role::LatentKey.shape(spec), Role::LatentValue.shape(spec))
        else {
            unreachable!("each head has a matrix")
        };
        let all = count * (keys + values);
        let tensor = self.tensor(name, &[latent, all])?;
        (0..count)
            .map(|head| {
                let first = head * (keys + values);
                let name = format!("{name}[{head}]");
                if role == Role::LatentValue {
                    let bytes = tensor.rows(first + keys, values, all);
                    return self.register(&name, tensor.dtype, [values, latent], bytes);
                }
                let bytes = tensor.rows(first, keys, all);
                let weight = self.weight_of(&name, tensor.dtype, [keys, latent], bytes)?;
                Ok(self.graph.weight(transposed(&weight)))
            })
            .collect()
    }

    /// A small matrix of finite values `[rows, columns]`, of which the file has the transpose: in
    /// one tensor, or an equal number of columns in each of several.
    fn transposed(
        &mut self,
        names: &[String],
        [rows, columns]: [usize; 2],
    ) -> Result<WeightId, Error> {
        let part = columns / names.len();
        let mut stored = Vec::with_capacity(rows * columns);
        for name in names {
            let Tensor { data, dtype } = self.tensor(name, &[rows, part])?;
            let weight = self.weight_of(name, dtype, [part, rows], data)?;
            stored.extend((0..part).flat_map(|row| weight.row_f32(row)));
            check_finite(name, &stored)?;
        }
        let values: Vec<f32> =
            (0..rows).flat_map(|row| stored[row..].iter().step_by(rows).copied()).collect();
        Ok(self.graph.weight(Weight::f32(&names[0], rows, columns, values)))
    }

    /// An optional vector.
    pub(crate) fn optional_vector(
        &mut self,
        name: &str,
        len: usize,
    ) -> Result<Option<WeightId>, Error> {
        self.has(name).then(|| self.vector(name, len)).transpose()
    }

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, Error> {
        self.used.insert(name.to_owned());
        tensor(self.gguf, name, shape)
    }

    fn register(
        &mut self,
        name: &str,
        dtype: DType,
        [rows, columns]: [usize; 2],
        data: TensorData,
    ) -> Result<WeightId, Error> {
        let weight = self.weight_of(name, dtype, [rows, columns], data)?;
        Ok(self.graph.weight(weight))
    }

    fn weight_of(
        &self,
        name: &str,
        dtype: DType,
        [rows, columns]: [usize; 2],
        data: TensorData,
    ) -> Result<Weight, Error> {
        let weight = Weight::new(name, dtype, rows, columns, Arc::new(Mapped(data)));
        weight.ok_or_else(|| shape_error(self.gguf, name, &[columns, rows]))
    }
}

/// Returns true if a tensor belongs to a block after the first `num_blocks`.
pub(crate) fn is_of_later_block(name: &str, num_blocks: usize) -> bool {
    block_of(name).is_some_and(|(block, _)| block.parse().is_ok_and(|n: usize| n >= num_blocks))
}

/// The number of the block of a tensor, and the rest of its name.
fn block_of(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("blk.").and_then(|name| name.split_once('.'))
}

/// The transpose of a matrix. The blocks of quantised formats lie along rows, so they become f16.
fn transposed(weight: &Weight) -> Weight {
    let dtype = match weight.dtype() {
        dtype @ (DType::F32 | DType::Bf16) => dtype,
        _ => DType::F16,
    };
    let (rows, columns) = (weight.rows(), weight.columns());
    let mut values = vec![0.0; rows * columns];
    for row in 0..rows {
        for (column, value) in weight.row_f32(row).into_iter().enumerate() {
            values[column * rows + row] = value;
        }
    }
    let bytes = rf_quant::quantize_to_vec(dtype, &values).expect("floats have no blocks");
    Weight::new(weight.name(), dtype, columns, rows, Arc::new(bytes)).expect("the same elements")
}

/// A tensor of old Llama files, which repeats the metadata.
const REPEATED_FREQUENCIES: &str = "attn_rot_embd.weight";

/// The end of the names of factors of NVFP4 files, for activations that are rounded to four bits.
/// Matmuls here do not round them so far.
const ACTIVATION_SCALE: &str = ".input_scale";

/// Bytes and type of a tensor whose shape was checked.
struct Tensor {
    data: TensorData,
    dtype: DType,
}

impl Tensor {
    /// The bytes of some of its rows; `all` is the number of rows of the tensor.
    fn rows(&self, first: usize, rows: usize, all: usize) -> TensorData {
        let row_bytes = self.data.len() / all.max(1);
        let bytes = first * row_bytes..(first + rows) * row_bytes;
        self.data.slice(bytes).unwrap_or_else(|| self.data.clone())
    }
}

/// A required tensor, whose shape is checked (contiguous axis first).
fn tensor(gguf: &Gguf, name: &str, shape: &[usize]) -> Result<Tensor, Error> {
    let tensor = gguf.required_tensor(name)?;
    // Axes of length 1 are ignored.
    let found = tensor.shape().iter().copied().filter(|n| *n != 1);
    if !found.eq(shape.iter().map(|n| *n as u64).filter(|n| *n != 1)) {
        return Err(shape_error(gguf, name, shape));
    }
    Ok(Tensor { data: gguf.data(tensor), dtype: tensor.dtype()? })
}

/// The values of a small optional tensor.
pub(crate) fn values(gguf: &Gguf, name: &str, len: usize) -> Result<Option<Vec<f32>>, Error> {
    if gguf.tensor(name).is_none() {
        return Ok(None);
    }
    let Tensor { data, dtype } = tensor(gguf, name, &[len])?;
    let weight = Weight::new(name, dtype, 1, len, Arc::new(Mapped(data)));
    Ok(Some(weight.ok_or_else(|| shape_error(gguf, name, &[len]))?.row_f32(0)))
}

/// Checks that every value is a finite number.
pub(crate) fn check_finite(name: &str, values: &[f32]) -> Result<(), Error> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(Error::NotFinite { name: name.into(), index, value: values[index] }),
        None => Ok(()),
    }
}

fn shape_error(gguf: &Gguf, name: &str, expected: &[usize]) -> Error {
    Error::Shape {
        name: name.into(),
        found: gguf.tensor(name).map(|t| t.shape().to_vec()).unwrap_or_default(),
        expected: expected.iter().map(|n| *n as u64).collect(),
    }
}
