//! `RUST_LOG` selects the log events that go to stderr.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::path::Path;

use program::{Finished, rf_cli};

/// Runs the demo model for one token with a filter.
fn run(filter: Option<&str>) -> Finished {
    let arguments = ["run", "-q", "-n", "1", "--temp", "0", "--raw", "Once", "--device", "cpu"];
    let mut command = rf_cli(Path::new(env!("CARGO_MANIFEST_DIR")), &arguments);
    command.envs(filter.map(|filter| ("RUST_LOG", filter)));
    let finished = Finished::of(command.output().unwrap());
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    finished
}

#[test]
fn a_filter_shows_the_events_of_its_target_and_no_others() {
    let finished = run(Some("rf_engine=debug"));
    let lines: Vec<_> = finished.stderr.lines().collect();
    assert!(!lines.is_empty());
    for line in &lines {
        assert!(line.starts_with("debug rf_engine"), "{line}");
    }
    let memory = lines.iter().find(|line| line.contains("memory need")).unwrap();
    assert!(memory.contains("weights_bytes=") && memory.contains("backend=\"CPU\""), "{memory}");
    // A level alone is a filter for all targets.
    let all = run(Some("debug"));
    assert!(all.stderr.contains("debug rf_engine"), "{}", all.stderr);
}

#[test]
fn without_a_filter_only_warnings_are_shown() {
    for filter in [None, Some(""), Some("off"), Some("rf_engine=warn")] {
        assert_eq!(run(filter).stderr, "", "{filter:?}");
    }
}

#[test]
fn an_invalid_filter_is_a_warning_that_names_it() {
    for filter in ["rf_engine=loud", "rf_engine=debug=debug"] {
        let stderr = run(Some(filter)).stderr;
        let start = format!("warning: RUST_LOG={filter} is not a valid filter");
        assert!(stderr.starts_with(&start) && stderr.lines().count() == 1, "{stderr}");
    }
}
