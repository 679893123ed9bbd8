//! The ops of a model, fused as the CPU backend fuses them, and the weights that they read:
//! `cargo run -p rf-model --example operations -- FILE`.
//!
//! Without a file it uses a golden model of the repository.

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::collections::BTreeMap;
use std::env;

use rf_gguf::Gguf;
use rf_graph::{Fusions, Op, fuse};
use rf_model::{Head, ModelConfig};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/arch/smollm3.gguf");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gguf = Gguf::open(env::args().nth(1).unwrap_or(GOLDEN.into()))?;
    let config = ModelConfig::from_gguf(&gguf)?;
    println!(
        "{}: {} layers, width {}",
        config.architecture,
        config.num_layers(),
        config.hidden_size
    );

    let (graph, weights) = rf_model::build(&gguf, &config, config.context_length, Head::Logits)?;
    let mut bytes_by_format = BTreeMap::new();
    for weight in &weights {
        *bytes_by_format.entry(weight.dtype().to_string()).or_insert(0) += weight.size_bytes();
    }
    for (format, bytes) in bytes_by_format {
        println!("{format:>12}: {bytes} bytes of weights");
    }

    let unfused = graph.ops().len();
    let graph = fuse(graph, Fusions::PROLOGUES);
    println!("{unfused} ops, {} after fusion:", graph.ops().len());
    let mut count_by_name = BTreeMap::new();
    for name in graph.ops().iter().map(Op::name) {
        *count_by_name.entry(name).or_insert(0) += 1;
    }
    for (name, count) in count_by_name {
        println!("{count:>12} {name}");
    }
    Ok(())
}
