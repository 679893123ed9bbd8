//! Embeddings and the ranking of documents.

use rf_engine::{EncodeOptions, Engine, Normalization, Pooling};

use crate::block_on::block_on;
use crate::embedder::Method;
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

    /// Computes a vector for each text, which is given as its tokens: the pooled states of the
    /// model, not normalised, or the scores of a reranker. It blocks the thread.
    ///
    /// A text has the tokens of its beginning and end, as
    /// [`EncodeOptions::PROMPT`](crate::engine::EncodeOptions::PROMPT) adds them.
    ///
    /// # Errors
    ///
    /// The errors of [`embed`](Self::embed).
    pub fn embed_ids(&self, texts: Vec<Vec<u32>>) -> Result<Vec<Vec<f32>>, Error> {
        block_on(self.embed_ids_async(texts))
    }

    /// [`embed_ids`](Self::embed_ids) for async code.
    ///
    /// # Errors
    ///
    /// The errors of [`embed`](Self::embed).
    pub async fn embed_ids_async(&self, texts: Vec<Vec<u32>>) -> Result<Vec<Vec<f32>>, Error> {
        self.compute(texts, Engine::embed).await
    }

    /// Computes a vector for each token of each text, which is given as its tokens: the states of
    /// the model without a pooling, not normalised. It blocks the thread.
    ///
    /// # Errors
    ///
    /// The errors of [`embed`](Self::embed).
    pub fn embed_tokens(&self, texts: Vec<Vec<u32>>) -> Result<Vec<Vec<Vec<f32>>>, Error> {
        block_on(self.embed_tokens_async(texts))
    }

    /// [`embed_tokens`](Self::embed_tokens) for async code.
    ///
    /// # Errors
    ///
    /// The errors of [`embed`](Self::embed).
    pub async fn embed_tokens_async(
        &self,
        texts: Vec<Vec<u32>>,
    ) -> Result<Vec<Vec<Vec<f32>>>, Error> {
        self.compute(texts, Engine::embed_tokens).await
    }

    async fn compute<T: Send + 'static>(
        &self,
        texts: Vec<Vec<u32>>,
        method: Method<Engine, T>,
    ) -> Result<Vec<T>, Error> {
        let embedder = self.embedder()?;
        let most = self.context_tokens();
        for (index, text) in texts.iter().enumerate() {
            match text.len() {
                0 => return Err(Error::EmptyText { index }),
                tokens if tokens > most => return Err(Error::TextTooLong { index, tokens, most }),
                _ => {}
            }
        }
        embedder.compute(texts, method).await
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
        let ids = documents.iter().map(|document| self.file().rank_ids(query, document.as_ref()));
        self.rerank_ids_async(ids.collect::<Result<_, _>>()?).await
    }

    /// [`rerank`](Self::rerank) for pairs of a query and a document that are tokens already, as
    /// [`rank_ids`](crate::engine::Model::rank_ids) makes them. It blocks the thread.
    ///
    /// # Errors
    ///
    /// The errors of [`rerank`](Self::rerank).
    pub fn rerank_ids(&self, pairs: Vec<Vec<u32>>) -> Result<Vec<Ranked>, Error> {
        block_on(self.rerank_ids_async(pairs))
    }

    /// [`rerank_ids`](Self::rerank_ids) for async code.
    ///
    /// # Errors
    ///
    /// The errors of [`rerank`](Self::rerank).
    pub async fn rerank_ids_async(&self, pairs: Vec<Vec<u32>>) -> Result<Vec<Ranked>, Error> {
        if self.file().config().pooling != Some(Pooling::Rank) {
            return Err(Error::NoReranker);
        }
        let scores = self.embed_ids_async(pairs).await?;
        let score = |scores: &Vec<f32>| scores.first().copied().unwrap_or_default();
        let ranked = scores.iter().map(score).enumerate();
        let mut ranked: Vec<_> = ranked.map(|(index, score)| Ranked { index, score }).collect();
        ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
        Ok(ranked)
    }
}
