//! Lists the GPUs and their properties.
//!
//! `cargo run -p rf-hip --example 01-devices`

#![expect(clippy::print_stdout, reason = "prints the result of an example")]

use rf_hip::{Error, Runtime};

fn main() -> Result<(), Error> {
    let runtime = match Runtime::load() {
        Ok(runtime) => runtime,
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    let versions = runtime.versions()?;
    println!("{} through {}", runtime.platform(), runtime.library_path().display());
    if let Some(runtime) = versions.runtime {
        println!("runtime {runtime}");
    }
    println!("driver {}", versions.driver);

    for device in runtime.devices()? {
        let info = device.info();
        let (free, total) = device.memory_info()?;
        println!("{}: {} [{}] at {}", info.ordinal, info.name, info.arch, info.pci_bus_id);
        println!(
            "   {} compute units, waves of {}, {} KiB LDS per workgroup (up to {}), {} MiB L2",
            info.compute_units,
            info.wave_size,
            info.lds_bytes_per_workgroup >> 10,
            info.lds_bytes_per_workgroup_opt_in >> 10,
            info.l2_bytes >> 20,
        );
        let kind = if info.integrated { "shared with the CPU" } else { "dedicated" };
        println!("   {} of {} MiB {kind} memory free", free >> 20, total >> 20);
    }
    if runtime.device_count()? == 0 {
        println!("skipped: the runtime finds no device");
    }
    Ok(())
}
