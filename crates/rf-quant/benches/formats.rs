//! Throughput of conversion by format: bytes of blocks per second for dequantisation, values per
//! second for quantisation.
#![expect(missing_docs, reason = "criterion's macros define undocumented public functions")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rf_quant::{DType, dequantize, quantize, quantize_to_vec};
use rf_testing::SplitMix64;

/// A row of a large model.
const VALUES: usize = 16 * 1024;

fn dequantize_row(criterion: &mut Criterion) {
    let values = weights();
    let mut group = criterion.benchmark_group("dequantize");
    for dtype in DType::ALL {
        let blocks = quantize_to_vec(dtype, &values).expect("finite values in whole blocks");
        let mut out = vec![0.0; VALUES];
        group.throughput(Throughput::Bytes(blocks.len() as u64));
        group.bench_function(dtype.name(), |bencher| {
            bencher.iter(|| dequantize(dtype, black_box(&blocks), &mut out));
        });
    }
    group.finish();
}

fn quantize_row(criterion: &mut Criterion) {
    let values = weights();
    let mut group = criterion.benchmark_group("quantize");
    for dtype in DType::ALL {
        let mut out = vec![0; dtype.row_bytes(VALUES).expect("whole blocks")];
        group.throughput(Throughput::Elements(VALUES as u64));
        group.bench_function(dtype.name(), |bencher| {
            bencher.iter(|| quantize(dtype, black_box(&values), &mut out));
        });
    }
    group.finish();
}

/// Values spread as weights are: the sum of four uniform variables is close to normal.
fn weights() -> Vec<f32> {
    let mut random = SplitMix64::new(1);
    let mut uniform = || random.below(1 << 24) as f32 / (1 << 24) as f32 - 0.5;
    (0..VALUES).map(|_| 0.03 * (uniform() + uniform() + uniform() + uniform())).collect()
}

criterion_group!(benches, dequantize_row, quantize_row);
criterion_main!(benches);
