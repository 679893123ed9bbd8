//! `cargo xtask bench serve` against this build's `rf-cli serve`. No test judges a time.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::path::{Path, PathBuf};

use rf_bench::model::ModelFile;
use rf_bench::serve::{Arrivals, Load, Programs, ServeComparison, ServerOptions, compare};
use rf_bench::{Error, Interrupt};

const LOADS: [Load; 2] = [
    Load {
        arrivals: Arrivals::Concurrency(1),
        requests: 3,
        shared_tokens: 96,
        prompt_tokens: 5,
        generated_tokens: 4,
    },
    Load {
        arrivals: Arrivals::Rate(50.0),
        requests: 3,
        shared_tokens: 0,
        prompt_tokens: 7,
        generated_tokens: 3,
    },
];

fn measure(program: &str, interrupt: &Interrupt) -> Result<Vec<ServeComparison>, Error> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let model = ModelFile::new(checkout, None);
    let options = ServerOptions { repetitions: 2, ..ServerOptions::new(1, false, &LOADS) };
    let programs = Programs { own: PathBuf::from(program), peer: None };
    compare(&programs, &model, &LOADS, &options, interrupt, &mut |_| ())
}

#[test]
fn every_request_of_every_load_is_timed() {
    let comparisons = measure(env!("CARGO_BIN_EXE_rf-cli"), &Interrupt::default()).unwrap();
    assert_eq!(comparisons.iter().map(|one| one.load).collect::<Vec<_>>(), LOADS);
    for ServeComparison { load, ours, theirs } in &comparisons {
        assert_eq!((ours.len(), theirs.len()), (2, 0));
        for request in ours.iter().flat_map(|run| &run.requests) {
            assert_eq!(request.prompt_tokens, load.shared_tokens + load.prompt_tokens);
            assert_eq!(request.generated_tokens, load.generated_tokens);
            assert!(request.first_token_s > 0.0 && request.first_token_s <= request.total_s);
            let from_gaps = request.first_token_s + request.gaps_s.iter().sum::<f64>();
            assert!(from_gaps <= request.total_s + 1e-9);
        }
    }
    // Later requests of a run find the pages of its first one; another run begins otherwise.
    for run in &comparisons[0].ours {
        assert_eq!(run.requests[0].cached_tokens, Some(0));
        for later in &run.requests[1..] {
            let cached = later.cached_tokens.unwrap();
            assert!((64..=96).contains(&cached), "{cached}");
        }
    }
}

#[test]
fn a_program_that_is_no_server_is_named() {
    let error = measure("/bin/false", &Interrupt::default()).unwrap_err().to_string();
    assert!(error.starts_with("server /bin/false failed: it ended with exit status: 1"), "{error}");
    let error = measure("/nonexistent/rf-cli", &Interrupt::default()).unwrap_err().to_string();
    assert_eq!(error, "could not start '/nonexistent/rf-cli'");
}

#[test]
fn an_interrupt_ends_the_comparison() {
    let interrupt = Interrupt::default();
    interrupt.request();
    // Before the server is ready, or without a run.
    match measure(env!("CARGO_BIN_EXE_rf-cli"), &interrupt) {
        Err(Error::Interrupted) => {}
        other => assert!(other.unwrap().is_empty()),
    }
}
