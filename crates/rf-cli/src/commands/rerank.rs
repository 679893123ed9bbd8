//! `rf-cli rerank`: orders documents by their relevance for a query.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rocmforge::{Pooling, Ranked};
use serde::Serialize;

use crate::args::{ComputeArgs, DeviceArgs, ModelArgs};
use crate::embedding::{self, EmbeddingInput};
use crate::failure::bad_input;
use crate::loading::ModelFile;
use crate::{loading, sources};

/// Arguments of `rf-cli rerank`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints the score and the text of each document in one line, the most relevant first. Some models compute a \
probability as the score, others any number. If a model has several labels, the score is that of the first. \
--json prints the object of rerank services: {\"results\": [{\"index\": 0, \"relevance_score\": X}, ...]}. \
Its indices count from 0.

Examples:
  rf-cli rerank -m reranker.gguf \"What do pandas eat?\" \"Bamboo.\" \"The sky is blue.\"
  rf-cli rerank -m reranker.gguf --json \"What do pandas eat?\" -f documents.txt")]
pub(crate) struct RerankArgs {
    /// Order the documents by their relevance for this text
    #[arg(value_name = "QUERY")]
    query: String,
    /// Order these documents [default: -f, or the lines of standard input]
    #[arg(value_name = "DOCUMENT", conflicts_with = "file")]
    documents: Vec<String>,
    #[command(flatten)]
    model: ModelArgs,
    /// Order the lines of FILE; - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[arg(long, help = "Print JSON: {\"results\": [{\"index\": N, \"relevance_score\": X}, ...]}")]
    json: bool,
    /// Limit the query and a document to N tokens together; 0 = trained context [default: the
    /// length of the longest pair]
    #[arg(short, long, value_name = "N")]
    ctx_size: Option<usize>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

/// The JSON output.
#[derive(Serialize)]
struct Ranking {
    results: Vec<RankedDocument>,
}

/// A document's place in the ranking.
#[derive(Serialize)]
struct RankedDocument {
    index: usize,
    relevance_score: f32,
}

impl RankedDocument {
    fn of(ranked: &Ranked) -> Self {
        Self { index: ranked.index, relevance_score: ranked.score }
    }
}

/// Runs `rf-cli rerank`.
pub(crate) fn rerank(arguments: &RerankArgs) -> Result<()> {
    let documents = sources::texts(&arguments.documents, arguments.file.as_deref())?;
    let open = loading::open(ModelFile::of(&arguments.model)?.loader().embeddings())?;
    let model = open.model();
    if model.config().pooling != Some(Pooling::Rank) {
        return Err(bad_input!(
            "the model is not a reranker (its pooling is not rank): give a reranker, or compare \
             embeddings of `rf-cli embed`"
        ));
    }
    let ids = documents.iter().map(|document| Ok(model.rank_ids(&arguments.query, document)?));
    let ids = ids.collect::<Result<Vec<_>>>()?;
    let input = EmbeddingInput { ids: &ids, pooling: Pooling::Rank, ctx_size: arguments.ctx_size };
    let model = embedding::load(open, &input, &arguments.device, &arguments.compute)?;
    let ranked = model.rerank_ids(ids)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    if arguments.json {
        let results: Vec<_> = ranked.iter().map(RankedDocument::of).collect();
        serde_json::to_writer(&mut out, &Ranking { results }).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        for Ranked { index, score, .. } in ranked {
            writeln!(out, "{score:>10.4}  {}", documents[index].escape_debug())?;
        }
    }
    out.flush()?;
    Ok(())
}
