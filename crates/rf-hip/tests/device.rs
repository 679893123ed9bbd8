//! Runs on the first GPU; skipped without one.

#![expect(clippy::unwrap_used, reason = "functions of tests")]
#![expect(unsafe_code, reason = "a launch is as safe as its kernel")]

mod axpy;

use axpy::{Axpy, BLOCK};
use rf_hip::{
    Context, DeviceBuffer, Error, Event, Function, LaunchConfig, MappedBuffer, Module,
    PinnedBuffer, Platform, Runtime, Stream, SyncMode,
};

/// A context on the first device, or `None` after printing the reason.
fn context() -> Option<Context> {
    let runtime = match Runtime::load() {
        Ok(runtime) => runtime,
        Err(error) => {
            rf_testing::skip!("{error}");
            return None;
        }
    };
    if runtime.device_count().unwrap() == 0 {
        rf_testing::skip!("the runtime finds no device");
        return None;
    }
    Some(runtime.device(0).unwrap().context().unwrap())
}

fn axpy_function(context: &Context) -> Option<Function> {
    match axpy::image(context.info()) {
        Ok(image) => Some(Module::load(context, &image).unwrap().function("axpy_f32").unwrap()),
        Err(reason) => {
            rf_testing::skip!("{reason}");
            None
        }
    }
}

/// Queues `y = a * x + y`. The caller keeps the buffers until the work is done.
fn launch(
    stream: &Stream,
    function: &Function,
    (a, x, y): (f32, &DeviceBuffer<f32>, &DeviceBuffer<f32>),
) -> Result<(), Error> {
    assert_eq!(x.len(), y.len());
    let params = Axpy { x: x.address(), y: y.address(), len: x.len() as u32, a };
    // SAFETY: the kernel's parameter; every test waits for the stream before it drops the buffers.
    unsafe { stream.launch(function, LaunchConfig::linear(x.len(), BLOCK), &params) }
}

#[test]
fn the_device_reports_its_properties() {
    let Some(context) = context() else { return };
    let info = context.info();
    let prefix = if info.platform == Platform::Amd { "gfx" } else { "sm_" };
    assert!(info.arch.starts_with(prefix), "{}", info.arch);
    assert!(!info.arch.contains(':'));
    assert!(info.wave_size == 32 || info.wave_size == 64);
    assert!(info.compute_units > 0 && info.max_threads_per_workgroup >= 256);
    assert!(info.lds_bytes_per_workgroup >= 32 << 10);
    let (free, total) = context.memory_info().unwrap();
    assert!(free <= total && total > 0);
}

#[test]
fn a_device_number_out_of_range_is_an_error() {
    let Ok(runtime) = Runtime::load() else {
        rf_testing::skip!("no runtime");
        return;
    };
    let count = runtime.device_count().unwrap();
    let error = runtime.device(count).unwrap_err();
    assert_eq!(error, Error::NoSuchDevice { ordinal: count, count });
}

#[test]
fn slices_survive_a_round_trip() {
    let Some(context) = context() else { return };
    let stream = Stream::new(&context).unwrap();
    let buffer = DeviceBuffer::<u16>::zeroed(&context, 1000).unwrap();
    assert!(buffer.to_vec(&stream).unwrap().iter().all(|&value| value == 0));

    let data: Vec<u16> = (0..100).collect();
    buffer.copy_from_slice(&stream, 17, &data).unwrap();
    let mut part = [0u16; 100];
    buffer.copy_to_slice(&stream, 17, &mut part).unwrap();
    assert_eq!(part[..], data[..]);
    let all = buffer.to_vec(&stream).unwrap();
    assert!(all[..17].iter().chain(&all[117..]).all(|&value| value == 0));
}

#[test]
fn fills_change_only_their_range() {
    let Some(context) = context() else { return };
    let stream = Stream::new(&context).unwrap();
    let buffer = DeviceBuffer::<f32>::zeroed(&context, 64).unwrap();
    buffer.fill(&stream, 8..16, 1.5).unwrap();
    buffer.fill_bytes(&stream, 32..40, 0xff).unwrap();
    let all = buffer.to_vec(&stream).unwrap();
    for (i, value) in all.iter().enumerate() {
        match i {
            8..16 => assert_eq!(value.to_bits(), 1.5f32.to_bits()),
            32..40 => assert!(value.is_nan()),
            _ => assert_eq!(value.to_bits(), 0),
        }
    }
    let wide = DeviceBuffer::<u64>::new(&context, 4).unwrap();
    assert!(wide.fill(&stream, 0..4, u64::MAX).is_ok());
    assert!(wide.fill(&stream, 0..4, 1).unwrap_err().is_unsupported());
}

#[test]
fn ranges_outside_a_buffer_are_errors() {
    let Some(context) = context() else { return };
    let stream = Stream::new(&context).unwrap();
    let buffer = DeviceBuffer::<u32>::zeroed(&context, 10).unwrap();
    let out_of_bounds =
        |outcome: Result<(), Error>| matches!(outcome, Err(Error::OutOfBounds { .. }));
    assert!(out_of_bounds(buffer.copy_from_slice(&stream, 8, &[0; 3])));
    assert!(out_of_bounds(buffer.copy_to_slice(&stream, usize::MAX, &mut [0; 3])));
    assert!(out_of_bounds(buffer.copy_from_device(&stream, 0, &buffer, 5..11)));
    assert!(out_of_bounds(buffer.fill_bytes(&stream, 0..11, 0)));
    let mut pinned = PinnedBuffer::<u32>::new(&context, 4).unwrap();
    assert!(out_of_bounds(buffer.copy_to_pinned(&stream, 0, &mut pinned, 0..5)));
    assert!(buffer.copy_from_slice(&stream, 10, &[]).is_ok());
    let too_large = DeviceBuffer::<u64>::new(&context, usize::MAX / 4);
    assert!(matches!(too_large, Err(Error::TooLarge { .. })));
}

#[test]
fn empty_buffers_are_valid() {
    let Some(context) = context() else { return };
    let stream = Stream::new(&context).unwrap();
    let empty = DeviceBuffer::<f32>::new(&context, 0).unwrap();
    assert_eq!((empty.address(), empty.size_bytes(), empty.is_empty()), (0, 0, true));
    empty.fill_zero(&stream).unwrap();
    empty.copy_from_device(&stream, 0, &empty, 0..0).unwrap();
    assert!(empty.to_vec(&stream).unwrap().is_empty());
    assert!(PinnedBuffer::<f32>::new(&context, 0).unwrap().is_empty());
    assert!(MappedBuffer::<f32>::new(&context, 0).unwrap().is_empty());
}

#[test]
fn pinned_memory_waits_for_its_copies() {
    let Some(context) = context() else { return };
    let (one, two) = (Stream::new(&context).unwrap(), Stream::new(&context).unwrap());
    let mut source = PinnedBuffer::<u32>::new(&context, 1 << 20).unwrap();
    let mut target = PinnedBuffer::<u32>::new(&context, 1 << 20).unwrap();
    let buffer = DeviceBuffer::<u32>::new(&context, 1 << 20).unwrap();
    for round in 0..4u32 {
        // Writing waits for the copy that reads the source in the previous round.
        source.fill(round);
        buffer.copy_from_pinned(&one, 0, &source, 0..source.len()).unwrap();
        // A second copy of the same memory on another stream, ordered after the first.
        buffer.copy_from_pinned(&two, 0, &source, 0..1).unwrap();
        buffer.copy_to_pinned(&two, 0, &mut target, 0..buffer.len()).unwrap();
        // Reading waits for the copy that writes the target.
        assert!(target.iter().all(|&value| value == round), "round {round}");
    }
    target.wait().unwrap();
}

#[test]
fn pool_buffers_behave_like_other_buffers() {
    let Some(context) = context() else { return };
    let stream = Stream::new(&context).unwrap();
    let buffer = match DeviceBuffer::<u32>::on_stream(&stream, 5) {
        Ok(buffer) => buffer,
        Err(error) if error.is_unsupported() => {
            rf_testing::skip!("{error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    buffer.copy_from_slice(&stream, 0, &[1, 2, 3, 4, 5]).unwrap();
    assert_eq!(buffer.to_vec(&stream).unwrap(), [1, 2, 3, 4, 5]);
    drop(buffer);
    stream.synchronize().unwrap();
    context.keep_pool_bytes(1 << 20).unwrap();
    context.trim_pool(0).unwrap();
}

#[test]
fn events_order_streams_and_measure() {
    let Some(context) = context() else { return };
    let (one, two) = (Stream::new(&context).unwrap(), Stream::new(&context).unwrap());
    let (start, end) = (Event::new(&context, true).unwrap(), Event::new(&context, true).unwrap());
    let a = DeviceBuffer::<u32>::zeroed(&context, 1 << 16).unwrap();
    let b = DeviceBuffer::<u32>::zeroed(&context, 1 << 16).unwrap();
    one.record(&start).unwrap();
    a.fill(&one, 0..a.len(), 7).unwrap();
    one.record(&end).unwrap();
    two.wait(&end).unwrap();
    b.copy_from_device(&two, 0, &a, 0..a.len()).unwrap();
    context.synchronize().unwrap();
    assert!(end.query().unwrap() && one.is_idle().unwrap() && two.is_idle().unwrap());
    assert!(b.to_vec(&two).unwrap().iter().all(|&value| value == 7));
    let us = Event::elapsed_us(&start, &end).unwrap();
    assert!((0.0..10_000_000.0).contains(&us), "{us}");
}

#[test]
fn a_launch_computes() {
    let Some(context) = context() else { return };
    let Some(function) = axpy_function(&context) else { return };
    let info = function.info().unwrap();
    assert!(info.max_threads_per_workgroup >= BLOCK && info.registers > 0, "{info:?}");
    assert_eq!((info.lds_bytes, info.scratch_bytes), (0, 0));
    assert!(function.max_workgroups_per_compute_unit(BLOCK, 0).unwrap() > 0);

    let stream = Stream::new(&context).unwrap();
    let numbers: Vec<f32> = (0..1000u16).map(f32::from).collect();
    let x = DeviceBuffer::from_slice(&stream, &numbers).unwrap();
    let y = DeviceBuffer::from_slice(&stream, &vec![0.5f32; 1000]).unwrap();
    launch(&stream, &function, (3.0, &x, &y)).unwrap();
    let expected: Vec<f32> = numbers.iter().map(|x| 3.0 * x + 0.5).collect();
    assert_eq!(y.to_vec(&stream).unwrap(), expected);
}

#[test]
fn a_kernel_reads_and_writes_mapped_memory() {
    let Some(context) = context() else { return };
    let Some(function) = axpy_function(&context) else { return };
    let stream = Stream::new(&context).unwrap();
    let mut x = MappedBuffer::<f32>::new(&context, 300).unwrap();
    x.fill(2.0);
    let y = MappedBuffer::<f32>::new(&context, 300).unwrap();
    let params = Axpy { x: x.device_address(), y: y.device_address(), len: 300, a: 4.0 };
    // SAFETY: the kernel's parameter; the buffers are not accessed before the stream is done.
    unsafe { stream.launch(&function, LaunchConfig::linear(300, BLOCK), &params) }.unwrap();
    stream.synchronize().unwrap();
    assert!(y.iter().all(|&value| value.to_bits() == 8.0f32.to_bits()));
    assert_eq!(y.read_volatile(299).unwrap().to_bits(), 8.0f32.to_bits());
    assert!(matches!(y.read_volatile(300), Err(Error::OutOfBounds { .. })));
}

#[test]
fn an_invalid_geometry_is_an_error_and_keeps_the_context() {
    let Some(context) = context() else { return };
    let Some(function) = axpy_function(&context) else { return };
    let stream = Stream::new(&context).unwrap();
    let x = DeviceBuffer::<f32>::zeroed(&context, 4).unwrap();
    let params = Axpy { x: x.address(), y: x.address(), len: 4, a: 1.0 };
    let config = LaunchConfig { grid: [1, 1, 1], block: [4096, 1, 1], lds_bytes: 0 };
    // SAFETY: the kernel's parameter; the launch is rejected.
    let error = unsafe { stream.launch(&function, config, &params) }.unwrap_err();
    assert!(error.status().is_some() && !error.is_device_lost(), "{error}");
    launch(&stream, &function, (1.0, &x, &x)).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn damaged_modules_and_unknown_kernels_are_errors() {
    let Some(context) = context() else { return };
    assert!(matches!(Module::load(&context, b""), Err(Error::Image { .. })));
    assert!(matches!(Module::load(&context, b"not code"), Err(Error::Image { .. })));
    let Ok(image) = axpy::image(context.info()) else {
        rf_testing::skip!("no module to damage");
        return;
    };
    let module = Module::load(&context, &image).unwrap();
    assert!(module.function("no_such_kernel").unwrap_err().status().is_some());
    assert!(matches!(module.function("a\0b"), Err(Error::ZeroByte { .. })));
    match context.info().platform {
        Platform::Amd => {
            let cut = Module::load(&context, &image[..image.len() - 1]);
            assert!(matches!(cut, Err(Error::Image { .. })), "{cut:?}");
        }
        Platform::Nvidia => {
            let wrong = b".version 6.0\n.target sm_70\n.address_size 64\n this is no PTX\n";
            let error = Module::load(&context, wrong).unwrap_err();
            let Error::Module { log, .. } = &error else { panic!("{error}") };
            assert!(!log.is_empty(), "{error}");
        }
    }
}

#[test]
fn out_of_memory_is_a_recoverable_error() {
    let Some(context) = context() else { return };
    let total = context.info().total_memory_bytes as usize;
    let error = DeviceBuffer::<u8>::new(&context, total * 2).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    let stream = Stream::new(&context).unwrap();
    let small = DeviceBuffer::from_slice(&stream, &[1u8, 2, 3]).unwrap();
    assert_eq!(small.to_vec(&stream).unwrap(), [1, 2, 3]);
}

#[test]
fn a_stream_is_used_from_several_threads() {
    let Some(context) = context() else { return };
    std::thread::scope(|scope| {
        for value in 1..=4u32 {
            let context = &context;
            scope.spawn(move || {
                let stream = Stream::new(context).unwrap();
                let buffer = DeviceBuffer::from_slice(&stream, &vec![value; 4096]).unwrap();
                assert_eq!(buffer.to_vec(&stream).unwrap(), vec![value; 4096]);
            });
        }
    });
}

#[test]
fn priorities_and_spinning_threads_work() {
    let Some(context) = context() else { return };
    let device = Runtime::load().unwrap().device(context.info().ordinal).unwrap();
    let context = device.context_with(SyncMode::Spin).unwrap();
    assert_eq!(context.sync_mode(), SyncMode::Spin);
    for priority in [-1, 1] {
        let stream = Stream::with_priority(&context, priority).unwrap();
        let buffer = DeviceBuffer::from_slice(&stream, &[priority; 10]).unwrap();
        assert_eq!(buffer.to_vec(&stream).unwrap(), [priority; 10]);
    }
}

#[test]
fn peer_access_works() {
    let Some(context) = context() else { return };
    let runtime = Runtime::load().unwrap();
    let devices = runtime.devices().unwrap();
    let [first, second, ..] = &devices[..] else {
        rf_testing::skip!("one device");
        context.enable_peer_access(&context).unwrap();
        return;
    };
    let (here, there) = (first.context().unwrap(), second.context().unwrap());
    if first.can_access_peer(second).unwrap() {
        here.enable_peer_access(&there).unwrap();
        here.enable_peer_access(&there).unwrap();
    }
    let (stream, other) = (Stream::new(&here).unwrap(), Stream::new(&there).unwrap());
    let source = DeviceBuffer::from_slice(&other, &[1u32, 2, 3, 4]).unwrap();
    let target = DeviceBuffer::<u32>::zeroed(&here, 4).unwrap();
    target.copy_from_device(&stream, 0, &source, 0..4).unwrap();
    assert_eq!(target.to_vec(&stream).unwrap(), [1, 2, 3, 4]);
}
