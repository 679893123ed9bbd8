//! Lists the installed profilers, demonstrates their errors, and runs `perf` and `rocprofv3`.
//!
//! `cargo run -p rf-profile --example 03-tools -- PROGRAM [ARGUMENTS]`

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rf_profile::Error;
use rf_profile::tables::{CounterProfile, CounterRow, Table, kernel_table};
use rf_profile::tools::{ProfileRequest, Runner, Session, Tool, Toolbox, available_tools, perf};

fn main() {
    for tool in available_tools() {
        let version = tool.version.unwrap_or_else(|why| format!("- ({why})"));
        println!("{:<20} {version}", tool.tool.program());
    }
    errors();
    let mut program: Vec<OsString> = std::env::args_os().skip(1).collect();
    if program.is_empty() {
        program = ["sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]
            .map(Into::into)
            .into();
    }
    let folder = std::env::temp_dir().join("rf-profile-example");
    if let Err(error) = with_perf(&program, &folder) {
        println!("\nperf skipped: {error}");
    }
    if let Err(error) = with_rocprofv3(&program, &folder) {
        println!("\nrocprofv3 skipped: {error}");
    }
}

/// Prints the errors of tools that do not exist, hang, or count nothing.
fn errors() {
    // Some guides name this tool, but it never existed.
    if let Err(error) = Tool::named("rocperf") {
        println!("\n{error}");
    }
    // A tool that hangs is killed, with all the processes that it started.
    let mut hangs = Command::new("sleep");
    hangs.arg("60");
    if let Err(error) = Runner::new(Duration::from_millis(200)).run(hangs) {
        println!("{error}");
    }
    // If all counters are zero, the hardware did not count.
    let table = "Kernel_Name,Counter_Name,Counter_Value\nmatvec,SQ_WAVES,0\n";
    let counters = Table::parse(table, "counters.csv").and_then(|table| CounterRow::all(&table));
    if let Err(error) = counters.and_then(|rows| CounterProfile::new(&rows)) {
        println!("{error}");
    }
}

fn with_perf(program: &[OsString], folder: &Path) -> Result<(), Error> {
    let tool = Toolbox::system().find(Tool::Perf)?;
    let runner = Runner::new(Session::LIMIT);
    let stacks = perf::record(&tool, &runner, folder, 999, program)?;
    println!("\n{} samples, most of them in", stacks.samples());
    for (function, _, share) in stacks.hottest().into_iter().take(8) {
        println!("{:>5.1} %  {function}", 100.0 * share);
    }
    let counters = perf::stat(&tool, &runner, folder, &perf::EVENTS, program)?;
    println!("\n{}", perf::counter_table(&counters));
    Ok(())
}

fn with_rocprofv3(program: &[OsString], folder: &Path) -> Result<(), Error> {
    let tool = Toolbox::system().find(Tool::Rocprofv3)?;
    let profile = Session::new(tool, folder).run(&ProfileRequest::kernels(), program)?;
    println!("\n{}", kernel_table(&profile.kernel_summaries()));
    Ok(())
}
