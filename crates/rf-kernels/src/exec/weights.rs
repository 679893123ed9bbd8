//! Weights on the device, filled once through pinned staging buffers.

use std::collections::BTreeMap;

use rf_graph::{DType, Graph, Op, Operand, Progress, Weight, WeightId, WeightShape};
use rf_hip::{PinnedBuffer, Stream};

use super::split_memory::SplitMemory;
use crate::error::Error;
use crate::pack::{PackedLayout, half_unit, largest_magnitude};
use crate::params::{self, Address};

/// Bytes of each of the two staging buffers. The host fills one while the other is copied.
const STAGING_BYTES: usize = 32 << 20;

/// The memory of all weights of a program.
pub(super) struct DeviceWeights {
    memory: SplitMemory,
    /// The power of two by which each weight is multiplied before it becomes f16, indexed by
    /// [`WeightId::index`].
    half_units: Vec<f32>,
}

/// A weight in device memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct WeightPlace {
    pub(super) dtype: DType,
    pub(super) rows: usize,
    /// Addresses of the planes. For a vector, `low` is the address of its f32.
    pub(super) planes: params::Weight,
    /// The power of two by which f16 matmuls multiply the weights, so that their largest is within
    /// the range of f16; 1 for weights that are f16.
    pub(super) half_unit: f32,
}

/// The storage form of a weight, which is known before memory is allocated.
#[derive(Debug)]
enum Form {
    /// f32, for norms, biases and sinks.
    Vector,
    /// In planes, starting at `first_row` of a matrix. The experts or heads of a matmul share a
    /// matrix.
    Matrix { layout: PackedLayout, base: usize, first_row: usize },
}

impl Form {
    /// The first byte of the matrix, which experts share.
    fn base(&self) -> Option<usize> {
        match self {
            Self::Vector => None,
            Self::Matrix { base, .. } => Some(*base),
        }
    }
}

/// Sizes and offsets of all weights.
pub(super) struct WeightPlan {
    weights: Vec<WeightShape>,
    /// The form of each weight, and for a vector its byte offset.
    forms: Vec<(Form, usize)>,
    /// The first byte of each plane of a matrix and of each vector, in ascending order.
    cuts: Vec<usize>,
    bytes: usize,
}

impl WeightPlan {
    /// Chooses the form of each weight by the ops that read it. The experts of one matmul become
    /// one matrix, and so do the heads.
    pub(super) fn new(graph: &Graph, weights: &[Weight]) -> Self {
        let mut forms: Vec<Option<(Form, usize)>> = weights.iter().map(|_| None).collect();
        let (mut bytes, mut cuts) = (0, Vec::new());
        let mut matrix = |ids: &[WeightId], forms: &mut Vec<Option<(Form, usize)>>| {
            let [first, ..] = ids else { return };
            if forms[first.index()].is_some() {
                return;
            }
            let (w, rows) = (&weights[first.index()], weights[first.index()].rows());
            let layout = PackedLayout::new(w.dtype(), rows * ids.len(), w.columns());
            for (i, id) in ids.iter().enumerate() {
                forms[id.index()] =
                    Some((Form::Matrix { layout, base: bytes, first_row: i * rows }, 0));
            }
            cuts.extend(layout.offsets().map(|offset| bytes + offset));
            bytes += layout.bytes();
        };
        for op in graph.ops() {
            if let Op::ExpertMatMul(m) = op {
                m.projections.iter().for_each(|p| matrix(&p.weights, &mut forms));
            }
            if let Op::HeadMatMul { weights, .. } = op {
                matrix(weights, &mut forms);
            }
            for operand in op.operands() {
                if let Operand::Matrix(id) | Operand::Table(id) = operand {
                    matrix(&[*id], &mut forms);
                }
            }
        }
        let forms = forms.into_iter().zip(weights).map(|(form, weight)| {
            form.unwrap_or_else(|| {
                let at = bytes;
                cuts.push(at);
                bytes +=
                    (weight.rows() * weight.columns() * size_of::<f32>()).next_multiple_of(256);
                (Form::Vector, at)
            })
        });
        let forms = forms.collect();
        let weights = weights.iter().map(Weight::shape).collect();
        Self { weights, forms, cuts, bytes }
    }

    /// Bytes of all weights: at least one.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.max(1)
    }

    /// The addresses of all weights, by [`WeightId::index`], where `address` is that of a byte.
    /// Units of f16 are 1.
    pub(super) fn places(&self, address: impl Fn(usize) -> Address) -> Vec<WeightPlace> {
        let place = |(weight, (form, at)): (&WeightShape, &(Form, usize))| {
            let planes = match form {
                Form::Vector => params::Weight { low: address(*at), ..Default::default() },
                Form::Matrix { layout, base, first_row } => {
                    let before = layout.plane_bytes(*first_row);
                    // A plane is within one allocation, and its first byte finds it.
                    let [low, high, scale, super_scale] = std::array::from_fn(|plane| {
                        address(base + layout.offsets()[plane]) + before[plane] as Address
                    });
                    params::Weight { low, high, scale, super_scale }
                }
            };
            WeightPlace { dtype: weight.dtype, rows: weight.rows, planes, half_unit: 1.0 }
        };
        self.weights.iter().zip(&self.forms).map(place).collect()
    }
}

impl DeviceWeights {
    /// Packs and uploads all weights, and releases the source of each.
    pub(super) fn load(
        stream: &Stream,
        plan: &WeightPlan,
        weights: Vec<Weight>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let memory = SplitMemory::new(stream.context(), plan.bytes(), &plan.cuts)?;
        // Kernels read past the last rows of a plane. What they compute of it is not used, but
        // codes of codebook formats are addresses on the way.
        memory.fill_zero(stream)?;
        let total_bytes = weights.iter().map(|w| w.size_bytes() as u64).sum();
        let largest = plan.bytes.clamp(1, STAGING_BYTES);
        let mut staging = [
            PinnedBuffer::<u8>::new(stream.context(), largest)?,
            PinnedBuffer::<u8>::new(stream.context(), largest)?,
        ];
        let (mut done_bytes, mut turn) = (0, 0);
        let mut half_units = Vec::with_capacity(weights.len());
        for (weight, (form, at)) in weights.into_iter().zip(&plan.forms) {
            let mut largest_weight = 0.0_f32;
            match form {
                Form::Vector => {
                    let values: Vec<f32> =
                        (0..weight.rows()).flat_map(|row| weight.row_f32(row)).collect();
                    memory.copy_from_slice(stream, *at, bytemuck::cast_slice(&values))?;
                    done_bytes += weight.size_bytes() as u64;
                }
                Form::Matrix { layout, base, first_row } => {
                    let rows_at_once = (largest / layout.bytes_per_row().max(1)).max(1);
                    if layout.bytes_per_row() > largest {
                        let (name, bytes) = (weight.name(), layout.bytes_per_row());
                        let what = format!("tensor '{name}' with rows of {bytes} bytes");
                        return Err(Error::Unsupported { what });
                    }
                    for first in (0..weight.rows()).step_by(rows_at_once) {
                        let rows = rows_at_once.min(weight.rows() - first);
                        weight.check_finite(first..first + rows)?;
                        let source = &weight.rows_bytes(first..first + rows);
                        let buffer = &mut staging[turn];
                        turn = 1 - turn;
                        let plane_bytes = layout.plane_bytes(rows);
                        let used = plane_bytes.iter().sum();
                        layout.pack(source, rows, &mut buffer[..used]);
                        if weight.dtype() != DType::F16 {
                            let planes = layout.planes(&buffer[..used], rows);
                            let largest = largest_magnitude(weight.dtype(), planes);
                            largest_weight = largest_weight.max(largest);
                        }
                        let mut from = 0;
                        let before = layout.plane_bytes(first_row + first);
                        for ((offset, before), bytes) in
                            layout.offsets().into_iter().zip(before).zip(plane_bytes)
                        {
                            let to = base + offset + before;
                            memory.copy_from_pinned(stream, to, buffer, from..from + bytes)?;
                            from += bytes;
                        }
                        done_bytes += source.len() as u64;
                        progress(Progress { done_bytes, total_bytes });
                    }
                    weight.release();
                }
            }
            half_units.push(half_unit(largest_weight));
        }
        share_half_units(&plan.forms, &mut half_units);
        stream.synchronize()?;
        progress(Progress { done_bytes: total_bytes, total_bytes });
        Ok(Self { memory, half_units })
    }

    /// The addresses of all weights, by [`WeightId::index`].
    pub(super) fn places(&self, plan: &WeightPlan) -> Vec<WeightPlace> {
        let places = plan.places(|offset| self.memory.address(offset));
        let places = places.into_iter().zip(&self.half_units);
        places.map(|(place, half_unit)| WeightPlace { half_unit: *half_unit, ..place }).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.memory.size_bytes()
    }
}

/// Gives the experts of a matrix one unit: that of the largest weight among them.
fn share_half_units(forms: &[(Form, usize)], half_units: &mut [f32]) {
    let mut shared = BTreeMap::new();
    let bases = || forms.iter().map(|(form, _)| form.base());
    for (base, unit) in bases().zip(half_units.iter()) {
        let least = shared.entry(base).or_insert(*unit);
        *least = unit.min(*least);
    }
    for (base, unit) in bases().zip(half_units) {
        if base.is_some() {
            *unit = shared[&base];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_of_a_matrix_share_the_unit_of_their_largest_weight() {
        let layout = PackedLayout::new(DType::Q8_0, 4, 32);
        let expert = |base, first_row| (Form::Matrix { layout, base, first_row }, 0);
        let forms = [expert(0, 0), (Form::Vector, 64), expert(512, 0), expert(0, 2)];
        let mut units = [4.0, 1.0, 0.5, 2.0];
        share_half_units(&forms, &mut units);
        assert_eq!(units.map(f32::to_bits), [2.0_f32, 1.0, 0.5, 2.0].map(f32::to_bits));
    }
}
