//! Conversion between formats and floats: rf-quant's functions, which define it, and rows of an
//! embedding table, the one conversion that backends do outside of matmuls.

use std::hint::black_box;
use std::time::Instant;

use rf_oracle::case::{CaseShape, Numbers, blocks_like, speed};
use rf_oracle::rf_graph::{DType, OpCost, OperandFormat};
use rf_quant::{Family, dequantize, quantize};

use crate::op_task::{OpTask, format_name};
use crate::{Clock, Error, Prepared, Suite, Target, Task, Workload};

/// Elements to convert: a matrix of 4096 × 4096.
const ELEMENTS: usize = 1 << 24;

/// A call of rf-quant, on one thread.
#[derive(Clone, Debug)]
pub(crate) struct Convert {
    dtype: DType,
    direction: Direction,
    elements: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Dequantize,
    Quantize,
}

pub(crate) fn workloads() -> Vec<Workload> {
    let quick = [DType::F16, DType::Q4_0, DType::Q8_0, DType::Q4K, DType::Q6K];
    let mut workloads = Vec::new();
    for direction in [Direction::Dequantize, Direction::Quantize] {
        for dtype in DType::ALL {
            // Their search takes seconds for so many values.
            if direction == Direction::Quantize && dtype.family() == Family::Codebook {
                continue;
            }
            let quick = quick.contains(&dtype) && direction == Direction::Dequantize;
            let convert = Convert { dtype, direction, elements: ELEMENTS };
            workloads.push(Workload::new(convert, quick));
        }
    }
    for case in speed::embeds() {
        let CaseShape::Matrix { rows, columns } = case.shape() else { continue };
        let name = format!("dequant/{}/embed/{rows}x{columns}", format_name(&case));
        let quick = [DType::Q8_0, DType::Q4K].map(|dtype| Some(OperandFormat::Weight(dtype)));
        let quick = quick.contains(&case.format());
        workloads.push(Workload::new(OpTask::new(name, Suite::Dequant, case), quick));
    }
    workloads
}

impl Task for Convert {
    fn name(&self) -> String {
        let what = match self.direction {
            Direction::Dequantize => "dequantize",
            Direction::Quantize => "quantize",
        };
        format!(
            "dequant/{}/{what}/elements={}",
            self.dtype.name().to_ascii_lowercase(),
            self.elements
        )
    }

    fn suite(&self) -> Suite {
        Suite::Dequant
    }

    fn cost(&self) -> OpCost {
        // Blocks and floats, once each.
        let blocks = self.dtype.row_bytes(self.elements).expect("whole blocks");
        let bytes = (blocks + size_of::<f32>() * self.elements) as u64;
        OpCost { bytes, ..OpCost::default() }
    }

    fn is_single_threaded(&self) -> bool {
        true
    }

    fn check(&self, target: &Target) -> Result<(), Error> {
        target.require_cpu("the host converts whole tensors")
    }

    fn prepare(&self, _target: &Target) -> Result<Prepared, Error> {
        /// Values that are drawn; the rest repeats them.
        const DISTINCT: usize = 1 << 18;
        let Self { dtype, direction, elements } = *self;
        let mut numbers = Numbers::new("rf-bench");
        let some: Vec<f32> = (0..elements.min(DISTINCT)).map(|_| 0.03 * numbers.normal()).collect();
        let row_bytes = dtype.row_bytes(elements).expect("whole blocks");
        match direction {
            Direction::Dequantize => {
                let some = blocks_like(dtype, &some);
                let blocks: Vec<u8> = some.iter().copied().cycle().take(row_bytes).collect();
                let mut values = vec![0.0; elements];
                Ok(Prepared::new(Clock::Host, move || {
                    let start = Instant::now();
                    dequantize(dtype, black_box(&blocks), &mut values)?;
                    black_box(&values);
                    Ok(start.elapsed())
                }))
            }
            Direction::Quantize => {
                let values: Vec<f32> = some.iter().copied().cycle().take(elements).collect();
                let mut blocks = vec![0; row_bytes];
                Ok(Prepared::new(Clock::Host, move || {
                    let start = Instant::now();
                    quantize(dtype, black_box(&values), &mut blocks)?;
                    black_box(&blocks);
                    Ok(start.elapsed())
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_moves_blocks_and_floats() {
        let convert =
            Convert { dtype: DType::Q6K, direction: Direction::Quantize, elements: ELEMENTS };
        // 65536 blocks of 210 bytes.
        let bytes = 65_536 * 210 + 67_108_864;
        assert_eq!(convert.cost(), OpCost { bytes, ..OpCost::default() });
    }
}
