//! The speed of decoding on this machine, measured with synthetic models, and what it says about a
//! model that is not loaded.
//!
//! A step of one sequence reads every weight that it uses once and has a fixed cost for each op, so
//! its time is `bytes / rate + ops · overhead`. Three synthetic models with weights of one format
//! are timed. A small one and a wide one give rate and overhead. The time of the third one, which
//! has another shape, is predicted, and how far the prediction is off is the stated error.

mod synthetic;

use std::time::{Duration, Instant};

use rf_device::{Backend as _, Outlook, Placement, StepWork};
use rf_engine::SyntheticFeeder;
use rf_quant::DType;

use self::synthetic::ModelShape;
use crate::drafts::Drafts;
use crate::error::Error;
use crate::loader::{Loader, OpenModel};
use crate::sizing::Purpose;
use crate::source::Source;

/// Bytes of the weights of a synthetic model: more than the caches of a machine hold.
const WEIGHT_BYTES: u64 = 256 << 20;
/// Free memory in relation to the weights without which nothing is measured.
const ROOM: u64 = 4;
/// A device whose steps would take longer is not measured: an emulated one.
const LONGEST_STEP: Duration = Duration::from_secs(4);

/// The measured speed of one device with weights of one format.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct DecodeSpeed {
    /// The format of the weights.
    pub dtype: DType,
    /// Bytes per second of a step.
    pub bytes_per_s: f64,
    /// Seconds of a step besides, for each op.
    pub op_s: f64,
    /// How far a prediction was off, as a share of the measured time, or by how much the
    /// measured times differed, whichever is more.
    pub error: f64,
}

/// The number of tokens per second that a model is expected to generate.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Expectation {
    /// Tokens per second of one sequence, with a short context.
    pub tokens_per_s: f64,
    /// The error of the slowest device's measurement, as a share of the time.
    pub error: f64,
}

/// A measured model: the work of a step, its median time, and the spread of its times.
#[derive(Clone, Copy, Debug)]
struct Sample {
    work: StepWork,
    seconds: f64,
    spread: f64,
}

impl DecodeSpeed {
    /// Measures the devices of a placement, which runs whole models on them. Takes some seconds,
    /// and 1 GiB of memory. `None` if the device has too little free memory or is too slow.
    ///
    /// # Errors
    ///
    /// If the format is not supported by the backend, or the device fails.
    pub fn measure(placement: &Placement, dtype: DType) -> Result<Option<Self>, Error> {
        Self::measure_with(placement, dtype, WEIGHT_BYTES)
    }

    fn measure_with(
        placement: &Placement,
        dtype: DType,
        weight_bytes: u64,
    ) -> Result<Option<Self>, Error> {
        let free = [placement.available_memory_bytes()?, placement.cpu()?.available_memory_bytes()];
        if free.into_iter().flatten().any(|bytes| bytes < ROOM * weight_bytes) {
            return Ok(None);
        }
        let time = |shape: ModelShape| Sample::of(placement, dtype, shape);
        let Some(small) = time(ModelShape::SMALL)? else { return Ok(None) };
        let [wide, other] =
            [ModelShape::WIDE, ModelShape::OTHER].map(|shape| shape.filled(dtype, weight_bytes));
        let bytes_per_s = small.work.cost.bytes as f64 / small.seconds;
        if weight_bytes as f64 / bytes_per_s > LONGEST_STEP.as_secs_f64() {
            return Ok(None);
        }
        let (wide, other) = (time(wide)?, time(other)?);
        Ok(wide.zip(other).map(|(wide, other)| Self::fitted(dtype, small, wide, other)))
    }

    /// The speed that explains the first two samples, with the error for the third one.
    fn fitted(dtype: DType, small: Sample, wide: Sample, other: Sample) -> Self {
        let of = |sample: Sample| {
            (sample.work.cost.bytes as f64, sample.work.ops as f64, sample.seconds)
        };
        let ((bytes, ops, seconds), (few, many_ops, short)) = (of(wide), of(small));
        // Two equations: seconds = bytes · byte_s + ops · op_s.
        let determinant = bytes * many_ops - few * ops;
        let op_s = (bytes * short - few * seconds) / determinant;
        // An overhead that the measurement cannot tell from 0 may come out below.
        let op_s = if op_s.is_finite() { op_s.max(0.0) } else { 0.0 };
        let byte_s = (seconds - ops * op_s) / bytes;
        let byte_s = if byte_s > 0.0 { byte_s } else { seconds / bytes };
        let speed = Self { dtype, bytes_per_s: 1.0 / byte_s, op_s, error: 0.0 };
        let off = (speed.seconds(other.work) - other.seconds).abs() / other.seconds;
        Self { error: off.max(wide.spread).max(other.spread), ..speed }
    }

    /// The expected time of a step.
    pub fn seconds(&self, work: StepWork) -> f64 {
        work.cost.bytes as f64 / self.bytes_per_s + work.ops as f64 * self.op_s
    }
}

impl Expectation {
    /// What a model would generate, given the speed of the CPU and of each GPU of the placement.
    /// `None` if a device that has work was not measured.
    pub fn of(outlook: &Outlook, cpu: Option<&DecodeSpeed>, gpus: &[DecodeSpeed]) -> Option<Self> {
        let mut seconds = 0.0;
        let mut error: f64 = 0.0;
        let mut add = |speed: &DecodeSpeed, work, share: f64| {
            seconds += share * speed.seconds(work);
            error = error.max(speed.error);
        };
        if outlook.cpu.ops > 0 {
            add(cpu?, outlook.cpu, 1.0);
        }
        if outlook.gpu.ops > 0 {
            for (number, &share) in outlook.gpu_shares.iter().enumerate() {
                if share > 0.0 {
                    add(gpus.get(number)?, outlook.gpu, share);
                }
            }
        }
        (seconds > 0.0).then(|| Self { tokens_per_s: 1.0 / seconds, error })
    }
}

impl Sample {
    /// `None` if the model is not on one device, or a step takes too long.
    fn of(placement: &Placement, dtype: DType, shape: ModelShape) -> Result<Option<Self>, Error> {
        /// Steps before those that count: a GPU checks its new graphs.
        const WARM_UP: usize = 24;
        const STEPS: usize = 24;
        const LONGEST: Duration = Duration::from_secs(2);
        let open = Loader::new(Source::Demo)
            .drafts(Drafts::Off)
            .purpose(Purpose::Texts)
            .context_tokens(synthetic::CONTEXT_TOKENS)
            .batch_tokens(1)
            .open_gguf(shape.model(dtype)?)?;
        let outlook = open.outlook(placement, 0)?;
        let work = match (outlook.cpu.ops, outlook.gpu.ops) {
            (_, 0) => outlook.cpu,
            (0, _) => outlook.gpu,
            _ => return Ok(None),
        };
        let mut feeder = SyntheticFeeder::new(open.load_on(placement, &mut |_| ())?.engine, 1);
        let mut step = || {
            let start = Instant::now();
            feeder.step(1).map(|()| start.elapsed())
        };
        let mut times = Vec::with_capacity(STEPS);
        let start = Instant::now();
        for number in 0..WARM_UP + STEPS {
            let time = step()?;
            if time > LONGEST_STEP {
                return Ok(None);
            }
            // A slow device needs no warm-up and has few steps.
            if number >= WARM_UP || time > LONGEST / (WARM_UP + STEPS) as u32 {
                times.push(time.as_secs_f64());
            }
            if start.elapsed() > LONGEST && times.len() >= 3 {
                break;
            }
        }
        times.sort_by(f64::total_cmp);
        let part = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        let seconds = part(0.5).max(f64::MIN_POSITIVE);
        let spread = (part(0.75) - part(0.25)) / seconds;
        Ok(Some(Self { work, seconds, spread }))
    }
}

impl OpenModel {
    /// Computes what the model would take on the devices of a placement, and the work of a decode
    /// step after `past_tokens` tokens, without loading it.
    ///
    /// # Errors
    ///
    /// If an option is invalid, tensors are missing, or a backend does not support the model.
    pub fn outlook(&self, placement: &Placement, past_tokens: usize) -> Result<Outlook, Error> {
        let (options, _) = self.plan(placement)?;
        Ok(placement.outlook(&self.model, &options, past_tokens)?)
    }

    /// The format of most bytes of the weights.
    pub fn main_dtype(&self) -> Option<DType> {
        let mut bytes = [0_u64; DType::COUNT];
        for tensor in self.model.gguf().tensors() {
            let dtype = tensor.dtype().ok()?;
            let place = DType::ALL.iter().position(|known| *known == dtype)?;
            bytes[place] += tensor.size_bytes() as u64;
        }
        DType::ALL.into_iter().zip(bytes).max_by_key(|(_, bytes)| *bytes).map(|(dtype, _)| dtype)
    }
}

#[cfg(test)]
mod tests {
    use rf_device::{Device, DeviceOptions};
    use rf_graph::OpCost;

    use super::*;

    fn work(bytes: u64, ops: usize) -> StepWork {
        StepWork { cost: OpCost { bytes, ..OpCost::default() }, ops }
    }

    fn sample(bytes: u64, ops: usize, seconds: f64) -> Sample {
        Sample { work: work(bytes, ops), seconds, spread: 0.01 }
    }

    #[test]
    fn rate_and_overhead_are_those_of_the_samples() {
        let time = |bytes: u64, ops: usize| bytes as f64 / 20e9 + ops as f64 * 5e-6;
        let of = |bytes, ops, factor: f64| sample(bytes, ops, time(bytes, ops) * factor);
        let (small, wide) = (of(6_000_000, 96, 1.0), of(260_000_000, 60, 1.0));
        let exact = DecodeSpeed::fitted(DType::Q4K, small, wide, of(250_000_000, 18, 1.0));
        assert!((exact.bytes_per_s / 20e9 - 1.0).abs() < 1e-6, "{exact:?}");
        assert!((exact.op_s / 5e-6 - 1.0).abs() < 1e-6, "{exact:?}");
        // Only the spread of the times is left.
        assert!((exact.error - 0.01).abs() < 1e-6, "{exact:?}");
        let off = DecodeSpeed::fitted(DType::Q4K, small, wide, of(250_000_000, 18, 1.25));
        assert!((off.error - 0.2).abs() < 1e-6, "{off:?}");
        // A small model that is too fast, as it is in the caches, gives no overhead below 0.
        let cached = sample(6_000_000, 96, 1e-6);
        let cached = DecodeSpeed::fitted(DType::Q4K, cached, wide, wide);
        assert!(cached.op_s == 0.0 && cached.error < 0.02, "{cached:?}");
    }

    #[test]
    fn every_device_with_work_adds_its_time() {
        let speed =
            |bytes_per_s, error| DecodeSpeed { dtype: DType::Q8_0, bytes_per_s, op_s: 0.0, error };
        let mut outlook = Loader::new(Source::File(rf_testing::tiny_model()))
            .open(&mut |_| ())
            .unwrap()
            .outlook(&cpu(), 0)
            .unwrap();
        outlook.cpu = work(1_000_000_000, 1);
        outlook.gpu = work(8_000_000_000, 1);
        outlook.gpu_shares = vec![0.75, 0.25];
        let (cpu, gpus) = (speed(10e9, 0.05), [speed(600e9, 0.02), speed(200e9, 0.03)]);
        let expected = Expectation::of(&outlook, Some(&cpu), &gpus).unwrap();
        // 0.1 s on the CPU, 0.01 s on each GPU.
        assert!((expected.tokens_per_s - 1.0 / 0.12).abs() < 1e-9, "{expected:?}");
        assert!((expected.error - 0.05).abs() < 1e-9, "{expected:?}");
        assert_eq!(Expectation::of(&outlook, None, &gpus), None);
        assert_eq!(Expectation::of(&outlook, Some(&cpu), &gpus[..1]), None);
    }

    #[test]
    fn synthetic_models_run_and_give_a_speed() {
        for dtype in [DType::Q4K, DType::F16, DType::Iq2Xxs] {
            let speed = DecodeSpeed::measure_with(&cpu(), dtype, 4 << 20).unwrap().unwrap();
            assert!(speed.bytes_per_s > 1e6 && speed.bytes_per_s < 1e13, "{speed:?}");
            assert!(speed.op_s >= 0.0 && speed.error >= 0.0, "{speed:?}");
        }
        assert_eq!(DecodeSpeed::measure_with(&cpu(), DType::Q8_0, 1 << 60).unwrap(), None);
    }

    fn cpu() -> Placement {
        Placement::open(DeviceOptions::default().with_device(Device::Cpu)).unwrap()
    }
}
