//! Replaces `gpu` in a program that is built without the feature.

use crate::error::{Error, Warning};
use crate::open_gpu::OpenGpu;

pub(crate) fn open(_number: Option<usize>) -> Result<OpenGpu, Error> {
    Err(Error::WithoutGpuSupport)
}

pub(crate) fn open_if_usable(required: bool, warnings: &mut Vec<Warning>) -> Option<OpenGpu> {
    if required {
        let reason = Error::WithoutGpuSupport.to_string();
        warnings.push(Warning::EverythingOnCpu { reason });
    }
    None
}
