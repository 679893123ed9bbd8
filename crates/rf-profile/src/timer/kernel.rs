//! One time, taken on the GPU or the CPU.

use std::time::{Duration, Instant};

use rf_hip::{Event, Stream};

use crate::Error;

/// Takes the time between two points of a queue: of a GPU stream by default, of the CPU as [`CpuTimer`].
///
/// On the GPU the points are events: start and stop return at once, and [`KernelTimer::elapsed`] waits. The events are
/// made on first use, used again on the next start, and destroyed when the timer is dropped. Their resolution is about
/// half a microsecond.
///
/// # Examples
///
/// ```
/// use rf_hip::{DeviceBuffer, Runtime, Stream};
/// use rf_profile::KernelTimer;
///
/// fn time_of_clearing() -> Result<std::time::Duration, rf_profile::Error> {
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
/// match time_of_clearing() {
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

/// The CPU's form of [`KernelTimer`], with the same methods.
///
/// # Examples
///
/// ```
/// use rf_profile::timer::{CpuTimer, Host};
///
/// let mut timer = CpuTimer::for_kernel("nothing");
/// timer.start(&Host)?;
/// timer.stop(&Host)?;
/// assert!(timer.elapsed()?.as_secs() < 1);
/// # Ok::<(), rf_profile::Error>(())
/// ```
pub type CpuTimer = KernelTimer<CpuClock>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Running,
    Stopped,
}

/// What takes the time of points in a queue.
pub trait Clock {
    /// Where work is queued.
    type Queue;
    /// A point in a queue.
    type Mark;

    /// Marks the end of the queue, with an earlier mark that is no longer needed if there is one.
    ///
    /// # Errors
    ///
    /// What the device's runtime returns.
    fn mark(queue: &Self::Queue, spare: Option<Self::Mark>) -> Result<Self::Mark, Error>;

    /// The time from one mark to another, once the queue has passed both.
    ///
    /// # Errors
    ///
    /// What the device's runtime returns, the failure of work before the mark included.
    fn between(start: &Self::Mark, stop: &Self::Mark) -> Result<Duration, Error>;
}

impl<C: Clock> KernelTimer<C> {
    /// A timer with the name that its times are recorded under.
    pub fn for_kernel(name: impl Into<String>) -> Self {
        Self { name: name.into(), start: None, stop: None, state: State::Idle }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Marks the start in `queue`; a time taken before is forgotten.
    ///
    /// # Errors
    ///
    /// What the clock returns.
    pub fn start(&mut self, queue: &C::Queue) -> Result<(), Error> {
        self.state = State::Idle;
        self.start = Some(C::mark(queue, self.start.take())?);
        self.state = State::Running;
        Ok(())
    }

    /// Marks the end in `queue`, behind what was queued since the start.
    ///
    /// # Errors
    ///
    /// [`Error::Timer`] if it was not started; else what the clock returns.
    pub fn stop(&mut self, queue: &C::Queue) -> Result<(), Error> {
        if self.state != State::Running {
            return Err(self.misuse("was stopped without a start"));
        }
        self.stop = Some(C::mark(queue, self.stop.take())?);
        self.state = State::Stopped;
        Ok(())
    }

    /// The time from start to end; waits until the end is reached.
    ///
    /// # Errors
    ///
    /// [`Error::Timer`] if it was not stopped; else what the clock returns.
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

/// Events in a stream.
#[derive(Debug)]
pub struct GpuClock;

impl Clock for GpuClock {
    type Queue = Stream;
    type Mark = Event;

    fn mark(queue: &Stream, spare: Option<Event>) -> Result<Event, Error> {
        let event = match spare {
            // A stream of another device needs another event.
            Some(event) if event.record(queue).is_ok() => return Ok(event),
            _ => Event::new(queue.context(), true)?,
        };
        event.record(queue)?;
        Ok(event)
    }

    fn between(start: &Event, stop: &Event) -> Result<Duration, Error> {
        stop.synchronize()?;
        let us = Event::elapsed_us(start, stop)?;
        // Two events in a row may come out of order by the clock's resolution.
        Ok(Duration::from_secs_f64(us.max(0.0) / 1e6))
    }
}

/// The system's monotonic clock.
#[derive(Debug)]
pub struct CpuClock;

/// The calling thread, where [`KernelTimer`] wants a queue.
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
    fn a_timer_that_sleeps_takes_that_long() {
        let mut timer = CpuTimer::for_kernel("sleep");
        timer.start(&Host).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        timer.stop(&Host).unwrap();
        assert!(timer.elapsed().unwrap() >= Duration::from_millis(5));
        assert_eq!(timer.elapsed().unwrap(), timer.elapsed().unwrap());
    }

    #[test]
    fn a_timer_out_of_order_says_so() {
        let mut timer = CpuTimer::for_kernel("x");
        assert!(matches!(timer.stop(&Host), Err(Error::Timer { .. })));
        timer.start(&Host).unwrap();
        assert!(matches!(timer.elapsed(), Err(Error::Timer { .. })));
        timer.stop(&Host).unwrap();
        assert!(timer.stop(&Host).is_err());
        timer.start(&Host).unwrap();
        assert!(timer.elapsed().is_err(), "a new start forgets the time before");
    }
}
