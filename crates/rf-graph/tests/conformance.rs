//! The table of cases on the reference itself: fused forms compute what the unfused do.

use std::collections::HashSet;

use rf_graph::ReferenceBackend;
use rf_graph::conformance::{Deviation, Outcome, cases};

#[test]
fn every_fused_form_of_every_case_computes_the_same_on_the_reference() {
    let mut forms = 0;
    for case in cases() {
        match case.prepare().unwrap().check(&ReferenceBackend).unwrap() {
            Outcome::Passed { deviation, outputs } => {
                // A fused op rounds where its parts round, so the reference gives the same bits.
                assert_eq!(deviation, Deviation::default(), "{case:?}");
                assert!(outputs.iter().flatten().all(|y| y.is_finite()), "{case:?}");
                assert!(outputs.iter().any(|y| y.iter().any(|y| *y != 0.0)), "{case:?}");
                forms += outputs.len() / case.batches().len();
            }
            other => panic!("{case:?}: {other:?}"),
        }
    }
    // Each switch has cases that it changes.
    assert!(forms > cases().len() + 100, "{forms} forms");
}

#[test]
fn names_of_cases_are_unique() {
    let names: Vec<String> = cases().iter().map(|case| case.name().to_owned()).collect();
    let unique: HashSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    assert!(names.len() > 300, "{}", names.len());
}
