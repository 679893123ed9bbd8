//! `rf-cli devices`: lists the GPUs of this machine.

use std::io::{self, Write};

use anyhow::Result;
use clap::Args;
use rocmforge::device::probe::{self, DeviceReport, PlatformReport};
use serde_json::json;

use super::probe::prober;
use crate::terminal::{self, Palette};

/// Arguments of `rf-cli devices`.
#[derive(Debug, Args)]
#[command(after_help = "\
A GPU is usable if the program has a code object for it or its family, or can compile one with ROCm's \
libhiprtc. `rf-cli doctor` names the cure for each problem.")]
pub(crate) struct DevicesArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `rf-cli devices`.
pub(crate) fn devices(arguments: &DevicesArgs) -> Result<()> {
    let reports = prober()?.survey()?;
    let mut out = io::stdout().lock();
    if arguments.json {
        let devices: Vec<_> = reports.iter().flat_map(|report| &report.devices).collect();
        let default = probe::best(&reports).map(|device| device.number);
        let runtimes: Vec<_> = reports.iter().map(runtime).collect();
        let json = json!({ "devices": devices, "default": default, "runtimes": runtimes });
        writeln!(out, "{json:#}")?;
        return Ok(());
    }
    let default = probe::best(&reports);
    for device in reports.iter().flat_map(|report| &report.devices) {
        let is_default = default.is_some_and(|best| best.number == device.number);
        write_device(&mut out, device, is_default)?;
    }
    for report in &reports {
        if let Some(error) = report.error.as_ref().filter(|_| !report.is_absent) {
            terminal::warn(format_args!("{}: {error}", report.platform));
        }
    }
    if default.is_none() {
        terminal::note(
            "no usable GPU, so everything runs on the CPU: run `rf-cli doctor` for the reason",
        );
    }
    Ok(())
}

fn write_device(out: &mut impl Write, device: &DeviceReport, is_default: bool) -> io::Result<()> {
    let palette = Palette::stdout();
    let head = format!("{}  {}", device.number, device.name.escape_debug());
    let note = if is_default { "  (the default)" } else { "" };
    writeln!(out, "{}{note}", palette.bold(head))?;
    let kind = if device.integrated { "integrated, shares memory" } else { "card" };
    writeln!(
        out,
        "   {}, {}, {} of memory, {} compute units, {kind}{}{}",
        device.platform,
        device.arch,
        terminal::bytes(device.memory_bytes),
        device.compute_units,
        if device.pci_bus_id.is_empty() { "" } else { ", at " },
        device.pci_bus_id.to_lowercase()
    )?;
    match (&device.code, &device.problem) {
        (Some(code), _) => writeln!(out, "   usable, with code for {code}"),
        (None, Some(problem)) => writeln!(out, "   skipped: {problem}"),
        (None, None) => writeln!(out, "   skipped"),
    }
}

fn runtime(report: &PlatformReport) -> serde_json::Value {
    json!({
        "platform": report.platform,
        "library": report.library,
        "version": report.version,
        "driver_version": report.driver_version,
        "compiler": report.compiler,
        "error": report.error,
    })
}
