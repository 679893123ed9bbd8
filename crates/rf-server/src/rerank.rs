//! Documents in the order of their relevance: `/v1/rerank` of Jina, Cohere, vLLM and llama.cpp, and
//! `/score` of vLLM.
//!
//! A score is what the model computes: any number, or for a causal reranker a probability.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::embeddings::MAX_TEXTS;
use crate::body::Fields;
use crate::error::{ApiError, check_count};
use crate::fields::TextOr;
use crate::keep_alive::KeepAlive;
use crate::prompt::on_blocking_pool;
use crate::record::RequestRecord;
use crate::request_id::unique;
use crate::state::{App, ServedEmbedder, now};

/// The query and the documents, which llama.cpp's older clients call texts.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct RerankFields {
    model: Option<String>,
    query: Option<String>,
    documents: Option<Vec<Document>>,
    texts: Option<Vec<String>>,
    /// How many of the most relevant documents are wanted; by default all.
    top_n: Option<usize>,
    /// True if the answer repeats the documents.
    return_documents: Option<bool>,
    /// The name of `return_documents` in requests with `texts`.
    return_text: Option<bool>,
    /// A duration such as `5m`, or seconds.
    #[schemars(with = "Option<Value>")]
    keep_alive: Option<KeepAlive>,
}

/// A document: a text, or an object with one.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a text, or an object with `text`")]
enum Document {
    Text(String),
    Object { text: String },
}

impl Document {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) | Self::Object { text } => text,
        }
    }
}

/// The documents, the most relevant one first.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Ranking {
    /// The answer to `documents`.
    Documents {
        id: String,
        object: &'static str,
        model: String,
        results: Vec<RankedDocument>,
        usage: RankingUsage,
    },
    /// The answer to `texts`.
    Texts(Vec<RankedText>),
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct RankedDocument {
    /// Index among the documents of the request.
    index: usize,
    relevance_score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<RepeatedDocument>,
}

#[derive(Serialize, JsonSchema)]
struct RepeatedDocument {
    text: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct RankedText {
    /// Index among the texts of the request.
    index: usize,
    score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// Counts of tokens.
#[derive(Clone, Copy, Serialize, JsonSchema)]
pub(crate) struct RankingUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// `POST /v1/rerank`.
pub(crate) async fn rerank(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<Ranking>, ApiError> {
    let request: RerankFields = fields.read()?;
    drop(fields);
    let query = request.query.ok_or_else(|| ApiError::field("query", "expected a text"))?;
    let (field, texts, repeats) = match (request.documents, request.texts) {
        (Some(documents), None) => {
            let texts = documents.into_iter().map(Document::into_text).collect();
            ("documents", texts, request.return_documents)
        }
        (None, Some(texts)) => ("texts", texts, request.return_text),
        (None, None) => return Err(ApiError::field("documents", "expected a list of texts")),
        (Some(_), Some(_)) => {
            return Err(ApiError::field("texts", "send either `documents` or `texts`"));
        }
    };
    let model = app.reranker(request.model.as_deref(), request.keep_alive).await?;
    let pairs: Pairs = texts.into_iter().map(|text| (query.clone(), text)).collect();
    let ScoredPairs { scores, usage, pairs } = ScoredPairs::of(&model, field, pairs).await?;
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    order.truncate(request.top_n.unwrap_or(usize::MAX));
    let repeated = |index: usize| repeats.unwrap_or(false).then(|| pairs[index].1.clone());
    let score = |index: usize| f64::from(scores[index]);
    if field == "texts" {
        let text = |index| RankedText { index, score: score(index), text: repeated(index) };
        return Ok(Json(Ranking::Texts(order.into_iter().map(text).collect())));
    }
    let document = |index| RankedDocument {
        index,
        relevance_score: score(index),
        document: repeated(index).map(|text| RepeatedDocument { text }),
    };
    Ok(Json(Ranking::Documents {
        id: unique("rerank-"),
        object: "list",
        model: model.id().to_owned(),
        results: order.into_iter().map(document).collect(),
        usage,
    }))
}

/// Two lists of texts of the same length, or one text and a list.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ScoreFields {
    model: Option<String>,
    /// Queries.
    #[serde(alias = "queries")]
    text_1: Option<TextOr<String>>,
    /// Documents.
    #[serde(alias = "documents")]
    text_2: Option<TextOr<String>>,
    /// A duration such as `5m`, or seconds.
    #[schemars(with = "Option<Value>")]
    keep_alive: Option<KeepAlive>,
}

/// A score for each pair of texts, in their order.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ScoreList {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    data: Vec<ScoreEntry>,
    usage: RankingUsage,
}

#[derive(Serialize, JsonSchema)]
struct ScoreEntry {
    index: usize,
    object: &'static str,
    score: f64,
}

/// `POST /score`.
pub(crate) async fn score(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<ScoreList>, ApiError> {
    let request: ScoreFields = fields.read()?;
    drop(fields);
    let texts = |field: &'static str, texts: Option<TextOr<String>>| {
        let texts = texts.ok_or_else(|| ApiError::field(field, "expected a text or texts"))?;
        Ok::<_, ApiError>(texts.into_vec())
    };
    let (first, second) = (texts("text_1", request.text_1)?, texts("text_2", request.text_2)?);
    check_count("text_2", second.len(), MAX_TEXTS)?;
    let pairs: Pairs = match first.as_slice() {
        [one] => second.into_iter().map(|text| (one.clone(), text)).collect(),
        _ if first.len() == second.len() => first.into_iter().zip(second).collect(),
        _ => {
            let (firsts, seconds) = (first.len(), second.len());
            let message = format!("{seconds} texts for {firsts} of `text_1`: send as many");
            return Err(ApiError::field("text_2", message));
        }
    };
    let model = app.reranker(request.model.as_deref(), request.keep_alive).await?;
    let ScoredPairs { scores, usage, .. } = ScoredPairs::of(&model, "text_2", pairs).await?;
    let entry =
        |(index, score): (usize, f32)| ScoreEntry { index, object: "score", score: score.into() };
    Ok(Json(ScoreList {
        id: unique("score-"),
        object: "list",
        created: now(),
        model: model.id().to_owned(),
        data: scores.into_iter().enumerate().map(entry).collect(),
        usage,
    }))
}

/// Queries, each with a document.
type Pairs = Vec<(String, String)>;

/// The scores of pairs.
struct ScoredPairs {
    scores: Vec<f32>,
    usage: RankingUsage,
    pairs: Pairs,
}

impl ScoredPairs {
    /// Computes the scores. `field` is that of the documents, for errors.
    async fn of(
        model: &ServedEmbedder,
        field: &'static str,
        pairs: Pairs,
    ) -> Result<Self, ApiError> {
        if pairs.is_empty() {
            return Err(ApiError::field(field, "the list is empty"));
        }
        check_count(field, pairs.len(), MAX_TEXTS)?;
        let limit = model.text_limit();
        let tokenized = on_blocking_pool(model.model().file(), move |model| {
            let mut texts = Vec::with_capacity(pairs.len());
            for (index, (query, document)) in pairs.iter().enumerate() {
                limit.check(query)?;
                limit.check(document)?;
                let ids = model.rank_ids(query, document);
                let ids = ids.map_err(|error| ApiError::internal(&error))?;
                if ids.len() > limit.tokens() {
                    let error = ApiError::prompt_too_long(ids.len(), limit.tokens());
                    return Err(error.of_field(format!("{field}[{index}]")));
                }
                texts.push(ids);
            }
            Ok((texts, pairs))
        });
        let (texts, pairs) = tokenized.await?;
        let prompt_tokens = texts.iter().map(Vec::len).sum();
        RequestRecord::spend_prompt(prompt_tokens);
        let scores = model.model().embed_ids_async(texts).await?;
        // Of several labels, the first one is that of relevance.
        let first = |scores: &Vec<f32>| scores.first().copied().unwrap_or_default();
        Ok(Self {
            scores: scores.iter().map(first).collect(),
            usage: RankingUsage { prompt_tokens, total_tokens: prompt_tokens },
            pairs,
        })
    }
}
