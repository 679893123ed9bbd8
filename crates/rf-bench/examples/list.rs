//! Prints the table of workloads: what each moves and computes, and whether it belongs to the quick subset.
//!
//! The committed one is `tests/workloads.txt`: `cargo run -p rf-bench --example list > crates/rf-bench/tests/workloads.txt`.

use rf_bench::{Suite, workloads};

fn main() {
    for workload in Suite::OPS.into_iter().flat_map(workloads) {
        #[expect(clippy::print_stdout, reason = "what the example is for")]
        {
            println!("{workload}");
        }
    }
}
