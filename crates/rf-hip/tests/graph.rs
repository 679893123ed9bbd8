//! Captured graphs on the first GPU; skipped without one.

#![expect(clippy::unwrap_used, reason = "functions of tests")]
#![expect(unsafe_code, reason = "a launch is as safe as its kernel")]

mod axpy;

use std::sync::{Mutex, MutexGuard, PoisonError};

use axpy::{Axpy, BLOCK};
use rf_hip::{
    Context, DeviceBuffer, Error, Function, LaunchConfig, Module, PinnedBuffer, Runtime, Stream,
};

const LEN: usize = 512;

type Turn = MutexGuard<'static, ()>;

/// A wait for the whole device, as in the drop of a module, invalidates the captures of other
/// threads, so the tests of this file run one after another.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The objects of a test, or `None` after printing the reason.
fn setup() -> Option<(Turn, Context, Stream, Function)> {
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let context = match Runtime::load().and_then(|runtime| runtime.device(0)?.context()) {
        Ok(context) => context,
        Err(error) => {
            rf_testing::skip!("{error}");
            return None;
        }
    };
    let image = match axpy::image(context.info()) {
        Ok(image) => image,
        Err(reason) => {
            rf_testing::skip!("{reason}");
            return None;
        }
    };
    let function = Module::load(&context, &image).unwrap().function("axpy_f32").unwrap();
    let stream = Stream::new(&context).unwrap();
    match stream.capture(|| Ok::<(), Error>(())) {
        Err(error) if error.is_unsupported() => {
            rf_testing::skip!("{error}");
            None
        }
        graph => {
            assert_eq!(graph.unwrap().node_count().unwrap(), 0);
            Some((turn, context, stream, function))
        }
    }
}

/// Queues `y += a * x`. The caller keeps the buffers until the last launch is done.
fn add(
    stream: &Stream,
    function: &Function,
    (a, x, y): (f32, &DeviceBuffer<f32>, &DeviceBuffer<f32>),
) -> Result<(), Error> {
    let params = Axpy { x: x.address(), y: y.address(), len: LEN as u32, a };
    // SAFETY: the kernel's parameter; every test keeps the buffers longer than the graph's work.
    unsafe { stream.launch(function, LaunchConfig::linear(LEN, BLOCK), &params) }
}

fn ones_and_zeros(context: &Context, stream: &Stream) -> (DeviceBuffer<f32>, DeviceBuffer<f32>) {
    let ones = DeviceBuffer::from_slice(stream, &[1.0f32; LEN]).unwrap();
    (ones, DeviceBuffer::zeroed(context, LEN).unwrap())
}

fn expect_all(buffer: &DeviceBuffer<f32>, stream: &Stream, expected: f32) {
    let values = buffer.to_vec(stream).unwrap();
    assert!(values.iter().all(|v| v.to_bits() == expected.to_bits()), "{} {expected}", values[0]);
}

#[test]
fn a_graph_repeats_the_queued_work() {
    let Some((_turn, context, stream, function)) = setup() else { return };
    let (x, y) = ones_and_zeros(&context, &stream);
    let graph = stream
        .capture(|| {
            y.fill_zero(&stream)?;
            add(&stream, &function, (2.0, &x, &y))?;
            add(&stream, &function, (3.0, &x, &y))
        })
        .unwrap();
    // No work ran so far.
    expect_all(&y, &stream, 0.0);
    assert_eq!(graph.node_count().unwrap(), 3);
    let exec = graph.instantiate().unwrap();
    drop(graph);
    for _ in 0..3 {
        exec.launch(&stream).unwrap();
    }
    expect_all(&y, &stream, 5.0);
}

#[test]
fn an_update_accepts_new_arguments_and_rejects_another_shape() {
    let Some((_turn, context, stream, function)) = setup() else { return };
    let (x, y) = ones_and_zeros(&context, &stream);
    let record = |a: f32, times: usize| {
        stream.capture(|| (0..times).try_for_each(|_| add(&stream, &function, (a, &x, &y))))
    };
    let exec = record(1.0, 2).unwrap().instantiate().unwrap();
    exec.launch(&stream).unwrap();
    match exec.update(&record(10.0, 2).unwrap()) {
        Err(error) if error.is_unsupported() => rf_testing::skip!("{error}"),
        updated => {
            assert!(updated.unwrap());
            exec.launch(&stream).unwrap();
            expect_all(&y, &stream, 22.0);
            assert!(!exec.update(&record(10.0, 3).unwrap()).unwrap());
            exec.launch(&stream).unwrap();
            expect_all(&y, &stream, 42.0);
        }
    }
}

#[test]
fn a_graph_keeps_the_module_and_the_buffers_of_safe_calls() {
    let Some((_turn, context, stream, function)) = setup() else { return };
    let (x, y) = ones_and_zeros(&context, &stream);
    let source = DeviceBuffer::from_slice(&stream, &[7.0f32; LEN]).unwrap();
    let graph = stream
        .capture(|| {
            y.copy_from_device(&stream, 0, &source, 0..LEN)?;
            add(&stream, &function, (1.0, &x, &y))
        })
        .unwrap();
    let exec = graph.instantiate().unwrap();
    drop((graph, source, function));
    exec.launch(&stream).unwrap();
    expect_all(&y, &stream, 8.0);
}

#[test]
fn a_capture_that_fails_leaves_the_stream_usable() {
    let Some((_turn, context, stream, function)) = setup() else { return };
    let (x, y) = ones_and_zeros(&context, &stream);
    let outcome = stream.capture(|| {
        add(&stream, &function, (1.0, &x, &y))?;
        Err(Error::Capturing { operation: "a test" })
    });
    assert!(outcome.is_err());
    add(&stream, &function, (4.0, &x, &y)).unwrap();
    expect_all(&y, &stream, 4.0);
    let again = stream.capture(|| add(&stream, &function, (1.0, &x, &y))).unwrap();
    assert_eq!(again.node_count().unwrap(), 1);
}

#[test]
fn work_that_cannot_be_repeated_is_rejected() {
    let Some((_turn, context, stream, function)) = setup() else { return };
    let (x, y) = ones_and_zeros(&context, &stream);
    let mut pinned = PinnedBuffer::<f32>::new(&context, LEN).unwrap();
    let refused = |outcome: Result<(), Error>| matches!(outcome, Err(Error::Capturing { .. }));
    let graph = stream
        .capture(|| {
            assert!(refused(y.copy_from_slice(&stream, 0, &[1.0])));
            assert!(refused(y.copy_to_slice(&stream, 0, &mut [1.0])));
            assert!(refused(y.copy_from_pinned(&stream, 0, &pinned, 0..LEN)));
            assert!(refused(y.copy_to_pinned(&stream, 0, &mut pinned, 0..LEN)));
            assert!(refused(DeviceBuffer::<f32>::on_stream(&stream, 1).map(drop)));
            assert!(matches!(
                stream.begin_capture().map(drop),
                Err(Error::CaptureState { active: true })
            ));
            add(&stream, &function, (1.0, &x, &y))
        })
        .unwrap();
    assert_eq!(graph.node_count().unwrap(), 1);
}

#[test]
fn memory_released_during_a_capture_is_not_part_of_the_graph() {
    let Some((_turn, context, stream, function)) = setup() else { return };
    let (x, y) = ones_and_zeros(&context, &stream);
    let mut pooled = match DeviceBuffer::<f32>::on_stream(&stream, LEN) {
        Ok(buffer) => Some(buffer),
        Err(error) if error.is_unsupported() => {
            rf_testing::skip!("{error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let graph = stream
        .capture(|| {
            pooled = None;
            drop(DeviceBuffer::<f32>::new(&context, LEN)?);
            add(&stream, &function, (1.0, &x, &y))
        })
        .unwrap();
    assert_eq!(graph.node_count().unwrap(), 1);
    let exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    exec.launch(&stream).unwrap();
    expect_all(&y, &stream, 2.0);
    assert!(pooled.is_none());
}

#[test]
fn every_launch_of_a_graph_copies_from_and_to_host_memory() {
    let Some((_turn, context, stream, function)) = setup() else { return };
    let (x, y) = ones_and_zeros(&context, &stream);
    let mut input = PinnedBuffer::<f32>::new(&context, LEN).unwrap();
    let mut output = PinnedBuffer::<f32>::new(&context, LEN).unwrap();
    let (from, to) = (input.as_ptr(), output.as_mut_ptr());
    let graph = stream
        .capture(|| {
            // SAFETY: both buffers outlive the graph and are accessed between launches only.
            unsafe { y.copy_from_host(&stream, 0, from, LEN) }?;
            add(&stream, &function, (1.0, &x, &y))?;
            // SAFETY: as above.
            unsafe { y.copy_to_host(&stream, 0, to, LEN) }
        })
        .unwrap();
    let exec = graph.instantiate().unwrap();
    for value in [3.0f32, 9.0] {
        input.fill(value);
        exec.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        assert!(output.iter().all(|v| v.to_bits() == (value + 1.0).to_bits()));
    }
}
