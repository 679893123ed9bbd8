//! Several adapters of a model, side by side.

use std::collections::{BTreeMap, HashSet};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use rf_gguf::{Gguf, TensorInfo};
use rf_graph::{DType, Graph, Operand, Weight};

use super::{Adapter, AdapterError, EMBEDDING, MATRICES, axis, values};
use crate::control_vector::{self, ControlVector};

/// The adapters that are loaded with a model.
///
/// The ranks of all adapters of a tensor lie side by side. A program has one more input, a row of
/// factors per token ([`input_row`](Self::input_row)): which adapters change it, and how much.
#[derive(Clone, Debug, Default)]
pub struct AdapterSet {
    adapters: Vec<Adapter>,
    columns: Vec<Column>,
    /// The updates by the name of the tensor.
    updates: BTreeMap<String, Update>,
    /// The sum of the control vectors after each layer.
    directions: BTreeMap<usize, Vec<f32>>,
}

/// A column of the input: a rank of an adapter.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Column {
    adapter: usize,
    rank: usize,
    /// True if rows of media have no such update: they do not pass the embedding table.
    is_of_tokens: bool,
}

/// The update of a tensor by all adapters that change it.
#[derive(Clone, Debug)]
pub(crate) struct Update {
    /// `[ranks, columns]`, per expert where there are several.
    pub(crate) a: Vec<Weight>,
    /// `[rows of the tensor, ranks]`, as many.
    pub(crate) b: Vec<Weight>,
    /// The columns of the input with the factors.
    pub(crate) columns: Range<usize>,
}

impl AdapterSet {
    /// Adapters of the model in `base`.
    ///
    /// # Errors
    ///
    /// If an adapter is for another architecture, or for tensors that the model does not have or
    /// that have other shapes; or if a value is not finite.
    pub fn new(adapters: Vec<Adapter>, base: &Gguf) -> Result<Self, AdapterError> {
        let mut names: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, adapter) in adapters.iter().enumerate() {
            adapter.check_architecture(base)?;
            for tensor in adapter.ranks.keys() {
                names.entry(tensor).or_default().push(index);
            }
        }
        let (mut columns, mut updates) = (Vec::new(), BTreeMap::new());
        for (name, members) in names {
            let shape = |index: &usize| adapters[*index].shape_of(name, base);
            let [.., count] = members.iter().map(shape).next_back().transpose()?.unwrap_or([1; 3]);
            members.iter().try_for_each(|index| shape(index).map(drop))?;
            let is_of_tokens = name == EMBEDDING;
            let of_members = members.iter().flat_map(|&adapter| {
                let rank = adapters[adapter].ranks[name];
                std::iter::repeat_n(Column { adapter, rank, is_of_tokens }, rank)
            });
            let columns = place(&mut columns, &of_members.collect::<Vec<_>>());
            let of = members.iter().map(|index| &adapters[*index]);
            let (mut a, mut b) = (Vec::with_capacity(count), Vec::with_capacity(count));
            for matrix in 0..count {
                let parts = of.clone().map(|adapter| adapter.matrices(name, matrix, count));
                let parts = parts.collect::<Result<Vec<_>, _>>()?;
                let [of_a, of_b]: [Vec<_>; 2] =
                    [0, 1].map(|i| parts.iter().map(|p| &p[i]).collect());
                // The table of the embedding has a row per token instead of a row per rank.
                let (first, second) = (side_by_side, one_after_the_other);
                let stack_a = if is_of_tokens { first } else { second };
                a.push(exact(&format!("{name}{}", MATRICES[0]), stack_a(&of_a)));
                b.push(exact(&format!("{name}{}", MATRICES[1]), side_by_side(&of_b)));
            }
            updates.insert(name.to_owned(), Update { a, b, columns });
        }
        Ok(Self { adapters, columns, updates, directions: BTreeMap::new() })
    }

    /// Adds control vectors, each with its scale, to the outputs of these layers. They replace
    /// those of an earlier call, and change every sequence.
    ///
    /// # Errors
    ///
    /// If a vector does not have `hidden_size` elements per layer.
    pub fn with_control_vectors(
        mut self,
        vectors: &[(ControlVector, f32)],
        layers: &RangeInclusive<usize>,
        hidden_size: usize,
    ) -> Result<Self, AdapterError> {
        self.directions = control_vector::sums(vectors, layers, hidden_size)?;
        Ok(self)
    }

    /// The same adapters with the control vectors of another set.
    #[must_use]
    pub fn with_control_vectors_of(self, other: &Self) -> Self {
        Self { directions: other.directions.clone(), ..self }
    }

    /// The sum of the control vectors after a layer.
    pub(crate) fn direction(&self, layer: usize) -> Option<&[f32]> {
        self.directions.get(&layer).map(Vec::as_slice)
    }

    /// The adapters, in the order of their scales.
    pub fn adapters(&self) -> &[Adapter] {
        &self.adapters
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.adapters.is_empty()
    }

    /// Columns of the input.
    pub fn input_width(&self) -> usize {
        self.columns.len()
    }

    /// The row of the input for a token of a sequence with these scales, one per adapter; missing
    /// ones are 0. `is_media` is true for a row that takes the place of a token.
    pub fn input_row(&self, scales: &[f32], is_media: bool) -> Vec<f32> {
        let factor = |column: &Column| {
            let scale = scales.get(column.adapter).copied().unwrap_or(0.0);
            let alpha = self.adapters[column.adapter].alpha;
            match (column.is_of_tokens && is_media, alpha == 0.0) {
                (true, _) => 0.0,
                (false, true) => scale,
                (false, false) => scale * alpha / column.rank as f32,
            }
        };
        self.columns.iter().map(factor).collect()
    }

    /// The update of a tensor.
    pub(crate) fn update(&self, tensor: &str) -> Option<&Update> {
        self.updates.get(tensor)
    }

    /// Checks that a graph applies all updates but those of tensors that it ignores.
    pub(crate) fn check_applied(
        &self,
        graph: &Graph,
        weights: &[Weight],
        architecture: &str,
        is_ignored: impl Fn(&str) -> bool,
    ) -> Result<(), AdapterError> {
        let read =
            graph.ops().iter().flat_map(rf_graph::Op::operands).filter_map(
                |operand| match operand {
                    Operand::Matrix(id) | Operand::Table(id) => Some(weights[id.index()].name()),
                    _ => None,
                },
            );
        let read: HashSet<&str> = read.filter_map(|name| name.strip_suffix(MATRICES[0])).collect();
        let is_missing = |name: &&String| !read.contains(name.as_str()) && !is_ignored(name);
        let Some(tensor) = self.updates.keys().find(is_missing) else { return Ok(()) };
        let of = self.adapters.iter().find(|adapter| adapter.ranks.contains_key(tensor));
        Err(AdapterError::UnsupportedTensor {
            file: of.map(|adapter| adapter.file.clone()).unwrap_or_default(),
            tensor: tensor.clone(),
            architecture: architecture.to_owned(),
        })
    }
}

impl Update {
    /// Some rows of a matrix `B`: those of a part of the tensor.
    pub(crate) fn rows_of_b(&self, matrix: usize, rows: Range<usize>) -> Option<Weight> {
        let whole = self.b.get(matrix)?;
        whole.part(rows, 0..whole.columns())
    }
}

impl Adapter {
    fn check_architecture(&self, base: &Gguf) -> Result<(), AdapterError> {
        let expected = base.metadata().str("general.architecture").ok().flatten();
        let expected = expected.unwrap_or_default();
        if expected == self.architecture {
            return Ok(());
        }
        Err(AdapterError::OtherArchitecture {
            file: self.file.clone(),
            found: self.architecture.clone(),
            expected: expected.to_owned(),
        })
    }

    /// The shape of a tensor of the model, whose matrices must fit it: columns, rows, and the
    /// number of experts.
    fn shape_of(&self, name: &str, base: &Gguf) -> Result<[usize; 3], AdapterError> {
        let unknown =
            || AdapterError::UnknownTensor { file: self.file.clone(), tensor: name.into() };
        let [columns, rows, count] = match base.tensor(name) {
            Some(tensor) if tensor.shape().len() <= 3 => [0, 1, 2].map(|i| axis(tensor, i)),
            _ => return Err(unknown()),
        };
        let rank = self.ranks[name];
        // The table of the embedding has a row per token.
        let a = if name == EMBEDDING { [rank, rows, 1] } else { [columns, rank, count] };
        let b = if name == EMBEDDING { [rank, columns, 1] } else { [rank, rows, count] };
        for (end, expected) in MATRICES.into_iter().zip([a, b]) {
            let tensor = self.tensor(&format!("{name}{end}"))?;
            let found = tensor.shape();
            if found.len() > 3 || [0, 1, 2].map(|i| axis(tensor, i)) != expected {
                let expected = expected.iter().map(|n| *n as u64);
                return Err(AdapterError::Shape {
                    file: self.file.clone(),
                    tensor: tensor.name().to_owned(),
                    found: found.to_vec(),
                    expected: expected.take(if count > 1 { 3 } else { 2 }).collect(),
                });
            }
        }
        Ok([columns, rows, count])
    }

    fn tensor(&self, name: &str) -> Result<&TensorInfo, AdapterError> {
        let found = self.gguf.required_tensor(name);
        found.map_err(|error| AdapterError::File { file: self.file.clone(), error })
    }

    /// `A` and `B` of a tensor whose shape was checked, or of one of its `count` experts.
    fn matrices(
        &self,
        name: &str,
        index: usize,
        count: usize,
    ) -> Result<[Matrix; 2], AdapterError> {
        let matrix = |end: &str| {
            let tensor = self.tensor(&format!("{name}{end}"))?;
            let values = values(&self.file, tensor, index, count)?;
            Ok(Matrix { columns: axis(tensor, 0), values })
        };
        let [a, b] = MATRICES;
        Ok([matrix(a)?, matrix(b)?])
    }
}

/// A matrix of f32, row by row.
struct Matrix {
    columns: usize,
    values: Vec<f32>,
}

fn one_after_the_other(parts: &[&Matrix]) -> Matrix {
    let columns = parts.first().map_or(1, |part| part.columns);
    Matrix { columns, values: parts.iter().flat_map(|part| part.values.iter().copied()).collect() }
}

fn side_by_side(parts: &[&Matrix]) -> Matrix {
    let columns = parts.iter().map(|part| part.columns).sum();
    let mut values = Vec::with_capacity(parts.iter().map(|part| part.values.len()).sum());
    let rows = parts.first().map_or(0, |part| part.values.len() / part.columns);
    for row in 0..rows {
        for Matrix { columns, values: of_part } in parts {
            values.extend_from_slice(&of_part[row * columns..][..*columns]);
        }
    }
    Matrix { columns, values }
}

/// The matrix as a weight: in f16 if that changes no value, otherwise in f32.
fn exact(name: &str, matrix: Matrix) -> Weight {
    let Matrix { columns, values } = matrix;
    let rows = values.len() / columns.max(1);
    let half = rf_quant::quantize_to_vec(DType::F16, &values).expect("floats have no blocks");
    let mut back = vec![0.0; values.len()];
    rf_quant::dequantize(DType::F16, &half, &mut back).expect("as many values");
    if back == values {
        return Weight::new(name, DType::F16, rows, columns, Arc::new(half))
            .expect("the size is that of the shape");
    }
    Weight::f32(name, rows, columns, values)
}

/// The place of a sequence of columns among all, at whose end they go if they are nowhere.
fn place(all: &mut Vec<Column>, columns: &[Column]) -> Range<usize> {
    let found = all.windows(columns.len().max(1)).position(|window| window == columns);
    let start = found.unwrap_or(all.len());
    if found.is_none() {
        all.extend_from_slice(columns);
    }
    start..start + columns.len()
}
