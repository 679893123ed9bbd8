//! The case table on the reference, where fused forms compute what unfused ones do, and on backends
//! with faults.

use std::collections::HashSet;

use rf_graph::case::cases;
use rf_graph::conformance::{Deviation, Mismatch, Outcome, check, prepare};
use rf_graph::{
    Backend, BackendError, Batch, Executor, Fusions, MemoryUse, Program, Progress, ReferenceBackend,
};
use rf_kv::PageId;

#[test]
fn every_fused_form_of_every_case_computes_the_same_on_the_reference() {
    let mut forms = 0;
    for case in cases() {
        match prepare(&case).unwrap().check(&ReferenceBackend).unwrap() {
            Outcome::Passed { deviation, outputs } => {
                // A fused op rounds where its parts round, so the reference gives the same bits.
                assert_eq!(deviation, Deviation::default(), "{case:?}");
                let has_nan = case.name().ends_with("/nan-exponents");
                assert!(
                    outputs.iter().flatten().all(|y| y.is_finite() || has_nan && y.is_nan()),
                    "{case:?}"
                );
                assert_eq!(outputs.iter().flatten().any(|y| y.is_nan()), has_nan, "{case:?}");
                assert!(outputs.iter().any(|y| y.iter().any(|y| *y != 0.0)), "{case:?}");
                forms += outputs.len() / case.batches().len();
            }
            other => panic!("{case:?}: {other:?}"),
        }
    }
    // Each case unfused, and the distinct graphs that fusions make of them. A fusion that no longer
    // applies somewhere lowers this number.
    assert_eq!(forms, 621 + 513);
}

#[test]
fn names_of_cases_are_unique() {
    let names: Vec<String> = cases().iter().map(|case| case.name().to_owned()).collect();
    let unique: HashSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    // A change of this number is a change of what backends promise.
    assert_eq!(names.len(), 621);
}

/// The reference with a fault.
struct Faulty(Fault);

#[derive(Clone, Copy)]
enum Fault {
    /// One element of each batch is off by half the largest.
    OneElement,
    /// The last element is not written.
    Unwritten,
    /// Everything is a thousandth too large.
    Drift,
    /// No program is taken.
    Refuses,
}

impl Backend for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn description(&self) -> String {
        "the reference with a fault".into()
    }

    fn fusions(&self) -> Fusions {
        Fusions::NONE
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        None
    }

    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError> {
        if matches!(self.0, Fault::Refuses) {
            return Err(BackendError::Unsupported { backend: "faulty", what: "anything".into() });
        }
        Ok(Box::new(FaultyExecutor(self.0, ReferenceBackend.compile(program, progress)?)))
    }
}

struct FaultyExecutor(Fault, Box<dyn Executor>);

impl Executor for FaultyExecutor {
    fn forward(&mut self, batch: &Batch<'_>, out: &mut [f32]) -> Result<(), BackendError> {
        self.1.forward(batch, out)?;
        let largest = out.iter().fold(0.0_f32, |m, y| m.max(y.abs()));
        match (self.0, out.last_mut()) {
            (Fault::OneElement, Some(last)) => *last += largest / 2.0,
            (Fault::Unwritten, Some(last)) => *last = f32::NAN,
            _ => out.iter_mut().for_each(|y| *y *= 1.001),
        }
        Ok(())
    }

    fn copy_pages(&mut self, copies: &[(PageId, PageId)]) -> Result<(), BackendError> {
        self.1.copy_pages(copies)
    }

    fn memory(&self) -> MemoryUse {
        self.1.memory()
    }
}

#[test]
fn a_backend_with_a_fault_does_not_conform() {
    let case = |name: &str| cases().into_iter().find(|case| case.name() == name).unwrap();
    let deviates =
        |fault, name| matches!(check(&Faulty(fault), &case(name)), Err(Mismatch::Deviates { .. }));
    for name in
        ["matmul/Q4_K/64x768", "matmul/F16/37x256", "attention/all/q8_0", "model/llama-q4_k"]
    {
        assert!(deviates(Fault::OneElement, name), "{name}");
        assert!(deviates(Fault::Unwritten, name), "{name}");
    }
    assert!(deviates(Fault::Drift, "rms_norm/80/group-80"));
    assert!(deviates(Fault::Drift, "attention/rope/f32"));
    let refused = check(&Faulty(Fault::Refuses), &case("add")).unwrap();
    assert!(matches!(refused, Outcome::Skipped(why) if why == "faulty cannot run anything"));
}
