//! A timer for the GPU and the CPU.

use std::time::{Duration, Instant};

use rf_hip::{Event, Stream};

use crate::Error;

/// Measures the time between two points in a queue: a GPU stream by default, the calling thread for
/// [`CpuTimer`].
///
/// On the GPU the points are events. Start and stop return at once, and [`KernelTimer::elapsed`]
/// waits. The events are created on the first start, reused on the next one, and destroyed with the
/// timer. Their resolution is about half a microsecond.
///
/// # Examples
///
/// ```
/// use rf_hip::{DeviceBuffer, Runtime, Stream};
/// use rf_profile::KernelTimer;
///
/// fn time_to_clear() -> Result<std::time::Duration, rf_profile::Error> {
///     let context = Runtime::load()?.device(0)?.context()?;
///     let stream = Stream::new(&context)?;
///     let buffer: DeviceBuffer<f32> = DeviceBuffer::new(&context, 1 << 20)?;
///     let mut timer: KernelTimer = KernelTimer::for_kernel("clear");
///     timer.start(&stream)?;
///     buffer.fill_zero(&stream)?;
///     timer.stop(&stream)?;
///     timer.elapsed()
/// }
///
/// match time_to_clear() {
///     Ok(time) => println!("{time:?}"),
///     Err(error) => println!("skipped: {error}"),
/// }
/// ```
#[derive(Debug)]
pub struct KernelTimer<C: Clock = GpuClock> {
    name: String,
    start: Option<C::Mark>,
    stop: Option<C::Mark>,
    state: State,
}

/// A [`KernelTimer`] for the CPU.
///
/// # Examples
///
/// ```
/// use rf_profile::timer::{CpuTimer, Host};
///
/// let pause = std::time::Duration::from_millis(2);
/// let mut timer = CpuTimer::for_kernel("sleep");
/// timer.start(&Host)?;
/// std::thread::sleep(pause);
/// timer.stop(&Host)?;
/// assert!(timer.elapsed()? >= pause);
/// # Ok::<(), rf_profile::Error>(())
/// ```
pub type CpuTimer = KernelTimer<CpuClock>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Running,
    Stopped,
}

/// A clock that marks points in a queue of work.
pub trait Clock {
    /// The queue of work.
    type Queue;
    /// A point in a queue.
    type Mark;

    /// Marks the current end of the queue. The clock may reuse `spare`, a mark that is no longer
    /// needed.
    ///
    /// # Errors
    ///
    /// An error of the device's runtime.
    fn mark(queue: &Self::Queue, spare: Option<Self::Mark>) -> Result<Self::Mark, Error>;

    /// Waits until the queue has passed both marks and returns the time between them.
    ///
    /// # Errors
    ///
    /// An error of the device's runtime, including the failure of work before the mark.
    fn between(start: &Self::Mark, stop: &Self::Mark) -> Result<Duration, Error>;
}

impl<C: Clock> KernelTimer<C> {
    /// Creates a timer with a name.
    pub fn for_kernel(name: impl Into<String>) -> Self {
        Self { name: name.into(), start: None, stop: None, state: State::Idle }
    }

    /// The name of the timer.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Marks the start in `queue` and discards the previous measurement.
    ///
    /// # Errors
    ///
    /// An error of the clock.
    pub fn start(&mut self, queue: &C::Queue) -> Result<(), Error> {
        self.state = State::Idle;
        self.start = Some(C::mark(queue, self.start.take())?);
        self.state = State::Running;
        Ok(())
    }

    /// Marks the end in `queue`, after the work queued since the start.
    ///
    /// # Errors
    ///
    /// [`Error::Timer`] if the timer was not started, or an error of the clock.
    pub fn stop(&mut self, queue: &C::Queue) -> Result<(), Error> {
        if self.state != State::Running {
            return Err(self.misuse("was stopped without a start"));
        }
        self.stop = Some(C::mark(queue, self.stop.take())?);
        self.state = State::Stopped;
        Ok(())
    }

    /// Waits for the end and returns the time from the start to the end.
    ///
    /// # Errors
    ///
    /// [`Error::Timer`] if the timer was not stopped, or an error of the clock.
    pub fn elapsed(&self) -> Result<Duration, Error> {
        match (self.state, &self.start, &self.stop) {
            (State::Stopped, Some(start), Some(stop)) => C::between(start, stop),
            _ => Err(self.misuse("was read before it was stopped")),
        }
    }

    fn misuse(&self, problem: &'static str) -> Error {
        Error::Timer { name: self.name.clone(), problem }
    }
}

/// A clock of events in a GPU stream.
#[derive(Debug)]
pub struct GpuClock;

impl Clock for GpuClock {
    type Queue = Stream;
    type Mark = Event;

    fn mark(queue: &Stream, spare: Option<Event>) -> Result<Event, Error> {
        let event = match spare {
            // Recording fails if the stream belongs to another device.
            Some(event) if queue.record(&event).is_ok() => return Ok(event),
            _ => Event::new(queue.context(), true)?,
        };
        queue.record(&event)?;
        Ok(event)
    }

    fn between(start: &Event, stop: &Event) -> Result<Duration, Error> {
        stop.synchronize()?;
        let us = Event::elapsed_us(start, stop)?;
        // The time between consecutive events can be negative within the clock's resolution.
        Ok(Duration::from_secs_f64(us.max(0.0) / 1e6))
    }
}

/// The system's monotonic clock.
#[derive(Debug)]
pub struct CpuClock;

/// The calling thread, as the queue of a [`CpuTimer`].
#[derive(Clone, Copy, Debug)]
pub struct Host;

impl Clock for CpuClock {
    type Queue = Host;
    type Mark = Instant;

    fn mark(_queue: &Host, _spare: Option<Instant>) -> Result<Instant, Error> {
        Ok(Instant::now())
    }

    fn between(start: &Instant, stop: &Instant) -> Result<Duration, Error> {
        Ok(stop.saturating_duration_since(*start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_measures_at_least_the_time_slept() {
        let mut timer = CpuTimer::for_kernel("sleep");
        timer.start(&Host).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        timer.stop(&Host).unwrap();
        assert!(timer.elapsed().unwrap() >= Duration::from_millis(5));
        assert_eq!(timer.elapsed().unwrap(), timer.elapsed().unwrap());
    }

    #[test]
    fn methods_in_the_wrong_order_are_errors() {
        let mut timer = CpuTimer::for_kernel("x");
        assert!(matches!(timer.stop(&Host), Err(Error::Timer { .. })));
        timer.start(&Host).unwrap();
        assert!(matches!(timer.elapsed(), Err(Error::Timer { .. })));
        timer.stop(&Host).unwrap();
        assert!(timer.stop(&Host).is_err());
        timer.start(&Host).unwrap();
        assert!(timer.elapsed().is_err(), "a new start discards the previous measurement");
    }
}
