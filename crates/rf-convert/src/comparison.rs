//! The differences between two models.

use std::collections::BTreeMap;

use rayon::prelude::*;
use rf_gguf::{Array, Gguf, Metadata, TensorInfo, Value};
use rf_quant::DType;

use crate::conversion::{PIECE, bytes_of, values_of};
use crate::error::Error;
use crate::split::SPLIT_KEYS;

/// The differences between two models, in the order of the first one.
///
/// The order of keys and tensors does not matter, nor do the files of a split model.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// Keys of the metadata.
    pub keys: Vec<KeyDifference<'a>>,
    /// Tensors.
    pub tensors: Vec<TensorDifference<'a>>,
}

/// A key that one model does not have, or whose value differs.
#[derive(Debug)]
pub struct KeyDifference<'a> {
    /// The key.
    pub key: &'a str,
    /// The value in each model.
    pub values: [Option<&'a Value>; 2],
}

/// A tensor that one model does not have, or that differs.
#[derive(Debug)]
pub struct TensorDifference<'a> {
    /// The tensor of each model.
    pub tensors: [Option<&'a TensorInfo>; 2],
    /// The difference of the data, if both have the same number of elements in supported formats.
    pub data: Option<DataDifference>,
}

/// The difference between the elements of two tensors, after dequantisation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DataDifference {
    /// The number of elements that differ. It is 0 where different bytes are the same number.
    pub elements: u64,
    /// The first element that differs.
    pub first: Option<u64>,
    /// The largest difference; infinite where one element is no number.
    pub largest: f32,
}

impl<'a> Comparison<'a> {
    /// Compares two models. `progress` receives the bytes of the first one's tensors that were
    /// compared since its last call. Without `compares_data`, only their types and shapes count.
    ///
    /// # Errors
    ///
    /// If the data of a tensor cannot be dequantised.
    pub fn of(
        [a, b]: [&'a Gguf; 2],
        compares_data: bool,
        mut progress: impl FnMut(u64),
    ) -> Result<Self, Error> {
        let keys = differing_keys([a.metadata(), b.metadata()]);
        let others: BTreeMap<_, _> =
            b.tensors().iter().map(|tensor| (tensor.name(), tensor)).collect();
        let mut tensors = Vec::new();
        for tensor in a.tensors() {
            let other = others.get(tensor.name()).copied();
            let difference = match other {
                Some(other) => difference([tensor, other], compares_data)?,
                None => Some(TensorDifference { tensors: [Some(tensor), None], data: None }),
            };
            tensors.extend(difference);
            progress(tensor.size_bytes() as u64);
        }
        let only_b = b.tensors().iter().filter(|tensor| a.tensor(tensor.name()).is_none());
        let missing = |tensor| TensorDifference { tensors: [None, Some(tensor)], data: None };
        tensors.extend(only_b.map(missing));
        Ok(Self { keys, tensors })
    }

    /// Returns true if the models do not differ.
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.tensors.is_empty()
    }
}

fn differing_keys([a, b]: [&Metadata; 2]) -> Vec<KeyDifference<'_>> {
    let only_b = b.iter().filter(|(key, _)| !a.contains(key));
    let keys = a.iter().chain(only_b).map(|(key, _)| key);
    let keys = keys.filter(|key| !key.starts_with(SPLIT_KEYS));
    let differences = keys.map(|key| KeyDifference { key, values: [a.get(key), b.get(key)] });
    differences.filter(|KeyDifference { values: [a, b], .. }| !are_same(*a, *b)).collect()
}

/// Compares floats by their bits: a NaN is the same as itself.
fn are_same(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(Value::F32(a)), Some(Value::F32(b))) => a.to_bits() == b.to_bits(),
        (Some(Value::F64(a)), Some(Value::F64(b))) => a.to_bits() == b.to_bits(),
        (Some(Value::Array(Array::F32(a))), Some(Value::Array(Array::F32(b)))) => {
            a.iter().map(|item| item.to_bits()).eq(b.iter().map(|item| item.to_bits()))
        }
        (Some(Value::Array(Array::F64(a))), Some(Value::Array(Array::F64(b)))) => {
            a.iter().map(|item| item.to_bits()).eq(b.iter().map(|item| item.to_bits()))
        }
        (a, b) => a == b,
    }
}

/// The difference between two tensors of one name, if they differ.
fn difference(
    [a, b]: [&TensorInfo; 2],
    compares_data: bool,
) -> Result<Option<TensorDifference<'_>>, Error> {
    let has_same_form = a.ty() == b.ty() && a.shape() == b.shape();
    let tensors = [Some(a), Some(b)];
    if !compares_data || a.elements() != b.elements() {
        return Ok((!has_same_form).then_some(TensorDifference { tensors, data: None }));
    }
    let [data_a, data_b] = [a.data(), b.data()];
    let difference = if has_same_form && data_a[..] == data_b[..] {
        None
    } else {
        let data = match (a.ty().dtype(), b.ty().dtype()) {
            (Some(ty_a), Some(ty_b)) => Some(of_data((ty_a, &data_a), (ty_b, &data_b))?),
            _ => None,
        };
        Some(TensorDifference { tensors, data })
    };
    data_a.release();
    data_b.release();
    Ok(difference)
}

/// Dequantises both and compares, in pieces of whole blocks of both formats.
fn of_data(a: (DType, &[u8]), b: (DType, &[u8])) -> Result<DataDifference, Error> {
    let pieces = a.1.par_chunks(bytes_of(a.0, PIECE)).zip(b.1.par_chunks(bytes_of(b.0, PIECE)));
    let dequantized = |dtype, bytes: &[u8]| {
        let mut values = vec![0.0; values_of(dtype, bytes)];
        rf_quant::dequantize(dtype, bytes, &mut values).map(|()| values)
    };
    let differences = pieces.enumerate().map(|(index, (piece_a, piece_b))| {
        let (values_a, values_b) = (dequantized(a.0, piece_a)?, dequantized(b.0, piece_b)?);
        Ok(of_values(&values_a, &values_b, (index * PIECE) as u64))
    });
    let result = differences.try_reduce(DataDifference::default, |a, b| Ok(a.with(b)));
    result.map_err(|source: rf_quant::Error| Error::Data { source })
}

fn of_values(a: &[f32], b: &[f32], start: u64) -> DataDifference {
    let mut difference = DataDifference::default();
    for (index, (&a, &b)) in (start..).zip(a.iter().zip(b)) {
        let distance = match (a - b).abs() {
            // Infinities of one sign and NaNs with the same bits are the same.
            distance if distance == 0.0 || a.to_bits() == b.to_bits() => continue,
            distance if distance.is_nan() => f32::INFINITY,
            distance => distance,
        };
        let first = difference.first.or(Some(index));
        let (elements, largest) = (difference.elements + 1, difference.largest.max(distance));
        difference = DataDifference { elements, first, largest };
    }
    difference
}

impl DataDifference {
    /// The difference of this piece and of a later or earlier one.
    fn with(self, other: Self) -> Self {
        let first = match (self.first, other.first) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            elements: self.elements + other.elements,
            first,
            largest: self.largest.max(other.largest),
        }
    }
}
