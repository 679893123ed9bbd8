//! The answer of `rf-cli fit`, as text and as JSON.

use std::cmp::Reverse;
use std::io::{self, Write};

use anyhow::Error;
use rocmforge::device::Backend as _;
use rocmforge::engine::DType;
use rocmforge::hub::ShortName;
use serde::Serialize;

use super::machine::{MeasuredMachine, Placed};
use crate::failure::sentence;
use crate::terminal::{self, Palette};

/// The devices, their speeds and the models, the best one first.
#[derive(Serialize)]
pub(super) struct FitReport {
    devices: Vec<String>,
    free_bytes: Option<u64>,
    speeds: Vec<Speed>,
    models: Vec<Row>,
}

/// The measured speed of a device with weights of one format.
#[derive(Serialize)]
struct Speed {
    /// `CPU`, or the number of a GPU.
    device: String,
    format: &'static str,
    bytes_per_s: f64,
    us_per_op: f64,
    error_percent: f64,
}

/// A model.
#[derive(Serialize)]
pub(super) struct Row {
    model: String,
    /// About, if the file was not examined.
    file_bytes: u64,
    pub(super) fits: bool,
    /// False if only the size of the download is known.
    examined: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// The memory and the devices of a model.
#[derive(Serialize)]
struct Place {
    memory_bytes: u64,
    context_tokens: usize,
    trained_context_tokens: usize,
    /// The number of layers on GPUs, which is the value for `-ngl`.
    gpu_layers: usize,
    all_layers: usize,
    cpu_expert_layers: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor_split: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    main_format: Option<&'static str>,
}

impl FitReport {
    pub(super) fn new(machine: MeasuredMachine, mut models: Vec<Row>) -> Self {
        models.sort_by_key(|row| {
            (!row.fits, row.place.as_ref().map_or(2, Place::rank), Reverse(row.file_bytes))
        });
        let devices = match machine.placement.gpus() {
            [] => machine.placement.cpu().ok().into_iter().map(|cpu| cpu.description()).collect(),
            gpus => gpus.iter().map(ToString::to_string).collect(),
        };
        let free_bytes = machine.free_bytes();
        let speeds = machine.speeds.into_iter().filter_map(|((dtype, number), speed)| {
            let speed = speed?;
            Some(Speed {
                device: number.map_or_else(|| "CPU".to_owned(), |number| format!("GPU {number}")),
                format: dtype.name(),
                bytes_per_s: speed.bytes_per_s,
                us_per_op: speed.op_s * 1e6,
                error_percent: 100.0 * speed.error,
            })
        });
        Self { devices, free_bytes, speeds: speeds.collect(), models }
    }

    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let palette = Palette::stdout();
        let free = self.free_bytes.map_or_else(|| "unknown".to_owned(), terminal::bytes);
        writeln!(out, "{}, {free} free", terminal::shown(&self.devices.join("; ")))?;
        for speed in &self.speeds {
            writeln!(
                out,
                "{} reads weights of {} at {:.1} GB/s (measured, ±{:.0} %)",
                speed.device,
                speed.format,
                speed.bytes_per_s / 1e9,
                speed.error_percent
            )?;
        }
        let names =
            self.models.iter().map(|row| row.model.chars().count()).max().unwrap_or(0).max(5);
        let heading = format!(
            "{:names$}  {:>10}  {:>10}  {:>8}  {:15}  TOKENS/S",
            "MODEL", "FILE", "MEMORY", "CONTEXT", "PLACE"
        );
        writeln!(out, "\n{}", palette.bold(heading))?;
        for row in &self.models {
            let line = row.line(names);
            let line = line.trim_end();
            if row.fits {
                writeln!(out, "{line}")?;
            } else {
                writeln!(out, "{}", palette.dim(line))?;
            }
        }
        if self.models.iter().all(|row| !row.fits) {
            writeln!(out, "\nnone of them fits")?;
        }
        Ok(())
    }
}

impl Row {
    pub(super) fn placed(model: String, file_bytes: u64, placed: Placed) -> Self {
        let layers = &placed.outlook.layers;
        let place = Place {
            memory_bytes: placed.outlook.need.total_bytes(),
            context_tokens: placed.context_tokens,
            trained_context_tokens: placed.trained_tokens,
            gpu_layers: layers.gpu_layers,
            all_layers: layers.num_layers + 1,
            cpu_expert_layers: layers.cpu_expert_layers,
            tensor_split: placed.shares,
            main_format: placed.dtype.map(DType::name),
        };
        Self {
            fits: true,
            examined: true,
            place: Some(place),
            tokens_per_s: placed.expectation.map(|expected| expected.tokens_per_s),
            error_percent: placed.expectation.map(|expected| 100.0 * expected.error),
            ..Self::unknown(model, file_bytes)
        }
    }

    /// A model that is not here, and is small enough by the size in the list.
    pub(super) fn listed(name: &ShortName) -> Self {
        let bytes = (name.download_gb() * 1e9) as u64;
        Self { fits: true, ..Self::unknown(name.to_string(), bytes) }
    }

    /// A model that is larger than the memory of all devices.
    pub(super) fn too_large(model: String, file_bytes: u64) -> Self {
        Self { examined: true, ..Self::unknown(model, file_bytes) }
    }

    pub(super) fn failed(model: String, file_bytes: Option<u64>, error: &Error) -> Self {
        let problem = Some(sentence(error));
        Self { problem, ..Self::unknown(model, file_bytes.unwrap_or(0)) }
    }

    fn unknown(model: String, file_bytes: u64) -> Self {
        let (place, tokens_per_s, error_percent, problem) = (None, None, None, None);
        let (fits, examined) = (false, false);
        Self { model, file_bytes, fits, examined, place, tokens_per_s, error_percent, problem }
    }

    fn line(&self, names: usize) -> String {
        let model = terminal::shown(&self.model);
        let file = match self.file_bytes {
            0 => String::new(),
            bytes if self.examined || !self.fits => terminal::bytes(bytes),
            bytes => format!("~{}", terminal::bytes(bytes)),
        };
        let start = format!("{model:names$}  {file:>10}");
        let Some(place) = &self.place else {
            let rest = match &self.problem {
                Some(problem) => terminal::shown(problem),
                None if self.fits => "not downloaded: fits by its size".to_owned(),
                None => "does not fit".to_owned(),
            };
            return format!("{start}  {rest}");
        };
        let speed = match (self.tokens_per_s, self.error_percent) {
            (Some(speed), Some(error)) => {
                let digits = usize::from(speed < 10.0);
                format!("{speed:.digits$} ±{error:.0} %")
            }
            _ => String::new(),
        };
        let (memory, context) = (terminal::bytes(place.memory_bytes), place.context_tokens);
        format!("{start}  {memory:>10}  {context:>8}  {:15}  {speed}", place.name())
    }
}

impl Place {
    /// Whole models on GPUs come first, then divided ones, then those of the CPU.
    fn rank(&self) -> usize {
        match self.gpu_layers {
            0 => 2,
            layers if layers == self.all_layers && self.cpu_expert_layers == 0 => 0,
            _ => 1,
        }
    }

    fn name(&self) -> String {
        let split = self.tensor_split.as_ref().map_or_else(String::new, |s| format!(" -ts {s}"));
        match (self.rank(), self.cpu_expert_layers) {
            (2, _) => "CPU".to_owned(),
            (0, _) => format!("GPU{split}"),
            (_, 0) => format!("GPU -ngl {}{split}", self.gpu_layers),
            (_, experts) if self.gpu_layers == self.all_layers => {
                format!("GPU -ncmoe {experts}{split}")
            }
            (_, experts) => format!("GPU -ngl {} -ncmoe {experts}{split}", self.gpu_layers),
        }
    }
}
