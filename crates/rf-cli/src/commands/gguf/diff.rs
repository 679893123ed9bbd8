//! `rf-cli gguf diff`.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rf_convert::{Comparison, DataDifference, KeyDifference, TensorDifference};
use rf_gguf::{Gguf, TensorInfo, Value};
use serde_json::json;

use super::copied::failure;
use crate::commands::info::metadata_json;
use crate::failure::Differs;
use crate::terminal;

/// Arguments of `rf-cli gguf diff`.
#[derive(Debug, Args)]
#[command(after_help = "\
Tensors of different formats are compared after dequantisation. A split model is the same as the merged one, and the \
order of keys and tensors does not count.

Exit codes: 0 no difference, 1 a difference or a failure while reading, 2 invalid arguments or input.

Examples:
  rf-cli gguf diff model-F16.gguf model-Q8_0.gguf
  rf-cli gguf diff --json --no-data a.gguf b.gguf")]
pub(crate) struct DiffArgs {
    /// Compare the model A
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Compare it with the model B
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Compare metadata, types and shapes only
    #[arg(long)]
    no_data: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `rf-cli gguf diff`.
pub(super) fn diff(arguments: &DiffArgs) -> Result<()> {
    let (a, b) = (Gguf::open(&arguments.a)?, Gguf::open(&arguments.b)?);
    let total = a.tensors().iter().map(|tensor| tensor.size_bytes() as u64).sum();
    let progress = terminal::byte_progress("comparing", total);
    let comparison = Comparison::of([&a, &b], !arguments.no_data, |bytes| progress.inc(bytes));
    progress.finish_and_clear();
    let comparison = comparison.map_err(|error| failure(error, &a))?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &to_json(&comparison)).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&mut out, &comparison)?;
    }
    out.flush()?;
    if comparison.is_empty() { Ok(()) } else { Err(Differs.into()) }
}

fn print(out: &mut impl Write, comparison: &Comparison<'_>) -> io::Result<()> {
    for KeyDifference { key, values: [a, b] } in &comparison.keys {
        let value = |value: &Value| terminal::shown(&metadata_json(value).to_string());
        let key = terminal::shown(key);
        match (a, b) {
            (Some(a), Some(b)) if a.kind() != b.kind() => {
                let (old, new) = (a.kind(), b.kind());
                writeln!(out, "key {key}: {} ({old}) -> {} ({new})", value(a), value(b))?;
            }
            (Some(a), Some(b)) => match first_element(a, b) {
                Some((index, [a, b])) => {
                    writeln!(out, "key {key}: element {index}: {} -> {}", value(&a), value(&b))?;
                }
                None => writeln!(out, "key {key}: {} -> {}", value(a), value(b))?,
            },
            (Some(a), None) => writeln!(out, "key {key}: only in A, {}", value(a))?,
            (None, b) => {
                let value = b.map(value).unwrap_or_default();
                writeln!(out, "key {key}: only in B, {value}")?;
            }
        }
    }
    for difference in &comparison.tensors {
        writeln!(out, "{}", tensor_line(difference))?;
    }
    Ok(())
}

/// The first element that differs in two arrays of one length, which may be long.
fn first_element(a: &Value, b: &Value) -> Option<(usize, [Value; 2])> {
    let (a, b) = (a.as_array()?, b.as_array()?);
    let pairs = (0..a.len()).filter_map(|index| Some((index, [a.value(index)?, b.value(index)?])));
    let mut differing = pairs.filter(|(_, [a, b])| a != b);
    if a.len() == b.len() { differing.next() } else { None }
}

fn tensor_line(TensorDifference { tensors: [a, b], data }: &TensorDifference<'_>) -> String {
    let form = |tensor: &TensorInfo| format!("{} {:?}", tensor.ty(), tensor.shape());
    let name = a.or(*b).map(|tensor| terminal::shown(tensor.name())).unwrap_or_default();
    let elements = a.map_or(0, TensorInfo::elements);
    let (a, b) = match (a, b) {
        (Some(a), Some(b)) => (form(a), form(b)),
        (Some(a), None) => return format!("tensor {name}: only in A, {}", form(a)),
        (_, b) => {
            let form = b.map(form).unwrap_or_default();
            return format!("tensor {name}: only in B, {form}");
        }
    };
    let form = if a == b { a } else { format!("{a} -> {b}") };
    let data = match data {
        Some(DataDifference { elements: differing, first: Some(first), largest }) => format!(
            ", {differing} of {elements} elements differ, the first is {first}, the largest \
             difference {largest:e}"
        ),
        Some(_) => ", the elements are the same numbers".to_owned(),
        None if form.contains(" -> ") => String::new(),
        None => ", the bytes differ".to_owned(),
    };
    format!("tensor {name}: {form}{data}")
}

fn to_json(comparison: &Comparison<'_>) -> serde_json::Value {
    let keys = comparison.keys.iter().map(|KeyDifference { key, values }| {
        let [a, b] = values.map(|value| {
            value.map(
                |value| json!({"type": value.kind().to_string(), "value": metadata_json(value)}),
            )
        });
        json!({"key": key, "a": a, "b": b})
    });
    let tensors = comparison.tensors.iter().map(|TensorDifference { tensors, data }| {
        let name = tensors.iter().flatten().next().map(|tensor| tensor.name());
        let [a, b] = tensors.map(|tensor| {
            tensor.map(|tensor| json!({"type": tensor.ty().to_string(), "shape": tensor.shape()}))
        });
        let data = data.map(|data| {
            // JSON has no infinity.
            json!({
                "elements": data.elements,
                "first": data.first,
                "largest": data.largest.is_finite().then_some(data.largest),
            })
        });
        json!({"name": name, "a": a, "b": b, "data": data})
    });
    json!({"keys": keys.collect::<Vec<_>>(), "tensors": tensors.collect::<Vec<_>>()})
}
