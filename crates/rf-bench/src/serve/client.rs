//! An HTTP client that sends a completion and takes the times of its tokens.

use std::io::{BufRead, BufReader};
use std::time::Instant;

use serde::Deserialize;
use serde_json::{Value, json};
use ureq::Agent;

use super::request::{RequestTimes, Usage};
use crate::Error;

/// A client of one server. Clones share its connections.
#[derive(Clone, Debug)]
pub(super) struct Client {
    agent: Agent,
    /// Beginning of all addresses, as in `http://127.0.0.1:8080`.
    url: String,
    /// The name of the model.
    model: String,
    /// The schema that answers must fit.
    json_schema: Option<Value>,
}

#[derive(Deserialize)]
struct Models {
    data: Vec<ModelEntry>,
}

#[derive(Deserialize)]
struct ModelEntry {
    id: String,
}

/// The fields of a streamed event that are read.
#[derive(Default, Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<serde::de::IgnoredAny>,
    usage: Option<Usage>,
    error: Option<Value>,
}

/// Connections take no proxy, and a status of failure has a body to report.
pub(super) fn agent() -> Agent {
    let config = Agent::config_builder().http_status_as_error(false).proxy(None);
    config.build().into()
}

impl Client {
    /// Asks a server that is ready for the name of its model.
    pub(super) fn connect(
        agent: Agent,
        url: String,
        json_schema: Option<Value>,
    ) -> Result<Self, Error> {
        let models = (|| -> Result<Models, String> {
            let address = format!("{url}/v1/models");
            let mut response = agent.get(&address).call().map_err(|error| error.to_string())?;
            let text = response.body_mut().read_to_string().map_err(|error| error.to_string())?;
            serde_json::from_str(&text).map_err(|error| error.to_string())
        })();
        let failed = |reason| Error::Server { url: url.clone(), reason };
        let models = models.map_err(&failed)?;
        let model = models.data.into_iter().next();
        let model = model.ok_or_else(|| failed("it serves no model".to_owned()))?.id;
        Ok(Self { agent, url, model, json_schema })
    }

    /// Sends a prompt and reads the answer. `due` is the time from which the request counts.
    pub(super) fn complete(
        &self,
        prompt: &[u32],
        generated_tokens: usize,
        due: Instant,
    ) -> Result<RequestTimes, Error> {
        let request = self.stream(prompt, generated_tokens, due);
        let request = request.map_err(|reason| Error::Server { url: self.url.clone(), reason })?;
        if (request.prompt_tokens, request.generated_tokens) == (prompt.len(), generated_tokens) {
            return Ok(request);
        }
        let reason = format!(
            "it counted {} prompt tokens and {} generated ones, not {} and {generated_tokens}",
            request.prompt_tokens,
            request.generated_tokens,
            prompt.len()
        );
        Err(Error::Server { url: self.url.clone(), reason })
    }

    fn stream(
        &self,
        prompt: &[u32],
        generated_tokens: usize,
        due: Instant,
    ) -> Result<RequestTimes, String> {
        let mut body = json!({
            "model": self.model, "prompt": prompt, "max_tokens": generated_tokens,
            "ignore_eos": true, "temperature": 0, "stream": true,
            "stream_options": {"include_usage": true},
        });
        if let Some(schema) = &self.json_schema {
            body["json_schema"] = schema.clone();
        }
        let post = self.agent.post(format!("{}/v1/completions", self.url));
        let sent = post.content_type("application/json").send(body.to_string());
        let mut response = sent.map_err(|error| error.to_string())?;
        if !response.status().is_success() {
            let text = response.body_mut().read_to_string().unwrap_or_default();
            return Err(format!("status {}: {}", response.status(), text.trim()));
        }
        let mut events = Vec::new();
        let mut usage = None;
        for line in BufReader::new(response.body_mut().as_reader()).lines() {
            let line = line.map_err(|error| error.to_string())?;
            let Some(data) = line.strip_prefix("data:").map(str::trim) else { continue };
            if data == "[DONE]" {
                break;
            }
            let arrived = due.elapsed();
            let chunk: Chunk = serde_json::from_str(data).map_err(|error| error.to_string())?;
            if let Some(error) = chunk.error {
                return Err(error.to_string());
            }
            if !chunk.choices.is_empty() {
                events.push(arrived);
            }
            usage = chunk.usage.or(usage);
        }
        let usage = usage.ok_or("the stream ended without a usage")?;
        Ok(RequestTimes::new(&events, due.elapsed(), usage))
    }
}
