//! Embeddings and the ranking of documents.

use rf_engine::{EncodeOptions, Normalization, Pooling};

use crate::block_on::block_on;
use crate::error::Error;
use crate::model::Model;

/// A document with its relevance.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ranked {
    /// Index among the documents.
    pub index: usize,
    /// The score of the model: larger is more relevant.
    pub score: f32,
}

impl Model {
    /// Computes an embedding of length 1 for each text. It blocks the thread.
    ///
    /// The model was loaded for embeddings ([`Loader::embeddings`](crate::Loader::embeddings)), or
    /// generates nothing.
    ///
    /// # Errors
    ///
    /// If the model generates text, a text is empty or longer than the context, or the model fails.
    pub fn embed<S: AsRef<str>>(&self, texts: &[S]) -> Result<Vec<Vec<f32>>, Error> {
        block_on(self.embed_async(texts))
    }

    /// [`embed`](Self::embed) for async code.
    ///
    /// # Errors
    ///
    /// The errors of [`embed`](Self::embed).
    pub async fn embed_async<S: AsRef<str>>(&self, texts: &[S]) -> Result<Vec<Vec<f32>>, Error> {
        let encode =
            |text: &S| self.file().tokenizer().encode(text.as_ref(), EncodeOptions::PROMPT);
        let texts: Vec<Vec<u32>> = texts.iter().map(encode).collect();
        let mut vectors = self.embed_ids_async(texts).await?;
        for vector in &mut vectors {
            Normalization::Norm(2).apply(vector);
        }
        Ok(vectors)
    }

    /// Computes the pooled states of each text, which is given as its tokens, without a
    /// normalisation.
    ///
    /// # Errors
    ///
    /// The errors of [`embed`](Self::embed).
    pub async fn embed_ids_async(&self, texts: Vec<Vec<u32>>) -> Result<Vec<Vec<f32>>, Error> {
        let embedder = self.embedder()?;
        let most = self.context_tokens();
        for (index, text) in texts.iter().enumerate() {
            match text.len() {
                0 => return Err(Error::EmptyText { index }),
                tokens if tokens > most => return Err(Error::TextTooLong { index, tokens, most }),
                _ => {}
            }
        }
        embedder.embed(texts).await
    }

    /// Orders documents by their relevance for a query, the most relevant one first. It blocks the
    /// thread. The model is a reranker.
    ///
    /// # Errors
    ///
    /// [`Error::NoReranker`] for other models, and the errors of [`embed`](Self::embed).
    pub fn rerank<S: AsRef<str>>(
        &self,
        query: &str,
        documents: &[S],
    ) -> Result<Vec<Ranked>, Error> {
        block_on(self.rerank_async(query, documents))
    }

    /// [`rerank`](Self::rerank) for async code.
    ///
    /// # Errors
    ///
    /// The errors of [`rerank`](Self::rerank).
    pub async fn rerank_async<S: AsRef<str>>(
        &self,
        query: &str,
        documents: &[S],
    ) -> Result<Vec<Ranked>, Error> {
        if self.file().config().pooling != Some(Pooling::Rank) {
            return Err(Error::NoReranker);
        }
        let ids = documents.iter().map(|document| self.file().rank_ids(query, document.as_ref()));
        let scores = self.embed_ids_async(ids.collect::<Result<_, _>>()?).await?;
        let score = |scores: &Vec<f32>| scores.first().copied().unwrap_or_default();
        let ranked = scores.iter().map(score).enumerate();
        let mut ranked: Vec<_> = ranked.map(|(index, score)| Ranked { index, score }).collect();
        ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
        Ok(ranked)
    }
}
