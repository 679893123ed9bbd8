// The text format of Prometheus, and what the page of the server shows of it.

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const LINE = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?$/;
const LABEL = /([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g;

export function parseMetrics(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split("\n")) {
    if (!line || line.startsWith("#")) continue;
    const match = LINE.exec(line);
    if (!match) continue;
    const [, name = "", labelText = "", number = ""] = match;
    const labels: Record<string, string> = {};
    for (const [, key = "", value = ""] of labelText.matchAll(LABEL)) {
      labels[key] = value.replace(/\\(.)/g, (_, escaped: string) => (escaped === "n" ? "\n" : escaped));
    }
    const value = number === "+Inf" ? Infinity : number === "-Inf" ? -Infinity : Number(number);
    samples.push({ name, labels, value });
  }
  return samples;
}

/** The state of the server at a time. */
export interface Snapshot {
  /** In seconds. */
  time: number;
  running: number;
  waiting: number;
  pages: number;
  usedPages: number;
  promptTokens: number;
  cachedTokens: number;
  tokens: number;
  requests: number;
  firstTokenSeconds: number;
  firstTokens: number;
}

export function snapshot(samples: Sample[], time: number): Snapshot {
  const named = (name: string) => samples.filter((sample) => sample.name === `rocmforge:${name}`);
  const sum = (name: string) => named(name).reduce((total, { value }) => total + value, 0);
  let [pages, usedPages] = [0, 0];
  for (const { labels } of named("cache_config_info")) {
    const count = Number(labels.num_gpu_blocks ?? 0);
    const usage = named("kv_cache_usage_perc").find((sample) => sample.labels.model_name === labels.model_name);
    pages += count;
    usedPages += Math.round(count * (usage?.value ?? 0));
  }
  return {
    time,
    pages,
    usedPages,
    running: sum("num_requests_running"),
    waiting: sum("num_requests_waiting"),
    promptTokens: sum("prompt_tokens_total"),
    cachedTokens: sum("prompt_tokens_cached_total"),
    tokens: sum("generation_tokens_total"),
    requests: sum("request_success_total"),
    firstTokenSeconds: sum("time_to_first_token_seconds_sum"),
    firstTokens: sum("time_to_first_token_seconds_count"),
  };
}

export interface Rates {
  time: number;
  tokensPerSecond: number;
  promptPerSecond: number;
}

/** What happened between two snapshots; null if the server was started anew between them. */
export function rates(before: Snapshot, after: Snapshot): Rates | null {
  const seconds = after.time - before.time;
  const tokens = after.tokens - before.tokens;
  const computed = after.promptTokens - after.cachedTokens - before.promptTokens + before.cachedTokens;
  if (seconds <= 0 || tokens < 0 || after.promptTokens < before.promptTokens) return null;
  return { time: after.time, tokensPerSecond: tokens / seconds, promptPerSecond: Math.max(computed, 0) / seconds };
}
