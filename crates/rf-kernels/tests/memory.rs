//! `Backend::memory_need` is exactly what an executor holds, for every program of the conformance
//! table.

use rf_graph::{Backend, BackendError};
use rf_kernels::{GpuBackend, GpuOptions};
use rf_oracle::case::cases;

#[test]
fn the_memory_need_is_what_an_executor_holds() {
    let backend = match GpuBackend::new(GpuOptions::default()) {
        Ok(backend) => backend,
        Err(error) => {
            rf_testing::skip!("{error}");
            return;
        }
    };
    for case in cases() {
        let program = case.program().fused_for(&backend);
        let need = backend.memory_need(&program).unwrap();
        let free_bytes = backend.available_memory_bytes().unwrap();
        let executor = match backend.compile(program, &mut |_| ()) {
            // There are no kernels for it.
            Err(BackendError::Unsupported { .. }) => continue,
            executor => executor.unwrap(),
        };
        assert_eq!(need.held, executor.memory(), "{}", case.name());
        let taken_bytes = free_bytes.saturating_sub(backend.available_memory_bytes().unwrap());
        assert!(taken_bytes <= need.total_bytes(), "{}: {taken_bytes} {need:?}", case.name());
    }
}
