//! Files that change a model: adapters (LoRA) and control vectors.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rocmforge::Loader;

use crate::failure::bad_input;

/// The files that are loaded with a model.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Adapters")]
pub(crate) struct AdapterArgs {
    #[arg(
        help = "Load the adapter (LoRA) FILE with the model, and apply it SCALE times as strongly as it was trained. \
                Commas separate several adapters (repeatable) [default SCALE: 1]"
    )]
    #[arg(long, value_name = "FILE[:SCALE]", value_delimiter = ',', value_parser = scaled_file)]
    lora: Vec<(PathBuf, f32)>,
    #[arg(
        help = "Add the control vector FILE, times SCALE, to the outputs of the layers. Commas separate several \
                vectors (repeatable) [default SCALE: 1]"
    )]
    #[arg(long, value_name = "FILE[:SCALE]", value_delimiter = ',', value_parser = scaled_file)]
    control_vector: Vec<(PathBuf, f32)>,
    /// Apply control vectors to the layers from START to END, counted from 0 [default: all layers]
    #[arg(long, value_names = ["START", "END"], num_args = 2)]
    control_vector_layer_range: Option<Vec<usize>>,
}

/// The files of a single model, which replace those of the flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdapterOptions {
    pub(crate) lora: Option<Vec<(PathBuf, f32)>>,
    pub(crate) control_vectors: Option<Vec<(PathBuf, f32)>>,
    /// The first and the last layer that control vectors change.
    pub(crate) control_layers: Option<(usize, usize)>,
}

impl AdapterArgs {
    /// The flags with the options of a single model.
    pub(crate) fn with_options(&self, options: &AdapterOptions) -> Self {
        let mut own = self.clone();
        if let Some(lora) = &options.lora {
            own.lora.clone_from(lora);
        }
        if let Some(vectors) = &options.control_vectors {
            own.control_vector.clone_from(vectors);
            // The flag's layers are those of the flag's vectors.
            own.control_vector_layer_range = None;
        }
        if let Some((start, end)) = options.control_layers {
            own.control_vector_layer_range = Some(vec![start, end]);
        }
        own
    }

    /// Adds the files.
    pub(crate) fn add_to(&self, mut loader: Loader) -> Loader {
        for (path, scale) in &self.lora {
            loader = loader.lora(path, *scale);
        }
        for (path, scale) in &self.control_vector {
            loader = loader.control_vector(path, *scale);
        }
        match self.control_vector_layer_range.as_deref() {
            Some(&[start, end]) => loader.control_layers(start..=end),
            _ => loader,
        }
    }

    /// Checks that files that fit one model are not given for several.
    pub(crate) fn check_single(&self, models: usize) -> Result<()> {
        if models == 1 || (self.lora.is_empty() && self.control_vector.is_empty()) {
            return Ok(());
        }
        Err(bad_input!(
            "--lora and --control-vector need a single model, and {models} are given: serve one of them"
        ))
    }
}

/// Parses `FILE[:SCALE]`. The name of a file may have colons.
pub(crate) fn scaled_file(text: &str) -> Result<(PathBuf, f32), &'static str> {
    const EXPECTED: &str = "expected a file, or a file and a finite scale, as in adapter.gguf:0.5";
    let scaled = text.rsplit_once(':');
    let scaled = scaled.and_then(|(path, scale)| Some((path, scale.parse::<f32>().ok()?)));
    match scaled.unwrap_or((text, 1.0)) {
        ("", _) => Err(EXPECTED),
        (_, scale) if !scale.is_finite() => Err(EXPECTED),
        (path, scale) => Ok((path.into(), scale)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_comes_after_the_last_colon() {
        for (text, expected) in [
            ("a.gguf", Ok(("a.gguf".into(), 1.0))),
            ("a.gguf:0.5", Ok(("a.gguf".into(), 0.5))),
            ("a.gguf:-2", Ok(("a.gguf".into(), -2.0))),
            ("C:\\a.gguf", Ok(("C:\\a.gguf".into(), 1.0))),
            ("C:\\a.gguf:0", Ok(("C:\\a.gguf".into(), 0.0))),
        ] {
            assert_eq!(scaled_file(text), expected);
        }
        for bad in ["", ":1", "a.gguf:inf", "a.gguf:nan"] {
            assert!(scaled_file(bad).is_err(), "{bad}");
        }
    }
}
