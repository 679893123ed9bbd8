//! Conversion between formats and floats: rf-quant's own functions, which define it, and rows of an embedding table,
//! which is where backends do it by itself (in products it is part of the kernel).

use std::hint::black_box;
use std::time::Instant;

use rf_graph::conformance::Numbers;
use rf_graph::{DType, OpCost};
use rf_quant::{dequantize, quantize, quantize_to_vec};

use crate::program::{Net, OpProgram, OwnedBatch, PAGE_TOKENS, Timed, no_cache, word};
use crate::{Clock, Error, Prepared, Suite, Target, Task, Workload};

/// Elements that are converted: a matrix of 4096 by 4096.
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

/// Every row of a table, as floats, on all that a backend has.
#[derive(Clone, Debug)]
pub(crate) struct TableRows {
    pub(crate) dtype: DType,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

pub(crate) fn workloads() -> Vec<Workload> {
    let quick = [DType::F16, DType::Q4_0, DType::Q8_0, DType::Q4K, DType::Q6K];
    let mut workloads = Vec::new();
    for direction in [Direction::Dequantize, Direction::Quantize] {
        for dtype in DType::ALL {
            let quick = quick.contains(&dtype) && direction == Direction::Dequantize;
            let convert = Convert { dtype, direction, elements: ELEMENTS };
            workloads.push(Workload::new(convert, quick));
        }
    }
    for dtype in DType::ALL {
        let rows = TableRows { dtype, rows: 4096, columns: ELEMENTS / 4096 };
        workloads.push(Workload::new(rows, [DType::Q8_0, DType::Q4K].contains(&dtype)));
    }
    workloads
}

/// Blocks and floats, once each.
fn bytes_of(dtype: DType, elements: usize) -> u64 {
    (dtype.row_bytes(elements).expect("whole blocks") + size_of::<f32>() * elements) as u64
}

/// The cost of moving bytes.
fn moving(bytes: u64) -> OpCost {
    OpCost { bytes, ..OpCost::default() }
}

impl Task for Convert {
    fn name(&self) -> String {
        let what = match self.direction {
            Direction::Dequantize => "dequantize",
            Direction::Quantize => "quantize",
        };
        format!("dequant/{}/{what}/elements={}", word(self.dtype), self.elements)
    }

    fn suite(&self) -> Suite {
        Suite::Dequant
    }

    fn cost(&self) -> OpCost {
        moving(bytes_of(self.dtype, self.elements))
    }

    fn is_single_threaded(&self) -> bool {
        true
    }

    fn check(&self, target: &Target) -> Result<(), Error> {
        target.require_cpu("the host converts whole tensors")
    }

    fn prepare(&self, _target: &Target) -> Result<Prepared, Error> {
        /// Values that are made; the rest repeats them.
        const DISTINCT: usize = 1 << 18;
        let Self { dtype, direction, elements } = *self;
        let mut numbers = Numbers::new("rf-bench");
        let some: Vec<f32> = (0..elements.min(DISTINCT)).map(|_| 0.03 * numbers.normal()).collect();
        let row_bytes = dtype.row_bytes(elements).expect("whole blocks");
        match direction {
            Direction::Dequantize => {
                let some = quantize_to_vec(dtype, &some)?;
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

impl TableRows {
    pub(crate) fn program(&self) -> OpProgram {
        let mut net = Net::new();
        let table = net.matrix(self.dtype, self.rows, self.columns);
        let table = net.g.weight(table);
        let out = net.g.embed(table, 1.0);
        OpProgram {
            program: net.finish(out, no_cache(self.rows), self.rows),
            batch: OwnedBatch::of_sequence(self.rows, 0, self.rows, PAGE_TOKENS),
            fill: Vec::new(),
            timed: Timed::Op("embed", 1),
        }
    }
}

impl Task for TableRows {
    fn name(&self) -> String {
        let Self { dtype, rows, columns } = self;
        format!("dequant/{}/embed/{rows}x{columns}", word(*dtype))
    }

    fn suite(&self) -> Suite {
        Suite::Dequant
    }

    fn cost(&self) -> OpCost {
        moving(bytes_of(self.dtype, self.rows * self.columns))
    }

    fn prepare(&self, target: &Target) -> Result<Prepared, Error> {
        self.program().prepare(target)
    }
}

#[cfg(test)]
mod tests {
    use rf_graph::conformance::Bound;

    use super::*;
    use crate::program::agreement;

    #[test]
    fn conversion_moves_blocks_and_floats() {
        // 65536 blocks of 210 bytes.
        assert_eq!(bytes_of(DType::Q6K, ELEMENTS), 65_536 * 210 + 67_108_864);
    }

    #[test]
    fn table_rows_are_all_rows() {
        for dtype in DType::ALL {
            agreement(TableRows { dtype, rows: 40, columns: 256 }.program(), Bound::Exact);
        }
    }
}
