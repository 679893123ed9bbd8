//! Prints the table of workloads: name, cost, and a mark for the quick subset.
//!
//! `tests/workloads.txt.gz` is the committed table:
//! `cargo run -p rf-bench --example list | gzip -9n > crates/rf-bench/tests/workloads.txt.gz`.

use rf_bench::{Suite, workloads};

fn main() {
    for workload in Suite::OPS.into_iter().flat_map(workloads) {
        #[expect(clippy::print_stdout, reason = "the output of the example")]
        {
            println!("{workload}");
        }
    }
}
