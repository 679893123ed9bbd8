//! The devices of this machine, their measured speeds, and the place of a model on them.

use std::collections::BTreeMap;

use anyhow::Result;
use rocmforge::device::{
    Backend as _, Device, DeviceOptions, GpuLayers, Outlook, Placement, Shares, SplitMode,
};
use rocmforge::engine::DType;
use rocmforge::{DecodeSpeed, Expectation, OpenModel, Purpose};

use crate::{device, terminal};

/// The shortest context that is tried.
const LEAST_CONTEXT: usize = 1024;

/// The devices, and what was measured on them.
pub(super) struct MeasuredMachine {
    options: DeviceOptions,
    pub(super) placement: Placement,
    /// The placement on all usable GPUs. `None` if there is one GPU, or the user chose some.
    all: Option<Placement>,
    measures: bool,
    /// The speeds by format: of the CPU, where the number is missing, and of each GPU.
    pub(super) speeds: BTreeMap<(DType, Option<usize>), Option<DecodeSpeed>>,
}

/// A model on the devices.
pub(super) struct Placed {
    pub(super) outlook: Outlook,
    pub(super) context_tokens: usize,
    pub(super) trained_tokens: usize,
    pub(super) expectation: Option<Expectation>,
    pub(super) dtype: Option<DType>,
    /// The shares of several GPUs by their speed, for `--tensor-split`.
    pub(super) shares: Option<String>,
}

impl MeasuredMachine {
    pub(super) fn open(options: DeviceOptions, measures: bool) -> Result<Self> {
        let placement = device::open(options)?;
        let is_free = options.device == Device::Auto
            && options.split == SplitMode::None
            && options.shares.as_slice().is_empty();
        let all = match placement.gpus() {
            [_] if is_free => {
                let all = options.with_split(SplitMode::Layer).with_prober(device::prober());
                Some(Placement::open(all)?).filter(|all| all.gpus().len() > 1)
            }
            _ => None,
        };
        Ok(Self { options, placement, all, measures, speeds: BTreeMap::new() })
    }

    /// Free memory of the device that models go to first.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        self.placement.available_memory_bytes().ok().flatten()
    }

    /// Free memory of all devices together: no larger model fits.
    pub(super) fn room_bytes(&self) -> Option<u64> {
        let gpus = self.all.as_ref().unwrap_or(&self.placement).gpus();
        let of_gpus = gpus.iter().map(|gpu| gpu.backend.available_memory_bytes());
        let of_cpu = self.placement.cpu().ok()?.available_memory_bytes();
        of_gpus.chain([of_cpu]).try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?)))
    }

    /// The best place of a model; `None` if it fits nowhere.
    pub(super) fn place(&mut self, open: &OpenModel, is_fixed: bool) -> Result<Option<Placed>> {
        let dtype = open.main_dtype().filter(|_| !open.embeds());
        let mut best = Self::on(open, &self.placement, is_fixed)?;
        let numbers: Vec<usize> = self.placement.gpus().iter().map(|gpu| gpu.number).collect();
        if let Some(placed) = &mut best {
            placed.expectation = self.expectation(&placed.outlook, dtype, &numbers)?;
            placed.dtype = dtype;
        }
        // More cards than one are of use only to a model that one has no room for.
        let is_whole = best.as_ref().is_some_and(|placed| placed.outlook.cpu.ops == 0);
        if let (Some(all), false) = (&self.all, is_whole) {
            let numbers: Vec<usize> = all.gpus().iter().map(|gpu| gpu.number).collect();
            let shares = self.shares(dtype, &numbers)?;
            let options = self.options.with_prober(device::prober());
            let options = match &shares {
                Some(text) => options.with_shares(text.parse::<Shares>().unwrap_or_default()),
                None => options.with_split(SplitMode::Layer),
            };
            if let Some(mut placed) = Self::on(open, &Placement::open(options)?, is_fixed)? {
                placed.expectation = self.expectation(&placed.outlook, dtype, &numbers)?;
                placed.dtype = dtype;
                placed.shares = shares;
                let layers = |placed: &Placed| placed.outlook.layers.gpu_layers;
                if best.as_ref().is_none_or(|best| layers(best) < layers(&placed)) {
                    best = Some(placed);
                }
            }
        }
        Ok(best)
    }

    /// The model with the longest context that costs no layer on the GPU.
    fn on(open: &OpenModel, placement: &Placement, is_fixed: bool) -> Result<Option<Placed>> {
        let trained_tokens = open.model().config().context_length;
        let at = |context: Option<usize>| -> Result<Placed> {
            let open = open.clone().with(|loader| {
                let loader = loader.purpose(Purpose::Chat);
                match context {
                    Some(tokens) => loader.context_tokens(tokens),
                    None => loader,
                }
            });
            let outlook = open.outlook(placement, 0)?;
            let context_tokens = open.context_tokens();
            let (expectation, dtype, shares) = (None, None, None);
            Ok(Placed { outlook, context_tokens, trained_tokens, expectation, dtype, shares })
        };
        let default = at(None)?;
        if is_fixed {
            return Ok(default.outlook.fits.then_some(default));
        }
        let mut best = default;
        while !best.outlook.fits && best.context_tokens > LEAST_CONTEXT {
            best = at(Some((best.context_tokens / 2).max(LEAST_CONTEXT)))?;
        }
        if !best.outlook.fits {
            return Ok(None);
        }
        while best.context_tokens < trained_tokens {
            let longer = at(Some(best.context_tokens.saturating_mul(2).min(trained_tokens)))?;
            let place = |placed: &Placed| {
                let layers = &placed.outlook.layers;
                (layers.gpu_layers, layers.cpu_expert_layers)
            };
            if !longer.outlook.fits || place(&longer) != place(&best) {
                break;
            }
            best = longer;
        }
        Ok(Some(best))
    }

    fn expectation(
        &mut self,
        outlook: &Outlook,
        dtype: Option<DType>,
        numbers: &[usize],
    ) -> Result<Option<Expectation>> {
        let Some(dtype) = dtype.filter(|_| self.measures) else { return Ok(None) };
        let cpu = if outlook.cpu.ops > 0 { self.speed(dtype, None)? } else { None };
        let gpus = if outlook.gpu.ops > 0 { numbers } else { &[] };
        let gpus = gpus.iter().map(|number| self.speed(dtype, Some(*number)));
        let gpus: Option<Vec<DecodeSpeed>> = gpus.collect::<Result<_>>()?;
        Ok(gpus.and_then(|gpus| Expectation::of(outlook, cpu.as_ref(), &gpus)))
    }

    /// The shares of GPUs in proportion to their speeds. `None` if one was not measured.
    fn shares(&mut self, dtype: Option<DType>, numbers: &[usize]) -> Result<Option<String>> {
        let Some(dtype) = dtype.filter(|_| self.measures) else { return Ok(None) };
        let speeds = numbers.iter().map(|number| self.speed(dtype, Some(*number)));
        let speeds: Option<Vec<DecodeSpeed>> = speeds.collect::<Result<_>>()?;
        let share = |speed: &DecodeSpeed| format!("{:.0}", (speed.bytes_per_s / 1e9).max(1.0));
        Ok(speeds.map(|speeds| speeds.iter().map(share).collect::<Vec<_>>().join(",")))
    }

    /// The speed of the CPU or of a GPU, measured once.
    fn speed(&mut self, dtype: DType, number: Option<usize>) -> Result<Option<DecodeSpeed>> {
        if let Some(known) = self.speeds.get(&(dtype, number)) {
            return Ok(*known);
        }
        let device = match number {
            Some(number) => number.to_string().parse().unwrap_or(Device::Gpu),
            None => Device::Cpu,
        };
        let bar = terminal::count_progress("measuring", 1);
        let options = DeviceOptions::default().with_device(device).with_cpu(self.options.cpu);
        let options = options.with_gpu_layers(GpuLayers::Auto).with_graphs(self.options.graphs);
        let placement = Placement::open(options.with_prober(device::prober()))?;
        // A device that cannot be measured costs the speed and not the answer.
        let speed = DecodeSpeed::measure(&placement, dtype).unwrap_or_else(|error| {
            terminal::warn(format_args!("the speed with {dtype} was not measured: {error}"));
            None
        });
        bar.finish_and_clear();
        self.speeds.insert((dtype, number), speed);
        Ok(speed)
    }
}
