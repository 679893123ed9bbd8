//! `rf-cli embed`: computes embeddings of texts.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rocmforge::engine::{EncodeOptions, Normalization, Pooling};
use serde::Serialize;

use crate::adapters::AdapterArgs;
use crate::args::{ComputeArgs, DeviceArgs, ModelArgs};
use crate::embedding::{self, EmbeddingInput};
use crate::failure::bad_input;
use crate::loading::ModelFile;
use crate::{loading, sources, terminal};

/// Arguments of `rf-cli embed`.
#[derive(Debug, Args)]
#[command(after_help = "\
Writes the embeddings one after the other as little-endian f32. With --json, writes an object \
{\"embeddings\": [[...], ...]}. Texts share batches, which does not change the result. Keys and values are \
f32 unless --cache-type names another format. With the pooling none, a text has an embedding for each of its \
tokens, in JSON as a list of them. With the pooling rank, which rerankers use, the numbers of a \
text are its scores and are not normalised. `rf-cli rerank` makes such texts from a query and documents.

Examples:
  rf-cli embed -m model.gguf --json \"What is a page of the KV cache?\"
  rf-cli embed -m model.gguf -f lines.txt > embeddings.f32
  rf-cli embed -m model.gguf --ids --json \"101,7592,102\"")]
pub(crate) struct EmbedArgs {
    /// Embed these texts [default: -f, or the lines of standard input]
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    texts: Vec<String>,
    #[command(flatten)]
    model: ModelArgs,
    /// Embed each line of FILE; - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Read each text as token ids, separated by commas or spaces
    #[arg(long)]
    ids: bool,
    /// Pool the hidden states of the tokens: mean, cls (first token), last, rank (scores), or none
    /// (an embedding per token) [default: the pooling of the file; if it has none, mean for
    /// encoders and last otherwise]
    #[arg(long, value_name = "POOLING", value_parser = pooling)]
    pooling: Option<PoolingChoice>,
    /// Normalise each embedding to length 1 in the P-norm (2 = Euclidean, 1 = taxicab). 0 scales
    /// its largest magnitude to 32760, -1 leaves it unchanged
    #[arg(
        long,
        visible_alias = "embd-normalize",
        value_name = "P",
        default_value_t = 2,
        allow_negative_numbers = true
    )]
    normalize: i32,
    #[arg(long, help = "Print JSON: {\"embeddings\": [[...], ...]}")]
    json: bool,
    /// Limit each text to N tokens; 0 = trained context [default: the length of the longest text]
    #[arg(short, long, value_name = "N")]
    ctx_size: Option<usize>,
    #[command(flatten)]
    adapters: AdapterArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

/// The value of `--pooling`.
#[derive(Clone, Copy, Debug)]
enum PoolingChoice {
    /// An embedding per token.
    None,
    Of(Pooling),
}

/// The JSON output.
#[derive(Serialize)]
struct Embeddings {
    embeddings: Vectors,
}

/// The embeddings of texts.
#[derive(Serialize)]
#[serde(untagged)]
enum Vectors {
    OfTexts(Vec<Vec<f32>>),
    OfTokens(Vec<Vec<Vec<f32>>>),
}

/// Runs `rf-cli embed`.
pub(crate) fn embed(arguments: &EmbedArgs) -> Result<()> {
    if !arguments.json && io::stdout().is_terminal() {
        return Err(bad_input!(
            "embeddings are binary: give --json, or send the output to a file or a pipe"
        ));
    }
    let normalization = normalization(arguments.normalize)?;
    let texts = sources::texts(&arguments.texts, arguments.file.as_deref())?;
    let loader = ModelFile::of(&arguments.model)?.loader().embeddings();
    let open = loading::open(arguments.adapters.add_to(loader))?;
    let model = open.model();
    let ids: Vec<Vec<u32>> = if arguments.ids {
        texts.iter().map(|text| sources::ids(text)).collect::<Result<_>>()?
    } else {
        texts.iter().map(|text| model.tokenizer().encode(text, EncodeOptions::PROMPT)).collect()
    };
    let (pooling, name, are_pooled) = match arguments.pooling {
        // Every pooling but rank keeps the states of the tokens.
        Some(PoolingChoice::None) => (Pooling::Mean, "none", false),
        Some(PoolingChoice::Of(pooling)) => (pooling, pooling.name(), true),
        None => {
            let pooling = model.config().default_pooling();
            (pooling, pooling.name(), true)
        }
    };
    let input = EmbeddingInput { ids: &ids, pooling, ctx_size: arguments.ctx_size };
    let model = embedding::load(open, &input, &arguments.device, &arguments.compute)?;
    let mut embeddings = if are_pooled {
        Vectors::OfTexts(model.embed_ids(ids)?)
    } else {
        Vectors::OfTokens(model.embed_tokens(ids)?)
    };
    if pooling != Pooling::Rank {
        embeddings.all_mut().for_each(|vector| normalization.apply(vector));
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    if arguments.json {
        serde_json::to_writer(&mut out, &Embeddings { embeddings }).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        let (mut count, mut width) = (0, 0);
        for vector in embeddings.all_mut() {
            (count, width) = (count + 1, vector.len());
            for number in vector {
                out.write_all(&number.to_le_bytes())?;
            }
        }
        terminal::note(format_args!("{count} x {width} numbers, pooling {name}"));
    }
    out.flush()?;
    Ok(())
}

impl Vectors {
    /// Returns all vectors, in the order of texts and tokens.
    fn all_mut(&mut self) -> Box<dyn Iterator<Item = &mut Vec<f32>> + '_> {
        match self {
            Self::OfTexts(vectors) => Box::new(vectors.iter_mut()),
            Self::OfTokens(texts) => Box::new(texts.iter_mut().flatten()),
        }
    }
}

/// Parses the name of a pooling.
fn pooling(name: &str) -> Result<PoolingChoice, String> {
    if name == "none" {
        return Ok(PoolingChoice::None);
    }
    let known = Pooling::ALL.into_iter().find(|pooling| pooling.name() == name);
    known.map(PoolingChoice::Of).ok_or_else(|| {
        format!("expected one of none, {}", Pooling::ALL.map(Pooling::name).join(", "))
    })
}

/// The number that llama.cpp gives to a normalisation.
fn normalization(number: i32) -> Result<Normalization> {
    match number {
        -1 => Ok(Normalization::None),
        0 => Ok(Normalization::MaxAbsolute),
        p => u32::try_from(p).map(Normalization::Norm).map_err(|_| {
            bad_input!("normalisation {p} is not supported: give a P of 0 or more, or -1 for none")
        }),
    }
}
