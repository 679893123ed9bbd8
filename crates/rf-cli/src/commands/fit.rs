//! `rf-cli fit`: which models, quantisations and contexts fit on this machine, and how fast they
//! generate.

mod heads;
mod machine;
mod report;

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use clap::Args;
use rocmforge::hub::{Hub, ModelName, ShortName};
use rocmforge::{Drafts, Loader, OpenModel, Source};

use self::heads::Heads;
use self::machine::MeasuredMachine;
use self::report::{FitReport, Row};
use crate::args::{ComputeArgs, DeviceArgs};
use crate::commands::{guide, list};
use crate::failure::bad_input;
use crate::{hub, loading, terminal};

/// Arguments of `rf-cli fit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Reads metadata only: those of a file, or the first megabytes of each file of the repository, without weights. \
Memory is computed as for `rf-cli run`. The context is the longest one for which no layer has to leave the GPU.

TOKENS/S is the expected throughput of one conversation with a short context. It is the bandwidth of this \
machine, divided by the number of bytes that a step reads. The bandwidth is measured with synthetic models in \
the format of the weights. ± is the larger of two values: the error of predicting one of these models from the \
others, and the variation of their times. The estimate may be further off for a model of several formats, with \
experts, or with recurrent layers.

Without MODEL, models that are not downloaded are shown with the size from the list and without a measured speed.

Examples:
  rf-cli fit
  rf-cli fit qwen3.5:9b
  rf-cli fit -c 65536 unsloth/Qwen3-8B-GGUF:Q8_0
  rf-cli fit --json model.gguf")]
pub(crate) struct FitArgs {
    #[arg(
        help = "Examine this file, or the quantisations of this model: a name of `rf-cli list --all`, or \
                  OWNER/REPO[:QUANT] [default: all short names]"
    )]
    #[arg(value_name = "MODEL")]
    model: Option<String>,
    /// Require a context of N tokens [default: the longest that fits]
    #[arg(short, long, value_name = "N")]
    ctx_size: Option<usize>,
    /// Measure nothing: without speeds, the answer comes at once
    #[arg(long)]
    no_measure: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

/// Runs `rf-cli fit`.
pub(crate) fn fit(arguments: &FitArgs) -> Result<()> {
    loading::check_context(arguments.ctx_size)?;
    let options = arguments.device.options(arguments.compute.cpu()?);
    let mut machine = MeasuredMachine::open(options, !arguments.no_measure)?;
    let rows = match arguments.model.as_deref() {
        None => arguments.short_names(&mut machine)?,
        Some(text) if Path::new(text).exists() => {
            vec![arguments.row(&mut machine, text.to_owned(), None, arguments.open(text))]
        }
        Some(text) => {
            let name = hub::model_name(text).map_err(|reason| {
                bad_input!("'{}' is no file, and as a name: {reason}", terminal::shown(text))
            })?;
            // A short name stands for one quantisation; here all are of interest.
            let is_short = ShortName::find(text).is_some();
            let repository = name.repo().parse().unwrap_or_else(|_| name.clone());
            let wanted = if is_short { &repository } else { &name };
            arguments.quantisations(&mut machine, wanted)?
        }
    };
    let report = FitReport::new(machine, rows);
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        report.print(&mut out)?;
    }
    Ok(())
}

impl FitArgs {
    /// All short names that fit: measured where the model is here, by the size of the list where
    /// it is not.
    fn short_names(&self, machine: &mut MeasuredMachine) -> Result<Vec<Row>> {
        let cached = Hub::from_env()?.cached();
        let free_bytes = machine.free_bytes();
        let mut rows = Vec::new();
        for name in ShortName::all() {
            let here = cached.iter().find(|model| list::is_of(name, model));
            match here {
                Some(model) => {
                    let open = self.open(&model.path);
                    let row = self.row(machine, name.to_string(), Some(model.size_bytes), open);
                    rows.extend(row.fits.then_some(row));
                }
                None if guide::fits(name, free_bytes) => rows.push(Row::listed(name)),
                None => {}
            }
        }
        Ok(rows)
    }

    /// The models of a repository, or those that are here if it cannot be reached.
    fn quantisations(&self, machine: &mut MeasuredMachine, name: &ModelName) -> Result<Vec<Row>> {
        let hub = Hub::from_env()?;
        let cached = hub.cached().into_iter().filter(|model| {
            let quant = |name: &ModelName| name.quant().map(str::to_ascii_uppercase);
            model.name.repo() == name.repo()
                && (name.quant().is_none() || quant(&model.name) == quant(name))
        });
        let cached: Vec<_> = cached.collect();
        let models = match hub.models(name) {
            Ok(models) => models,
            Err(error) if cached.is_empty() => return Err(error.into()),
            Err(error) => {
                terminal::warn(format_args!("only models that are here are shown: {error}"));
                let rows = cached.into_iter().map(|model| {
                    let (label, open) = (model.name.to_string(), self.open(&model.path));
                    self.row(machine, label, Some(model.size_bytes), open)
                });
                return Ok(rows.collect());
            }
        };
        let room = machine.room_bytes();
        let heads = Heads::new(&hub)?;
        let bar = terminal::count_progress("reading headers", models.len() as u64);
        let mut rows = Vec::new();
        for model in models {
            let size = model.size_bytes();
            let label = model.name.to_string();
            let here = cached.iter().find(|cached| cached.name == model.name);
            rows.push(match here {
                Some(here) => self.row(machine, label, Some(size), self.open(&here.path)),
                None if room.is_some_and(|room| size > room) => Row::too_large(label, size),
                None => {
                    let open = heads.open(&model).and_then(|path| self.open(path));
                    self.row(machine, label, Some(size), open)
                }
            });
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(rows)
    }

    /// Opens a file without its projector and drafts, which `fit` leaves out.
    fn open(&self, path: impl AsRef<Path>) -> Result<OpenModel> {
        let source = Source::File(path.as_ref().to_owned());
        let loader = Loader::new(source).drafts(Drafts::Off).no_mmproj();
        Ok(loading::sized(loader, &self.compute, self.ctx_size)?.open(&mut |_| ())?)
    }

    fn row(
        &self,
        machine: &mut MeasuredMachine,
        label: String,
        size: Option<u64>,
        open: Result<OpenModel>,
    ) -> Row {
        let open = match open {
            Ok(open) => open,
            Err(error) => return Row::failed(label, size, &error),
        };
        let size = size.unwrap_or_else(|| open.model().gguf().file_bytes());
        match machine.place(&open, self.ctx_size.is_some()) {
            Ok(Some(placed)) => Row::placed(label, size, placed),
            Ok(None) => Row::too_large(label, size),
            Err(error) => Row::failed(label, Some(size), &error),
        }
    }
}
