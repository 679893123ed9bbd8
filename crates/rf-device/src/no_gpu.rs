//! Replaces `gpu` in a program that is built without the feature.

use crate::error::{Error, Warning};
use crate::open_gpu::OpenGpu;
use crate::options::Graphs;

/// Starts child processes that examine drivers; there are none without GPU support.
#[derive(Debug)]
pub enum Prober {}

pub(crate) fn open(
    _number: Option<usize>,
    _prober: Option<&Prober>,
    _graphs: Graphs,
) -> Result<OpenGpu, Error> {
    Err(Error::WithoutGpuSupport)
}

pub(crate) fn open_others(
    _first: &OpenGpu,
    _prober: Option<&Prober>,
    _graphs: Graphs,
    _warnings: &mut Vec<Warning>,
) -> Result<Vec<OpenGpu>, Error> {
    Err(Error::WithoutGpuSupport)
}

pub(crate) fn open_if_usable(
    required: bool,
    _prober: Option<&Prober>,
    _graphs: Graphs,
    warnings: &mut Vec<Warning>,
) -> Option<OpenGpu> {
    if required {
        let reason = Error::WithoutGpuSupport.to_string();
        warnings.push(Warning::EverythingOnCpu { reason });
    }
    None
}
