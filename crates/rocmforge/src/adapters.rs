//! Files that change a model: adapters and control vectors.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use rf_engine::{Adapter, AdapterError, ControlVector, Model};

use crate::error::Error;

/// Adapters and control vectors to load with a model.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    pub(crate) adapters: Vec<(PathBuf, f32)>,
    pub(crate) control_vectors: Vec<(PathBuf, f32)>,
    /// The layers whose outputs control vectors change.
    pub(crate) control_layers: RangeInclusive<usize>,
}

impl Default for Changes {
    fn default() -> Self {
        let (adapters, control_vectors) = (Vec::new(), Vec::new());
        Self { adapters, control_vectors, control_layers: 0..=usize::MAX }
    }
}

impl Changes {
    /// Opens the files and adds them to a model.
    pub(crate) fn add_to(&self, model: Model) -> Result<Model, Error> {
        let adapters = open(&self.adapters, |path| Adapter::open(path))?;
        let vectors = open(&self.control_vectors, |path| ControlVector::open(path))?;
        let model = model.with_adapters(adapters)?;
        Ok(model.with_control_vectors(&vectors, &self.control_layers)?)
    }
}

/// Opens files, each with its scale.
fn open<T>(
    files: &[(PathBuf, f32)],
    open: impl Fn(&Path) -> Result<T, AdapterError>,
) -> Result<Vec<(T, f32)>, Error> {
    let open = |(path, scale): &(PathBuf, f32)| {
        let file = open(path).map_err(rf_model::Error::from).map_err(rf_engine::Error::from)?;
        Ok((file, *scale))
    };
    files.iter().map(open).collect()
}
