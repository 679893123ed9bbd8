//! Which profilers are here; what `perf` says of a program, and `rocprofv3` of its kernels.
//!
//! `cargo run -p rf-profile --example 03-tools -- PROGRAM [ARGUMENTS]`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::ffi::OsString;
use std::path::Path;

use rf_profile::Error;
use rf_profile::tables::kernel_table;
use rf_profile::tools::{Request, Runner, Session, Tool, Toolbox, available_tools, perf};

fn main() {
    for tool in available_tools() {
        let version = tool.version.unwrap_or_else(|why| format!("- ({why})"));
        println!("{:<20} {version}", tool.tool.program());
    }
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

fn with_perf(program: &[OsString], folder: &Path) -> Result<(), Error> {
    let tool = Toolbox::system().find(Tool::Perf)?;
    let runner = Runner::new(Session::LIMIT);
    let stacks = perf::record(&tool, &runner, folder, 999, program)?;
    println!("\n{} samples; most were in", stacks.samples());
    for (function, _, share) in stacks.hottest().into_iter().take(8) {
        println!("{:>5.1} %  {function}", 100.0 * share);
    }
    let counters = perf::stat(&tool, &runner, folder, &perf::EVENTS, program)?;
    println!("\n{}", perf::counter_table(&counters));
    Ok(())
}

fn with_rocprofv3(program: &[OsString], folder: &Path) -> Result<(), Error> {
    let tool = Toolbox::system().find(Tool::Rocprofv3)?;
    let profile = Session::new(tool, folder).run(&Request::kernels(), program)?;
    println!("\n{}", kernel_table(&profile.kernel_summaries()));
    Ok(())
}
