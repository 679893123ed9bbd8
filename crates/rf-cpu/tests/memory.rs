//! `Backend::memory_need` equals the memory that an executor holds, for every program of the
//! conformance table.

use rf_cpu::{CpuBackend, CpuOptions};
use rf_graph::{Backend, Fusions, Program, fuse};
use rf_oracle::case::cases;

#[test]
fn the_memory_need_is_what_an_executor_holds() {
    for threads in [1, 3] {
        let backend = CpuBackend::new(CpuOptions::default().with_threads(threads)).unwrap();
        let mut checked = 0;
        for case in cases() {
            for fusions in [Fusions::NONE, backend.fusions()] {
                let program = case.program();
                let program = Program { graph: fuse(program.graph, fusions), ..program };
                let need = backend.memory_need(&program).unwrap();
                let executor = backend.compile(program, &mut |_| ()).unwrap();
                assert_eq!(need.held, executor.memory(), "{}", case.name());
                checked += 1;
            }
        }
        assert!(checked > 600, "{checked}");
    }
}
