//! A worker with a planted slow-down, the other side of the ten-out-of-ten experiment of
//! benchmarks/README.md. `PLANTED=matmul:Q8_0=1.05` makes every matmul with a Q8_0 weight take 5 %
//! longer; without the variable it is an unchanged build.
//!
//! ```text
//! cargo build --release -p rf-bench --bin rf-bench --example planted
//! target/release/rf-bench --quick --against target/release/examples/planted
//! ```

use std::process::ExitCode;
use std::{env, io};

use rf_bench::paired::worker;

use self::planted::{Planted, Rule};

#[path = "../tests/planted/mod.rs"]
mod planted;

fn main() -> ExitCode {
    let rule = match env::var("PLANTED").map(|text| Rule::parse(&text)) {
        Ok(Err(reason)) => return fail(&format!("PLANTED: {reason}")),
        Ok(Ok(rule)) => Some(rule),
        Err(_) => None,
    };
    let served = worker::serve(io::stdin().lock(), io::stdout().lock(), |target| match &rule {
        Some(rule) => target.map_backend(|backend| Box::new(Planted::new(backend, rule.clone()))),
        None => target,
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

#[expect(clippy::print_stderr, reason = "where a program reports its failure")]
fn fail(reason: &str) -> ExitCode {
    eprintln!("error: {reason}");
    ExitCode::from(2)
}
