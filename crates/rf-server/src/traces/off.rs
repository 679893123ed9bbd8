//! The tracer of a build without the feature `otel`, which makes no spans.

use std::future::Ready;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue};

use super::{PromptPhases, RequestEnd};
use crate::error::Error;

/// There is none.
#[derive(Debug)]
pub(crate) enum Tracer {}

/// There is none.
#[derive(Debug)]
pub(crate) enum RequestTrace {}

impl Tracer {
    pub(crate) fn new(endpoint: Option<&str>) -> Result<Option<Self>, Error> {
        match endpoint {
            None => Ok(None),
            Some(_) => Err(Error::NotBuilt { option: "the export of traces", feature: "otel" }),
        }
    }

    pub(crate) fn begin(
        &self,
        _route: Option<&str>,
        _headers: &HeaderMap,
    ) -> Option<Arc<RequestTrace>> {
        match *self {}
    }

    pub(crate) fn run(&self) -> Ready<()> {
        match *self {}
    }

    pub(crate) fn flush(&self) -> Ready<()> {
        match *self {}
    }

    pub(crate) fn dropped(&self) -> u64 {
        match *self {}
    }
}

impl RequestTrace {
    pub(crate) fn header(&self) -> HeaderValue {
        match *self {}
    }

    pub(crate) fn prompt(&self, _phases: &PromptPhases) {
        match *self {}
    }

    pub(crate) fn end(&self, _end: &RequestEnd<'_>) {
        match *self {}
    }
}
