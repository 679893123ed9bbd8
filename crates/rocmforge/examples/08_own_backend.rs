//! The choice of a device: which there are, which one the model gets, and what it will take.

#![expect(clippy::print_stdout, reason = "an example")]

use rocmforge::device::{CpuOptions, Device, DeviceOptions};
use rocmforge::{Error, Loader, Source};

fn main() -> Result<(), Error> {
    // `Device::Auto` takes a GPU if one is usable, `Device::Gpu` requires one.
    let cpu = CpuOptions::default().with_threads(2);
    let device = DeviceOptions::default().with_device(Device::Cpu).with_cpu(cpu);
    let loader = Loader::new(Source::Demo).device(device).context_tokens(512);
    let placement = loader.placement()?;
    println!("device: {}", placement.cpu()?.threads());

    let open = loader.open(&mut |_| ())?;
    let (options, need) = open.plan(&placement)?;
    println!(
        "{} sequences share a cache of {} tokens; the model takes {} MiB",
        options.sequences,
        options.kv_tokens.unwrap_or_default(),
        need.total_bytes() >> 20
    );
    let model = open.load_on(&placement, &mut |_| ())?.start()?;
    println!("it runs on {}", model.layers().cpu.as_deref().unwrap_or("a GPU"));
    println!("{}", model.complete("Once upon a time").max_tokens(16).answer()?.content);
    Ok(())
}
