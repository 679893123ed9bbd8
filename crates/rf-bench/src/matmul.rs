//! Products: `out [tokens, rows of the weight] = x · Wᵀ`.

use rf_graph::{DType, OpCost};

use crate::program::{Net, OpProgram, OwnedBatch, PAGE_TOKENS, Timed, cold_copies, no_cache, word};
use crate::{Error, Prepared, Suite, Target, Task, Workload};

/// A product of a batch with one matrix.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    pub(crate) dtype: DType,
    /// Rows of the batch.
    pub(crate) tokens: usize,
    /// Rows of the weight: columns of the result.
    pub(crate) rows: usize,
    /// Columns of the weight.
    pub(crate) columns: usize,
}

/// Rows of a batch up to which a product is bound by reading its weight, as in decode: the weight is then not to
/// come from a cache.
const DECODE_ROWS: usize = 8;

/// Dense products: `[tokens, rows, columns]`.
const DENSE: [[usize; 3]; 8] = [
    [512, 512, 512],
    [1024, 1024, 1024],
    [2048, 2048, 2048],
    [4096, 4096, 4096],
    [1, 4096, 4096],
    [32, 128, 4096],
    [128, 128, 1024],
    [32, 32, 768],
];

pub(crate) fn workloads() -> Vec<Workload> {
    let mut workloads = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        for [tokens, rows, columns] in DENSE {
            let quick = dtype == DType::F32 && [512, 1].contains(&tokens);
            workloads.push(Product { dtype, tokens, rows, columns }.workload(quick));
        }
    }
    for dtype in DType::ALL {
        for tokens in [1, 4, 8, 512] {
            let product = Product { dtype, tokens, rows: 4096, columns: 4096 };
            let quick = match dtype {
                DType::Q4_0 | DType::Q6K => tokens == 1,
                DType::Q8_0 | DType::Q4K => [1, 512].contains(&tokens),
                _ => false,
            };
            let workload = product.workload(quick);
            if workloads.iter().all(|other: &Workload| other.name != workload.name) {
                workloads.push(workload);
            }
        }
    }
    workloads
}

/// Products that wait for arithmetic alone, floating-point and 8-bit: how fast they are is what is known of how fast a
/// device computes at most.
pub fn compute_bound() -> [Workload; 2] {
    [DType::F16, DType::Q8_0]
        .map(|dtype| Product { dtype, tokens: 2048, rows: 8192, columns: 4096 }.workload(false))
}

impl Product {
    pub(crate) fn workload(self, quick: bool) -> Workload {
        Workload::new(self, quick)
    }

    fn weight_bytes(&self) -> usize {
        self.rows * self.dtype.row_bytes(self.columns).expect("whole blocks")
    }

    pub(crate) fn program(&self) -> OpProgram {
        let is_decode = self.tokens <= DECODE_ROWS;
        self.program_of(if is_decode { cold_copies(self.weight_bytes()) } else { 1 })
    }

    /// With so many equal weights.
    fn program_of(&self, copies: usize) -> OpProgram {
        let vocab_size = self.tokens;
        let mut net = Net::new();
        let x = net.rows_of_table(vocab_size, self.columns);
        let weight = net.matrix(self.dtype, self.rows, self.columns);
        let mut out = x;
        for _ in 0..copies {
            let weight = net.g.weight(weight.clone());
            out = net.g.matmul(x, weight);
        }
        OpProgram {
            program: net.finish(out, no_cache(self.tokens), self.tokens),
            batch: OwnedBatch::of_sequence(self.tokens, 0, vocab_size, PAGE_TOKENS),
            fill: Vec::new(),
            timed: Timed::Op("matmul", copies as u32),
        }
    }
}

impl Task for Product {
    fn name(&self) -> String {
        let Self { dtype, tokens, rows, columns } = self;
        format!("matmul/{}/{rows}x{columns}/rows={tokens}", word(*dtype))
    }

    fn suite(&self) -> Suite {
        Suite::Matmul
    }

    fn cost(&self) -> OpCost {
        let Self { dtype, tokens, rows, columns } = *self;
        let bytes = (self.weight_bytes() + size_of::<f32>() * tokens * (columns + rows)) as u64;
        let operations = 2 * (tokens * rows * columns) as u64;
        match dtype {
            DType::F32 | DType::F16 | DType::Bf16 => {
                OpCost { bytes, f32_operations: operations, int8_operations: 0 }
            }
            _ => OpCost { bytes, f32_operations: 0, int8_operations: operations },
        }
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
    fn a_product_moves_its_matrix_and_rows_once() {
        let workload =
            |dtype, tokens| Product { dtype, tokens, rows: 4096, columns: 4096 }.workload(false);
        // 524288 blocks of 18 bytes; 8 rows of 4096 floats in, 8 out; 8 · 2²⁴ multiply-adds.
        let q4_0 = workload(DType::Q4_0, 8);
        assert_eq!(q4_0.cost.bytes, 524_288 * 18 + 2 * 131_072);
        assert_eq!((q4_0.cost.f32_operations, q4_0.cost.int8_operations), (0, 268_435_456));
        // 64 MiB of weights; 16 KiB in and out.
        let f32 = workload(DType::F32, 1);
        assert_eq!(f32.cost.bytes, 67_108_864 + 2 * 16_384);
        assert_eq!((f32.cost.f32_operations, f32.cost.int8_operations), (33_554_432, 0));
    }

    #[test]
    fn programs_compute_the_product_that_their_name_says() {
        for dtype in DType::ALL {
            for tokens in [1, 4, 20] {
                let product = Product { dtype, tokens, rows: 64, columns: 256 };
                let cost = agreement(product.program_of(2), Bound::of_product(dtype));
                assert_eq!(cost, product.cost());
            }
        }
    }
}
