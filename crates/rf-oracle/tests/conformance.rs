//! The case table on the reference backend, where fused and unfused forms give the same bits, and
//! on backends with faults.

use std::collections::{HashMap, HashSet};

use rf_graph::{
    Backend, BackendError, Batch, DType, Executor, Fusions, KvType, MemoryNeed, MemoryUse,
    OperandFormat, Output, Program, Progress,
};
use rf_kv::CopyPage;
use rf_oracle::ReferenceBackend;
use rf_oracle::case::{Case, cases};
use rf_oracle::conformance::{CaseOutcome, Deviation, Mismatch, check, for_all, prepare};

#[test]
fn every_fused_form_of_every_case_computes_the_same_on_the_reference() {
    // The number of different forms of a case, whose results are equal.
    let count = |case: &Case| {
        match prepare(case).unwrap().check(&ReferenceBackend).unwrap() {
            CaseOutcome::Passed { deviation, outputs, .. } => {
                // A fused op rounds where its parts round, so the reference gives the same bits.
                // But the sum with a shared expert rounds once where it is one of the experts.
                if case.name().contains("/shared") {
                    assert!(deviation.nmse < 1e-13, "{case:?}: {deviation:?}");
                } else {
                    assert_eq!(deviation, Deviation::default(), "{case:?}");
                }
                assert!(outputs.iter().flatten().all(|y| y.is_finite()), "{case:?}");
                assert!(outputs.iter().any(|y| y.iter().any(|y| *y != 0.0)), "{case:?}");
                outputs.len() / case.batches().len()
            }
            other => panic!("{case:?}: {other:?}"),
        }
    };
    let cases = cases();
    let forms: HashMap<&str, usize> =
        for_all(&cases, |case| (case.name(), count(case))).into_iter().collect();
    // A matmul alone has one form. With a neighbour for fusion it has at least two forms, in every
    // format.
    for dtype in DType::ALL {
        assert_eq!(forms[&*format!("matmul/{dtype}/64x256")], 1);
        for neighbour in ["residual", "rms_norm", "glu-Silu", "glu-GeluTanh"] {
            let name = format!("matmul/{dtype}/{neighbour}");
            assert!(forms[&*name] >= 2, "{name}: {}", forms[&*name]);
        }
    }
}

#[test]
fn names_of_cases_are_unique_and_every_format_has_all_shapes() {
    let cases = cases();
    let unique: HashSet<&str> = cases.iter().map(Case::name).collect();
    assert_eq!(unique.len(), cases.len());
    let count = |op: &str, format| {
        cases.iter().filter(|case| case.op() == op && case.format() == Some(format)).count()
    };
    for dtype in DType::ALL {
        let columns = if dtype.block_elements() == 256 { 2 } else { 4 };
        // Three row counts for each column count, one large shape, six neighbours.
        let plain = 3 * columns + 1 + 6;
        let extremes = match dtype {
            DType::Mxfp4 | DType::Mxfp6E2M3 | DType::Mxfp6E3M2 => 2,
            _ => 0,
        };
        assert!(count("matmul", OperandFormat::Weight(dtype)) >= plain + extremes, "{dtype}");
        assert!(count("embed", OperandFormat::Weight(dtype)) >= 4, "{dtype}");
    }
    for kv in KvType::ALL {
        // Eight head sizes, thirteen variants, three long sequences.
        assert!(count("attention", OperandFormat::Cache(kv)) >= 8 + 13 + 4, "{kv}");
    }
}

/// The reference backend with a fault.
struct Faulty(Fault);

#[derive(Clone, Copy)]
enum Fault {
    /// One element of each batch deviates by half of the largest element.
    OneElement,
    /// The last element is not written.
    Unwritten,
    /// All elements are too large by a factor of 1.001.
    Drift,
    /// No program is supported.
    Unsupported,
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

    fn memory_need(&self, program: &Program) -> Result<MemoryNeed, BackendError> {
        ReferenceBackend.memory_need(program)
    }

    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError> {
        if matches!(self.0, Fault::Unsupported) {
            return Err(BackendError::Unsupported { backend: "faulty", what: "anything".into() });
        }
        Ok(Box::new(FaultyExecutor(self.0, ReferenceBackend.compile(program, progress)?)))
    }
}

struct FaultyExecutor(Fault, Box<dyn Executor>);

impl Executor for FaultyExecutor {
    fn forward(&mut self, batch: &Batch<'_>, output: Output<'_>) -> Result<(), BackendError> {
        let out = output.into_whole_rows()?;
        self.1.forward(batch, Output::rows(out))?;
        let largest = out.iter().fold(0.0_f32, |m, y| m.max(y.abs()));
        match (self.0, out.last_mut()) {
            (Fault::OneElement, Some(last)) => *last += largest / 2.0,
            (Fault::Unwritten, Some(last)) => *last = f32::NAN,
            _ => out.iter_mut().for_each(|y| *y *= 1.001),
        }
        Ok(())
    }

    fn copy_pages(&mut self, copies: &[CopyPage]) -> Result<(), BackendError> {
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
    let unsupported = check(&Faulty(Fault::Unsupported), &case("add")).unwrap();
    assert!(
        matches!(unsupported, CaseOutcome::Skipped(why) if why == "faulty cannot run anything")
    );
}
