//! The stand-in as rf-hip sees it: devices, memory, streams, captures, injected faults.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod emulated;

use std::ffi::OsStr;
use std::fs;

use emulated::{in_child, library};
use rf_emu::cost::Costs;
use rf_emu_hip::without_symbols;
use rf_hip::{Context, DeviceBuffer, Error, Event, PinnedBuffer, Runtime, Stream};

/// The first device and a stream.
fn open() -> (Context, Stream) {
    open_device(&Runtime::load().unwrap(), 0)
}

fn open_device(runtime: &Runtime, ordinal: usize) -> (Context, Stream) {
    let context = runtime.device(ordinal).unwrap().context().unwrap();
    let stream = Stream::new(&context).unwrap();
    (context, stream)
}

fn variable<'a>(name: &'a str, value: &'a str) -> (&'a str, &'a OsStr) {
    (name, OsStr::new(value))
}

#[test]
fn devices_are_those_of_the_environment() {
    let name = "devices_are_those_of_the_environment";
    if !in_child(name, &[variable("ROCFORGE_EMU_ARCH", "gfx1030, gfx1201,gfx1151")]) {
        return;
    }
    let devices = Runtime::load().unwrap().devices().unwrap();
    let infos: Vec<_> = devices.iter().map(rf_hip::Device::info).collect();
    let archs: Vec<_> = infos.iter().map(|info| &*info.arch).collect();
    assert_eq!(archs, ["gfx1030", "gfx1201", "gfx1151"]);
    assert_eq!(infos[0].name, "AMD Radeon RX 6900 XT (emulated)");
    assert_eq!((infos[1].wave_size, infos[1].compute_units), (32, 32));
    assert_eq!((infos[1].lds_bytes_per_workgroup, infos[1].total_memory_bytes), (65536, 16 << 30));
    assert!(infos[2].integrated && !infos[1].integrated);
    assert_ne!(infos[0].pci_bus_id, infos[1].pci_bus_id);
    assert_eq!(devices[2].memory_info().unwrap(), (64 << 30, 64 << 30));
}

#[test]
fn wrong_settings_are_errors_and_no_panic() {
    if !in_child("wrong_settings_are_errors_and_no_panic", &[variable("ROCFORGE_EMU_ARCH", "gfx9")])
    {
        return;
    }
    let error = Runtime::load().unwrap_err();
    assert_eq!(error.status(), Some(3), "{error}");
}

#[test]
fn memory_is_copied_filled_and_limited() {
    let limit = [
        variable("ROCFORGE_EMU_MEMORY_MIB", "1"),
        variable("ROCFORGE_EMU_ARCH", "gfx1201,gfx1201"),
    ];
    if !in_child("memory_is_copied_filled_and_limited", &limit) {
        return;
    }
    let runtime = Runtime::load().unwrap();
    let (context, stream) = open_device(&runtime, 0);
    let data: Vec<u32> = (0..1000).collect();
    let buffer = DeviceBuffer::from_slice(&stream, &data).unwrap();
    let copy = DeviceBuffer::<u32>::new(&context, 1000).unwrap();
    copy.fill(&stream, 0..1000, 0xabcd_1234).unwrap();
    copy.copy_from_device(&stream, 10, &buffer, 500..600).unwrap();
    let copied = copy.to_vec(&stream).unwrap();
    assert_eq!(copied[10..110], data[500..600]);
    assert_eq!((copied[9], copied[110]), (0xabcd_1234, 0xabcd_1234));

    let mut pinned = PinnedBuffer::<u32>::new(&context, 1000).unwrap();
    copy.copy_to_pinned(&stream, 0, &mut pinned, 0..1000).unwrap();
    assert_eq!(pinned[..], copied[..]);

    let (other, stream_there) = open_device(&runtime, 1);
    let there = DeviceBuffer::<u32>::new(&other, 1000).unwrap();
    there.copy_from_device(&stream_there, 0, &buffer, 0..1000).unwrap();
    assert_eq!(there.to_vec(&stream_there).unwrap(), data);

    let (free, total) = context.memory_info().unwrap();
    assert_eq!((free, total), ((1 << 20) - 8000, 1 << 20));
    assert!(DeviceBuffer::<u8>::new(&context, free as usize + 1).unwrap_err().is_out_of_memory());
    drop(DeviceBuffer::<u8>::new(&context, free as usize).unwrap());
    drop((buffer, copy));
    assert_eq!(context.memory_info().unwrap().0, 1 << 20);
}

#[test]
fn events_have_times_and_captures_have_graphs() {
    if !in_child("events_have_times_and_captures_have_graphs", &[]) {
        return;
    }
    let (context, stream) = open();
    let (start, end) = (Event::new(&context, true).unwrap(), Event::new(&context, true).unwrap());
    let buffer = DeviceBuffer::<u32>::zeroed(&context, 64).unwrap();
    stream.record(&start).unwrap();
    buffer.fill(&stream, 0..64, 1).unwrap();
    stream.record(&end).unwrap();
    assert!(stream.is_idle().unwrap());

    let graph = stream.capture(|| {
        buffer.fill(&stream, 0..32, 7)?;
        buffer.fill(&stream, 32..64, 9)
    });
    let graph = graph.unwrap();
    assert_eq!(graph.node_count().unwrap(), 2);
    assert_eq!(buffer.to_vec(&stream).unwrap(), [1; 64], "a capture runs nothing");
    let exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    let values = buffer.to_vec(&stream).unwrap();
    assert_eq!((values[31], values[32]), (7, 9));

    let other = stream.capture(|| buffer.fill(&stream, 0..32, 8)).unwrap();
    assert!(!exec.update(&other).unwrap(), "another shape");

    // A wait during a capture invalidates it.
    let outcome = stream.capture(|| {
        assert!(context.synchronize().is_err());
        Ok::<(), Error>(())
    });
    assert_eq!(outcome.unwrap_err().status(), Some(901));
    buffer.fill(&stream, 0..64, 3).unwrap();
    assert_eq!(buffer.to_vec(&stream).unwrap(), [3; 64]);
}

#[test]
fn the_call_of_a_plan_fails_and_only_that() {
    let plan = "hipMalloc:2:hipErrorOutOfMemory,hipMemsetD8Async:1:hipErrorInvalidValue";
    if !in_child("the_call_of_a_plan_fails_and_only_that", &[variable("ROCFORGE_EMU_FAIL", plan)]) {
        return;
    }
    let (context, stream) = open();
    let first = DeviceBuffer::<u8>::new(&context, 8).unwrap();
    assert!(DeviceBuffer::<u8>::new(&context, 8).unwrap_err().is_out_of_memory());
    DeviceBuffer::<u8>::new(&context, 8).unwrap();
    let error = first.fill_zero(&stream).unwrap_err().to_string();
    assert_eq!(error, "hipMemsetD8Async failed with hipErrorInvalidValue (1): invalid argument");
    first.fill_zero(&stream).unwrap();
}

#[test]
fn a_lost_device_stays_lost() {
    let plan = variable("ROCFORGE_EMU_FAIL", "hipStreamSynchronize:2:hipErrorLaunchFailure");
    if !in_child("a_lost_device_stays_lost", &[plan]) {
        return;
    }
    let (context, stream) = open();
    stream.synchronize().unwrap();
    assert!(stream.synchronize().unwrap_err().is_device_lost());
    assert!(DeviceBuffer::<u8>::new(&context, 8).unwrap_err().is_device_lost());
    assert!(context.synchronize().unwrap_err().is_device_lost());
}

#[test]
fn a_plan_in_a_file_changes_between_runs_and_the_log_counts_objects() {
    let name = "a_plan_in_a_file_changes_between_runs_and_the_log_counts_objects";
    let folder = tempfile::TempDir::new().unwrap();
    let (plan, log) = (folder.path().join("plan"), folder.path().join("log"));
    fs::write(&plan, "hipMalloc:1:2").unwrap();
    let file = format!("@{}", plan.display());
    let variables = [variable("ROCFORGE_EMU_FAIL", &file), ("ROCFORGE_EMU_LOG", log.as_os_str())];
    if !in_child(name, &variables) {
        let log = fs::read_to_string(log).unwrap();
        let mallocs: Vec<_> = log.lines().filter(|line| line.starts_with("hipMalloc ")).collect();
        assert_eq!(mallocs, ["hipMalloc 1 2 1", "hipMalloc 1 0 2"], "{log}");
        assert!(log.ends_with("hipStreamDestroy 1 0 0\n"), "{log}");
        return;
    }
    let plan = std::env::var("ROCFORGE_EMU_FAIL").unwrap();
    let plan = plan.strip_prefix('@').unwrap();
    let (context, stream) = open();
    assert!(DeviceBuffer::<u8>::new(&context, 8).unwrap_err().is_out_of_memory());
    fs::write(plan, "").unwrap();
    assert_eq!(Runtime::load().unwrap().device_count().unwrap(), 1);
    drop(DeviceBuffer::<u8>::new(&context, 8).unwrap());
    drop(stream);
}

#[test]
fn costs_are_written_when_the_program_ends() {
    let folder = tempfile::TempDir::new().unwrap();
    let costs = folder.path().join("costs");
    let name = "costs_are_written_when_the_program_ends";
    if in_child(name, &[("ROCFORGE_EMU_COUNTERS", costs.as_os_str())]) {
        open();
        return;
    }
    let read = |name| fs::read_to_string(costs.join(name)).unwrap();
    assert_eq!(Costs::parse(&read("costs.toml")).unwrap(), [], "no kernel ran");
    assert_eq!((read("listing.txt").as_str(), read("stacks.txt").as_str()), ("", ""));
    assert!(read("costs.html").starts_with("<!DOCTYPE html>"));
}

#[test]
fn an_older_runtime_lacks_functions() {
    let folder = tempfile::TempDir::new().unwrap();
    let old = folder.path().join("libold.so");
    let lacking = ["hipMallocAsync", "hipGetDevicePropertiesR0600", "hipGraphInstantiateWithFlags"];
    fs::write(&old, without_symbols(&fs::read(library()).unwrap(), &lacking).unwrap()).unwrap();
    let variables = [("ROCFORGE_HIP_LIBRARY", old.as_os_str())];
    if !in_child("an_older_runtime_lacks_functions", &variables) {
        return;
    }
    let (context, stream) = open();
    assert_eq!(context.info().arch, "gfx1100", "from the structure of HIP 5");
    let error = DeviceBuffer::<u8>::on_stream(&stream, 8).unwrap_err();
    assert!(matches!(error, Error::MissingSymbol { symbol: "hipMallocAsync", .. }), "{error}");
    let buffer = DeviceBuffer::<u8>::zeroed(&context, 8).unwrap();
    let graph = stream.capture(|| buffer.fill_bytes(&stream, 0..8, 5)).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(buffer.to_vec(&stream).unwrap(), [5; 8]);
}
