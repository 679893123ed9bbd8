//! Prints the counters of each request by pass, and the metrics derived from profiler tables.
//!
//! `cargo run -p rf-profile --example 07-counters -- gfx1100`
//!
//! Runs without a GPU: the tables are short samples in the format of rocprofv3.

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use rf_profile::Error;
use rf_profile::tables::{
    CounterProfile, CounterRow, KernelRow, Table, kernel_table, summarize_kernels,
};
use rf_profile::tools::{CounterGroup, GpuGeneration, ProfileRequest};

const KERNELS: &str = "\
Kind,Agent_Id,Dispatch_Id,Kernel_Name,Start_Timestamp,End_Timestamp,VGPR_Count,Scratch_Size
KERNEL_DISPATCH,1,1,matvec_q4_k,1000,31000,64,0
KERNEL_DISPATCH,1,2,matvec_q4_k,40000,72000,64,0
KERNEL_DISPATCH,1,3,rms_norm,80000,82000,16,0
";

const COUNTERS: &str = "\
Dispatch_Id,Kernel_Name,Counter_Name,Counter_Value
1,matvec_q4_k,FETCH_SIZE,9216
1,matvec_q4_k,WRITE_SIZE,16
1,matvec_q4_k,GL2C_HIT_sum,1000
1,matvec_q4_k,GL2C_MISS_sum,9000
1,matvec_q4_k,OccupancyPercent,62.5
";

fn main() -> Result<(), Error> {
    let gfx = std::env::args().nth(1).unwrap_or_else(|| "gfx1100".to_owned());
    println!("kernels: one pass without counters: {:?}", ProfileRequest::kernels().passes);
    for (name, request) in [
        ("memory", ProfileRequest::memory(&gfx)?),
        ("detailed memory", ProfileRequest::detailed_memory(&gfx)?),
        ("matmul memory", ProfileRequest::matmul_memory(&gfx)?),
        ("compute unit", ProfileRequest::compute_unit(&gfx)?),
    ] {
        println!("{name}: {} passes", request.passes.len());
        for pass in &request.passes {
            println!("  {}", pass.join(" "));
        }
    }
    if let Some(generation) = GpuGeneration::of(&gfx) {
        for group in CounterGroup::ALL {
            println!("{group:?} on {gfx}: {}", group.counters(generation).join(" "));
        }
    }

    let kernels = KernelRow::all(&Table::parse(KERNELS, "kernel_trace.csv")?)?;
    println!("\n{}", kernel_table(&summarize_kernels(&kernels)));
    let counters = CounterRow::all(&Table::parse(COUNTERS, "counter_collection.csv")?)?;
    let profile = CounterProfile::new(&counters)?;
    for kernel in profile.kernels() {
        println!(
            "{kernel}: {:.0} GB/s, L2 hit rate {:.0} %, occupancy {:.0} %",
            profile.bandwidth_bytes_per_s(kernel, &kernels).unwrap_or_default() / 1e9,
            100.0 * profile.l2_hit_rate(kernel).unwrap_or_default(),
            100.0 * profile.occupancy(kernel).unwrap_or_default(),
        );
    }
    Ok(())
}
