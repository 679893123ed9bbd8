//! Modules of the library, tested without its kernels: a harness in the library would compile them
//! all once more, which takes minutes.

#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::sync::Arc;

use rf_cpu::testing::{deserted, plane_counts, repacked};
use rf_cpu::{CpuBackend, CpuOptions};
use rf_graph::{Backend, DType, Fusions, Output, Weight, fuse};
use rf_oracle::case::{Case, cases};

#[expect(dead_code, unused_imports, reason = "the backend uses the rest")]
#[path = "../src"]
mod library {
    mod team;
}

#[expect(dead_code, reason = "the backend uses the rest")]
#[path = "../src/machine"]
mod machine {
    mod linux;
    #[cfg(windows)]
    mod windows;
}

/// The bits of all outputs of a case.
fn outputs(case: &Case, backend: &CpuBackend) -> Vec<u32> {
    let mut program = case.program();
    program.graph = fuse(program.graph, Fusions::PROLOGUES);
    let output = program.graph.value(program.graph.output());
    let (kind, width) = (output.rows, output.width);
    let mut executor = backend.compile(program, &mut |_| ()).unwrap();
    let mut bits = Vec::new();
    for batch in case.batches() {
        batch.with(|batch| {
            let mut out = vec![0.0; batch.rows(kind) * width];
            executor.forward(batch, Output::rows(&mut out)).unwrap();
            bits.extend(out.iter().map(|y| y.to_bits()));
        });
    }
    bits
}

#[test]
fn results_are_the_same_if_no_other_thread_of_the_team_comes() {
    let options = CpuOptions::default().with_threads(3);
    let mut ran = 0;
    for case in cases().iter().filter(|case| case.name().starts_with("model/")) {
        let expected = outputs(case, &CpuBackend::new(options).unwrap());
        assert_eq!(outputs(case, &deserted(options).unwrap()), expected, "{}", case.name());
        ran += 1;
    }
    assert!(ran > 0);
}

#[test]
fn packing_and_unpacking_gives_every_row_back() {
    for dtype in DType::ALL {
        let (rows, columns) = (37, 512);
        let bytes = dtype.row_bytes(columns).unwrap() * rows;
        let data: Vec<u8> = (0..bytes).map(|i| (i * 31 % 251) as u8 & 0x5b).collect();
        let weight = Weight::new("w", dtype, rows, columns, Arc::new(data)).unwrap();
        for (row, unpacked) in repacked(&weight).unwrap().iter().enumerate() {
            assert_eq!(*unpacked, weight.row_f32(row), "{dtype} row {row}");
        }
    }
}

#[test]
fn planes_cover_each_block_exactly() {
    for dtype in DType::ALL {
        assert!(plane_counts(dtype).iter().all(|count| *count == 1), "{dtype}");
    }
}
