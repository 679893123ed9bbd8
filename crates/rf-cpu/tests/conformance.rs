//! The conformance cases on every ISA of this CPU, with one thread and with several.

#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::collections::BTreeMap;
use std::sync::Arc;

use rf_cpu::{CpuBackend, CpuOptions, Isa};
use rf_graph::{
    Backend, BackendError, Batch, DType, Executor, NonFiniteWeight, Output, RowKind, Span, Weight,
};
use rf_kv::{CopyPage, PageGroup, PageId};
use rf_oracle::ReferenceBackend;
use rf_oracle::case::{Case, cases};
use rf_oracle::conformance::{CaseOutcome, Deviation, for_all, prepare};

/// Cases that this backend does not pass: the prefix of the name, and the reason.
const IGNORED: [(&str, &str); 0] = [];

/// Named backends: every available ISA with every tested number of threads. The first one is the
/// portable ISA. It runs with one number of threads only, because it is many times slower than the
/// others, and the division of work among threads does not depend on the ISA.
fn backends() -> Vec<(String, CpuBackend)> {
    let mut backends = Vec::new();
    for (i, isa) in Isa::available().into_iter().enumerate() {
        let threads: &[usize] = if i == 0 { &[3] } else { &[1, 3] };
        for &threads in threads {
            let options = CpuOptions::default().with_threads(threads).with_isa(isa);
            let backend = CpuBackend::new(options).unwrap();
            backends.push((backend.description(), backend));
        }
    }
    backends
}

fn bits(outputs: &[Vec<f32>]) -> Vec<u32> {
    outputs.iter().flatten().map(|y| y.to_bits()).collect()
}

/// Runs a case on every backend. Returns the failures and the largest deviation.
fn run(case: &Case, backends: &[(String, CpuBackend)]) -> (Vec<String>, Deviation) {
    let mut wrong = Vec::new();
    let mut first: Option<(&str, Vec<u32>, Deviation)> = None;
    let prepared = prepare(case).unwrap();
    for (name, backend) in backends {
        match prepared.check(backend) {
            Ok(CaseOutcome::Passed { deviation, outputs, .. }) => match &first {
                None => first = Some((name, bits(&outputs), deviation)),
                Some((first, expected, _)) if *expected != bits(&outputs) => {
                    wrong.push(format!("{}: {name} and {first} differ", case.name()));
                }
                Some(_) => {}
            },
            Ok(other) => wrong.push(format!("{}: {name}: {other:?}", case.name())),
            Err(mismatch) => wrong.push(format!("{name}: {mismatch}")),
        }
    }
    (wrong, first.map(|(_, _, deviation)| deviation).unwrap_or_default())
}

/// For work on one kernel, `ROCFORGE_CONFORMANCE` restricts the cases to names that contain its
/// value.
#[test]
fn every_case_passes_with_the_same_bits_on_every_isa_and_any_number_of_threads() {
    let backends = backends();
    let cases = cases();
    let mut wrong = Vec::new();
    let mut worst: BTreeMap<String, (f64, f64, &str)> = BTreeMap::new();
    let filter = std::env::var("ROCFORGE_CONFORMANCE").unwrap_or_default();
    let results = for_all(&cases, |case| {
        if !case.name().contains(&filter) {
            return None;
        }
        let ignored = IGNORED.iter().find(|(name, _)| case.name().starts_with(name));
        if let Some((_, reason)) = ignored {
            eprintln!("skipped: {}: {reason}", case.name());
            return None;
        }
        Some((case, run(case, &backends)))
    });
    let ran = results.iter().flatten().count();
    for (case, (complaints, deviation)) in results.into_iter().flatten() {
        wrong.extend(complaints);
        let entry = worst.entry(format!("{:?}", case.bound())).or_default();
        if deviation.nmse >= entry.0 {
            *entry = (deviation.nmse, deviation.peak, case.name());
        }
    }
    eprintln!("{ran} cases on {} backends; largest deviations:", backends.len());
    for (bound, (nmse, peak, case)) in worst {
        eprintln!("{bound:16} NMSE {nmse:.1e} peak {peak:.1e} {case}");
    }
    assert!(wrong.is_empty(), "{} failures:\n{}", wrong.len(), wrong.join("\n"));
}

fn case(name: &str) -> Case {
    cases().into_iter().find(|case| case.name() == name).unwrap()
}

/// The outputs of an executor for each batch of a case.
fn outputs(executor: &mut dyn Executor, case: &Case) -> Vec<Vec<f32>> {
    let program = case.program();
    let output = program.graph.value(program.graph.output());
    let forward = |batch: &Batch<'_>| {
        let rows = match output.rows {
            RowKind::Token => batch.ids.len(),
            RowKind::Output => batch.output_rows.len(),
        };
        let mut out = vec![f32::NAN; rows * output.width];
        executor.forward(batch, Output::rows(&mut out)).map(|()| out)
    };
    let mut forward = forward;
    case.batches().iter().map(|batch| batch.with(&mut forward).unwrap()).collect()
}

#[test]
fn a_weight_that_is_not_finite_is_refused_with_its_first_such_row() {
    let case = case("matmul/Q4_0/64x256");
    let nan_scale = [0x00, 0x7e];
    let refused = |backend: &dyn Backend| {
        let mut program = case.program();
        let weight = program.weights.iter_mut().find(|weight| weight.dtype() == DType::Q4_0);
        let weight = weight.unwrap();
        let mut bytes = weight.bytes().to_vec();
        for row in [61, 37, 40] {
            bytes[row * weight.row(0).len()..][..2].copy_from_slice(&nan_scale);
        }
        *weight = Weight::new("w", DType::Q4_0, 64, 256, Arc::new(bytes)).unwrap();
        backend.compile(program, &mut |_| ()).err()
    };
    let expected = NonFiniteWeight { tensor: "w".into(), row: 37 };
    for (name, backend) in backends() {
        let error = refused(&backend);
        assert!(
            matches!(&error, Some(BackendError::NonFiniteWeight(e)) if *e == expected),
            "{name}: {error:?}"
        );
    }
    let error = refused(&ReferenceBackend);
    assert!(matches!(error, Some(BackendError::NonFiniteWeight(e)) if e == expected));
}

#[test]
fn a_row_of_a_table_that_is_not_finite_is_refused_when_it_is_read() {
    let case = case("embed/Q4_0/96/scale-1");
    let mut program = case.program();
    let weight = &program.weights[0];
    let mut bytes = weight.bytes().to_vec();
    bytes[5 * weight.row(0).len()..][..2].copy_from_slice(&[0x00, 0x7e]);
    program.weights[0] =
        Weight::new("w", DType::Q4_0, weight.rows(), weight.columns(), Arc::new(bytes)).unwrap();
    let (_, backend) = backends().remove(0);
    let mut executor = backend.compile(program, &mut |_| ()).unwrap();
    let mut forward = |id| {
        case.batches()[0].with(|batch| {
            executor.forward(&Batch { ids: &[id], ..*batch }, Output::rows(&mut [0.0; 96]))
        })
    };
    assert!(forward(4).is_ok());
    let expected = NonFiniteWeight { tensor: "w".into(), row: 5 };
    assert!(matches!(forward(5), Err(BackendError::NonFiniteWeight(e)) if e == expected));
    assert!(forward(6).is_ok());
}

fn copy(from: PageId, to: PageId) -> CopyPage {
    CopyPage { group: PageGroup::Full, from, to }
}

#[test]
fn a_bad_batch_is_refused_and_the_executor_stays_usable() {
    let case = case("model/llama-q8_0");
    for (name, backend) in backends() {
        let compile = || backend.compile(case.program(), &mut |_| ()).unwrap();
        let expected = outputs(&mut *compile(), &case);
        let mut executor = compile();
        let (pages, beyond) = ([PageId::new(0), PageId::new(1)], [PageId::new(9999)]);
        let span = |tokens: usize, past_tokens, pages| {
            [Span { tokens: 0..tokens, past_tokens, pages, ..Span::default() }]
        };
        let width = 97;
        for (ids, spans, output_rows, room) in [
            (&[9999][..], span(1, 0, &pages), &[0][..], width),
            (&[u32::MAX], span(1, 0, &pages), &[0], width),
            (&[1], span(1, 0, &beyond), &[0], width),
            (&[1], span(1, 32, &pages), &[0], width),
            (&[1], span(1, usize::MAX, &pages), &[0], width),
            (&[1; 30], span(30, 0, &pages), &[0], width),
            (&[1], span(1, 0, &pages), &[1], width),
            (&[1], span(1, 0, &pages), &[0], width - 1),
            (&[1], span(1, 0, &pages), &[0], width + 1),
            (&[], span(0, 0, &pages), &[], 0),
        ] {
            let batch = Batch { ids, spans: &spans, output_rows, input: None };
            let error = executor.forward(&batch, Output::rows(&mut vec![0.0; room])).unwrap_err();
            assert!(matches!(error, BackendError::InvalidBatch(_)), "{name}: {error}");
        }
        let error = executor.copy_pages(&[copy(pages[0], beyond[0])]).unwrap_err();
        assert!(matches!(error, BackendError::InvalidBatch(_)), "{name}: {error}");
        assert_eq!(bits(&outputs(&mut *executor, &case)), bits(&expected), "{name}");
        // A second run overwrites the cache from position 0.
        assert_eq!(bits(&outputs(&mut *executor, &case)), bits(&expected), "{name}");
    }
}

#[test]
fn programs_of_one_backend_are_independent() {
    let backend = CpuBackend::new(CpuOptions::default().with_threads(3)).unwrap();
    let cases = [case("model/llama-q8_0"), case("model/qwen2")];
    let mut executors = [0, 1].map(|i| backend.compile(cases[i].program(), &mut |_| ()).unwrap());
    let expected = [0, 1].map(|i| bits(&outputs(&mut *executors[i], &cases[i])));
    let [first, second] = &mut executors;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| bits(&outputs(&mut **second, &cases[1])));
        assert_eq!(bits(&outputs(&mut **first, &cases[0])), expected[0]);
        assert_eq!(other.join().unwrap(), expected[1]);
    });
}

#[test]
fn a_copied_page_holds_what_the_original_does() {
    for kv in ["f32", "f16", "q8_0", "fp8", "q4_0", "q5_0"] {
        let case = case(&format!("attention/rope/{kv}"));
        let backend = CpuBackend::new(CpuOptions::default().with_threads(2)).unwrap();
        let mut executor = backend.compile(case.program(), &mut |_| ()).unwrap();
        let (from, to) = ([PageId::new(0)], [PageId::new(2)]);
        let mut forward = |ids: &[u32], past_tokens, pages: &[PageId]| {
            let spans = [Span { tokens: 0..ids.len(), past_tokens, pages, ..Span::default() }];
            let mut out = vec![0.0; ids.len() * 4 * 64];
            let batch = Batch { ids, spans: &spans, output_rows: &[], input: None };
            executor.forward(&batch, Output::rows(&mut out)).unwrap();
            out
        };
        forward(&[1, 2, 3, 4, 5], 0, &from);
        let original = forward(&[6], 5, &from);
        executor.copy_pages(&[copy(from[0], to[0])]).unwrap();
        let mut out = vec![0.0; 4 * 64];
        let spans = [Span { tokens: 0..1, past_tokens: 5, pages: &to, ..Span::default() }];
        let batch = Batch { ids: &[6], spans: &spans, output_rows: &[], input: None };
        executor.forward(&batch, Output::rows(&mut out)).unwrap();
        assert_eq!(out, original, "{kv}");
    }
}
