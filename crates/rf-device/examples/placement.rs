//! Prints where the layers of a model run, and how much memory they take:
//! `cargo run --release -p rf-device --features gpu --example placement -- FILE`.
//!
//! Without a file it uses the demo model, and without the feature `gpu` every layer is on the CPU.

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::env;
use std::sync::Arc;

use rf_device::{DeviceOptions, LoadEvent, LoadedModel, Placement};
use rf_engine::{EngineOptions, Model, Outputs, SequenceInput};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rocmforge/demo/stories-7m-Q8_0.gguf");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Arc::new(Model::open(env::args().nth(1).unwrap_or(DEMO.into()))?);
    let placement = Placement::open(DeviceOptions::default())?;
    for warning in placement.warnings() {
        println!("warning: {warning}");
    }
    let options = EngineOptions::default().with_context_tokens(Some(512));
    let need = placement.memory_need(&model, &options)?;
    println!("needs {} MiB in all", need.total_bytes() >> 20);

    let loaded = placement.load(&model, options, &mut |event| match event {
        LoadEvent::Placed(layers) => println!("{layers}"),
        LoadEvent::Warning(warning) => println!("warning: {warning}"),
        // Progress, for a bar.
        _ => (),
    })?;
    let LoadedModel { mut engine, placement: layers } = loaded;
    println!("{} of {} layers on a GPU", layers.gpu_layers, layers.num_layers);
    println!("holds {} MiB", engine.memory().total_bytes() >> 20);

    let mut session = engine.session();
    let ids = model.text_ids("Once upon a time");
    let feed = SequenceInput { session: &mut session, ids: &ids, outputs: Outputs::Last };
    let logits = engine.forward(&mut [feed])?;
    let next = (0..).zip(&logits).max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(id, _)| id);
    let piece = model.tokenizer().piece(next).unwrap_or_default();
    println!("the token after \"Once upon a time\": {:?}", String::from_utf8_lossy(&piece));
    Ok(())
}
