//! The text format of Prometheus.

use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use rocmforge::engine::TierStats;
use rocmforge::engine::scheduler::SchedulerStats;

use super::histogram::Histogram;
#[cfg(unix)]
use super::process;
use super::{HttpMetrics, Metrics, Rejection};
use crate::catalog::{Listed, MAX_ADAPTERS};

/// Every metric is there under our name and under vLLM's, which gateways and dashboards read.
const PREFIXES: [&str; 2] = ["rocmforge", "vllm"];

type Counter = fn(&Metrics) -> &AtomicU64;

const COUNTERS: &[(&str, &str, Counter)] = &[
    ("prompt_tokens_total", "Tokens of prompts, computed or cached", |m| &m.prompt_tokens),
    ("prompt_tokens_cached_total", "Tokens of prompts that were cached", |m| &m.cached_tokens),
    ("generation_tokens_total", "Generated tokens", |m| &m.generated_tokens),
    ("prefix_cache_queries_total", "Tokens looked up in the prefix cache", |m| &m.prompt_tokens),
    ("prefix_cache_hits_total", "Tokens found in the prefix cache", |m| &m.cached_tokens),
    // Older names of vLLM, which its router reads.
    ("gpu_prefix_cache_queries_total", "As prefix_cache_queries_total", |m| &m.prompt_tokens),
    ("gpu_prefix_cache_hits_total", "As prefix_cache_hits_total", |m| &m.cached_tokens),
    ("spec_decode_num_draft_tokens_total", "Drafted tokens", |m| &m.drafted_tokens),
    ("spec_decode_num_accepted_tokens_total", "Drafted tokens that were generated", |m| {
        &m.accepted_tokens
    }),
];

type OfTier = fn(&TierStats) -> f64;

/// The pages of the prefix cache in each tier outside of the device.
const TIERS: &[(&str, &str, &str, OfTier)] = &[
    ("cache_tier_pages", "gauge", "Pages of the prefix cache outside of the device", |tier| {
        tier.pages as f64
    }),
    ("cache_tier_bytes", "gauge", "Bytes of these pages", |tier| tier.bytes as f64),
    ("cache_tier_hits_total", "counter", "Pages copied back to the device", |tier| {
        tier.loads as f64
    }),
    ("cache_tier_dropped_total", "counter", "Pages that were not written", |tier| {
        tier.dropped as f64
    }),
    ("cache_tier_damaged_total", "counter", "Damaged files that were removed", |tier| {
        tier.damaged as f64
    }),
];

type Finished = (&'static str, Counter);

const FINISHED: &[Finished] = &[
    ("stop", |m| &m.finished_stop),
    ("length", |m| &m.finished_length),
    ("abort", |m| &m.finished_abort),
    ("error", |m| &m.finished_error),
];

type Distribution = fn(&Metrics) -> &Histogram;

const HISTOGRAMS: &[(&str, &str, Distribution)] = &[
    ("time_to_first_token_seconds", "Time from arrival to the first token", |m| &m.ttft),
    ("inter_token_latency_seconds", "Time between two tokens", |m| &m.inter_token),
    ("request_time_per_output_token_seconds", "Mean time per token after the first one", |m| {
        &m.time_per_output_token
    }),
    ("e2e_request_latency_seconds", "Time from arrival to the last token", |m| &m.latency),
    ("request_queue_time_seconds", "Time in the queue", |m| &m.queue_time),
    ("request_prefill_time_seconds", "Time from the queue to the first token", |m| &m.prefill_time),
    ("request_decode_time_seconds", "Time from the first token to the last", |m| &m.decode_time),
    ("request_inference_time_seconds", "Time from the queue to the end", |m| &m.inference_time),
    ("request_prompt_tokens", "Tokens per prompt", |m| &m.prompt_length),
    ("request_prefill_kv_computed_tokens", "Tokens per prompt that were not cached", |m| {
        &m.computed_length
    }),
    ("request_num_preemptions", "Preemptions per request", |m| &m.preemptions),
    ("request_generation_tokens", "Generated tokens per request", |m| &m.generation_length),
    ("request_max_num_generation_tokens", "Generated tokens of the longest choice", |m| {
        &m.longest_choice
    }),
    ("request_params_n", "Choices per request", |m| &m.choices),
    ("request_params_max_tokens", "The largest number of tokens per request", |m| &m.max_tokens),
];

/// The metrics of all models that were loaded at least once, of all answers, and of the process.
pub(crate) fn write(models: &[Listed], http: &HttpMetrics) -> String {
    let models: Vec<_> = models.iter().filter_map(Observed::new).collect();
    let mut text = String::new();
    for prefix in PREFIXES {
        Exposition { prefix, text: &mut text, models: &models }.all();
    }
    http.write(&mut text);
    #[cfg(unix)]
    process::write(&mut text);
    text
}

/// The counter of what was dropped, because nobody took it in time.
pub(crate) fn dropped(what: &str, count: u64) -> String {
    let name = format!("rocmforge:{what}_dropped_total");
    format!("# HELP {name} Dropped, not taken in time\n# TYPE {name} counter\n{name} {count}\n")
}

/// A model with its state at one time.
struct Observed<'a> {
    id: &'a str,
    metrics: &'a Metrics,
    /// All zero for a model that is not loaded.
    stats: SchedulerStats,
    /// Tokens per page of the KV cache.
    page_tokens: usize,
}

impl<'a> Observed<'a> {
    fn new(model: &'a Listed) -> Option<Self> {
        let generator = model.generator();
        Some(Self {
            id: &model.id,
            metrics: model.metrics.as_ref()?,
            stats: generator.as_ref().map(|g| g.handle().stats()).unwrap_or_default(),
            page_tokens: generator.as_ref().map_or(0, |g| g.page_tokens()),
        })
    }
}

struct Exposition<'a> {
    prefix: &'static str,
    text: &'a mut String,
    models: &'a [Observed<'a>],
}

impl Exposition<'_> {
    fn all(&mut self) {
        self.gauges();
        for (name, help, counter) in COUNTERS {
            self.family(name, "counter", help, |model| {
                vec![(String::new(), counter(model.metrics).load(Relaxed) as f64)]
            });
        }
        self.family("request_success_total", "counter", "Requests by their end", |model| {
            let count = |(reason, counter): &Finished| {
                let label = format!(",finished_reason=\"{reason}\"");
                (label, counter(model.metrics).load(Relaxed) as f64)
            };
            FINISHED.iter().map(count).collect()
        });
        self.family("admission_rejections_total", "counter", "Requests refused", |model| {
            let counts = model.metrics.rejected.iter().zip(Rejection::ALL);
            let sample = |(count, (_, reason)): (&AtomicU64, (Rejection, &str))| {
                (format!(",reason=\"{reason}\""), count.load(Relaxed) as f64)
            };
            counts.map(sample).collect()
        });
        self.family("prompt_tokens_by_source_total", "counter", "Tokens of prompts", |model| {
            let all = model.metrics.prompt_tokens.load(Relaxed);
            let cached = model.metrics.cached_tokens.load(Relaxed).min(all);
            let label = |source: &str| format!(",source=\"{source}\"");
            vec![
                (label("local_compute"), (all - cached) as f64),
                (label("local_cache_hit"), cached as f64),
            ]
        });
        for (name, help, histogram) in HISTOGRAMS {
            self.histogram(name, help, *histogram);
        }
        // vLLM's name of the histogram ends as the names of counters do.
        self.header("iteration_tokens_total", "histogram", "Tokens per step");
        for model in self.models {
            let steps = model.metrics.steps(&model.stats);
            let tokens = steps.tokens as f64;
            self.buckets("iteration_tokens_total", model, &steps.cumulative(), tokens);
        }
    }

    fn gauges(&mut self) {
        let one = |value: f64| vec![(String::new(), value)];
        self.family("num_requests_running", "gauge", "Sequences that are computed", |model| {
            one(model.stats.running as f64)
        });
        self.family("num_requests_waiting_by_reason", "gauge", "Requests in the queue", |model| {
            let label = |reason: &str| format!(",reason=\"{reason}\"");
            vec![(label("capacity"), model.stats.waiting as f64), (label("deferred"), 0.0)]
        });
        self.family("engine_sleep_state", "gauge", "1 for the state of the engine", |model| {
            let is_loaded = model.stats.kv_pages_total > 0;
            let label = |state: &str| format!(",sleep_state=\"{state}\"");
            let value = |is_so| if is_so { 1.0 } else { 0.0 };
            vec![
                (label("awake"), value(is_loaded)),
                (label("weights_offloaded"), 0.0),
                (label("discard_all"), value(!is_loaded)),
            ]
        });
        self.family("num_requests_waiting", "gauge", "Requests in the queue", |model| {
            one(model.stats.waiting as f64)
        });
        for name in ["kv_cache_usage_perc", "gpu_cache_usage_perc"] {
            self.family(name, "gauge", "Used part of the KV cache, 0 to 1", |model| {
                one(model.stats.kv_pages_used as f64 / model.stats.kv_pages_total.max(1) as f64)
            });
        }
        self.family("host_states", "gauge", "Recurrent states in host memory", |model| {
            one(model.stats.host.states as f64)
        });
        for (name, kind, help, value) in TIERS {
            self.family(name, kind, help, |model| {
                let tiers = [("host", &model.stats.host), ("disk", &model.stats.disk)];
                tiers.map(|(tier, stats)| (format!(",tier=\"{tier}\""), value(stats))).to_vec()
            });
        }
        self.family("num_preemptions_total", "counter", "Sequences put back to wait", |model| {
            let earlier = model.metrics.earlier_preemptions.load(Relaxed);
            one((earlier + model.stats.preemptions) as f64)
        });
        self.family("lora_requests_info", "gauge", "Adapters of requests", |model| {
            let (waiting, running, changed) = model.metrics.adapters.state();
            let labels = format!(
                ",max_lora=\"{MAX_ADAPTERS}\",waiting_lora_adapters=\"{}\",running_lora_adapters=\"{}\"",
                escaped(&waiting),
                escaped(&running)
            );
            vec![(labels, changed as f64)]
        });
        self.family("cache_config_info", "gauge", "Layout of the KV cache", |model| {
            let (page_tokens, num_pages) = (model.page_tokens, model.stats.kv_pages_total);
            let labels = format!(",block_size=\"{page_tokens}\",num_gpu_blocks=\"{num_pages}\"");
            vec![(labels, 1.0)]
        });
    }

    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl Fn(&Observed<'_>) -> Vec<(String, f64)>,
    ) {
        self.header(name, kind, help);
        for model in self.models {
            for (labels, value) in samples(model) {
                self.sample(name, model, &labels, value);
            }
        }
    }

    fn histogram(&mut self, name: &str, help: &str, of: Distribution) {
        self.header(name, "histogram", help);
        for model in self.models {
            let histogram = of(model.metrics);
            self.buckets(name, model, &histogram.cumulative(), histogram.sum());
        }
    }

    /// The samples of a distribution: upper bounds with the number of values at or below each.
    fn buckets(&mut self, name: &str, model: &Observed<'_>, cumulative: &[(f64, u64)], sum: f64) {
        let (bucket, count) = (format!("{name}_bucket"), format!("{name}_count"));
        let mut total = 0;
        for &(bound, values) in cumulative {
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            self.sample(&bucket, model, &format!(",le=\"{bound}\""), values as f64);
            total = values;
        }
        self.sample(&format!("{name}_sum"), model, "", sum);
        self.sample(&count, model, "", total as f64);
    }

    fn header(&mut self, name: &str, kind: &str, help: &str) {
        let prefix = self.prefix;
        // Writing to a string does not fail.
        let _: std::fmt::Result =
            write!(self.text, "# HELP {prefix}:{name} {help}\n# TYPE {prefix}:{name} {kind}\n");
    }

    fn sample(&mut self, name: &str, model: &Observed<'_>, labels: &str, value: f64) {
        let prefix = self.prefix;
        let model = escaped(model.id);
        // Writing to a string does not fail.
        let _: std::fmt::Result = writeln!(
            self.text,
            "{prefix}:{name}{{model_name=\"{model}\",engine=\"0\"{labels}}} {value}"
        );
    }
}

/// A value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        assert_eq!(escaped("a\\b\"c\nd"), r#"a\\b\"c\nd"#);
    }
}
