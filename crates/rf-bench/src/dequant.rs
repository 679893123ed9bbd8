//! Conversion between formats and floats: rf-quant's own functions, which define it, and rows of an embedding table,
//! which is where backends do it by itself (in products it is part of the kernel).

use std::hint::black_box;
use std::time::Instant;

use rf_graph::DType;
use rf_graph::conformance::Numbers;
use rf_quant::{dequantize, quantize, quantize_to_vec};

use crate::program::{Net, OpProgram, OwnedBatch, PAGE_TOKENS, Timed, no_cache};
use crate::workload::{Task, word};
use crate::{Clock, Error, Operations, Prepared, Suite, Workload};

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
            workloads.push(Convert { dtype, direction, elements: ELEMENTS }.workload(quick));
        }
    }
    for dtype in DType::ALL {
        let rows = TableRows { dtype, rows: 4096, columns: ELEMENTS / 4096 };
        workloads.push(rows.workload([DType::Q8_0, DType::Q4K].contains(&dtype)));
    }
    workloads
}

/// Blocks and floats, once each.
fn bytes_of(dtype: DType, elements: usize) -> u64 {
    (dtype.row_bytes(elements).expect("whole blocks") + size_of::<f32>() * elements) as u64
}

impl Convert {
    fn workload(self, quick: bool) -> Workload {
        let Self { dtype, direction, elements } = self;
        let what = match direction {
            Direction::Dequantize => "dequantize",
            Direction::Quantize => "quantize",
        };
        Workload {
            name: format!("dequant/{}/{what}/elements={elements}", word(dtype)),
            suite: Suite::Dequant,
            bytes: bytes_of(dtype, elements),
            operations: Operations::NONE,
            quick,
            task: Task::Convert(self),
        }
    }

    pub(crate) fn prepare(&self) -> Result<Prepared, Error> {
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
    fn workload(self, quick: bool) -> Workload {
        let Self { dtype, rows, columns } = self;
        Workload {
            name: format!("dequant/{}/embed/{rows}x{columns}", word(dtype)),
            suite: Suite::Dequant,
            bytes: bytes_of(dtype, rows * columns),
            operations: Operations::NONE,
            quick,
            task: Task::TableRows(self),
        }
    }

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
