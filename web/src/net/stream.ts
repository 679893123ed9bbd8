// What the chunks of a streamed answer do to its message.
import type { Call, Message, ScoredToken } from "../conversation";

interface Delta {
  content?: string | null;
  reasoning_content?: string | null;
  tool_calls?: { index?: number; id?: string; function?: { name?: string; arguments?: string } }[];
}

interface LogprobEntry {
  token: string;
  logprob: number;
  top_logprobs?: { token: string; logprob: number }[];
}

export interface Chunk {
  choices?: { delta?: Delta; finish_reason?: string | null; logprobs?: { content?: LogprobEntry[] } | null }[];
  error?: { message?: string } | string;
  usage?: {
    prompt_tokens?: number;
    completion_tokens?: number;
    prompt_tokens_details?: { cached_tokens?: number };
  } | null;
  timings?: {
    cache_n?: number;
    prompt_n?: number;
    prompt_per_second?: number;
    predicted_n?: number;
    predicted_per_second?: number;
  };
  prompt_progress?: { total?: number; processed?: number; cache?: number };
}

export interface Progress {
  total: number;
  processed: number;
  cached: number;
}

/** What is known of an answer while it is computed. */
export class Running {
  progress: Progress | null = null;
  /** Tokens of this request, not those of an answer that it continues. */
  tokens = 0;
  firstTokenAt: number | null = null;
  lastTokenAt = 0;
  private reasoningSince: number | null = null;
  /** The calls by their numbers, which need not begin at 0. */
  private readonly calls = new Map<number, Call>();
  private finish: string | null = null;

  constructor(
    private readonly message: Message,
    private readonly startedAt: number,
  ) {}

  /** Takes a chunk that arrived at `now`, in milliseconds. */
  take(chunk: Chunk, now: number): void {
    if (chunk.error) {
      throw new Error(
        typeof chunk.error === "string" ? chunk.error : (chunk.error.message ?? "the server reports an error"),
      );
    }
    const { message } = this;
    if (chunk.prompt_progress) {
      const { total = 0, processed = 0, cache = 0 } = chunk.prompt_progress;
      this.progress = { total, processed, cached: cache };
    }
    const choice = chunk.choices?.[0];
    if (choice) {
      const { delta = {}, logprobs } = choice;
      if (delta.content || delta.reasoning_content || delta.tool_calls?.length) this.token(now);
      if (delta.reasoning_content) {
        this.reasoningSince ??= now;
        message.reasoning = (message.reasoning ?? "") + delta.reasoning_content;
        message.reasoningMs = now - this.reasoningSince;
      }
      if (delta.content) message.content += delta.content;
      for (const part of delta.tool_calls ?? []) this.call(part);
      if (logprobs?.content?.length) (message.logprobs ??= []).push(...logprobs.content.map(scored));
      this.finish = choice.finish_reason ?? this.finish;
    }
    this.statistics(chunk, now);
  }

  /** Tokens per second of the stream so far. */
  rate(): number | null {
    const seconds = (this.lastTokenAt - (this.firstTokenAt ?? 0)) / 1000;
    return this.tokens > 1 && seconds > 0.05 ? (this.tokens - 1) / seconds : null;
  }

  get hasEnded(): boolean {
    return this.finish !== null;
  }

  get state(): "done" | "length" {
    return this.finish === "length" ? "length" : "done";
  }

  private token(now: number): void {
    this.tokens += 1;
    this.firstTokenAt ??= now;
    this.lastTokenAt = now;
  }

  private call(part: NonNullable<Delta["tool_calls"]>[number]): void {
    const calls = (this.message.calls ??= []);
    let call = part.index === undefined ? undefined : this.calls.get(part.index);
    if (!call) {
      call = { id: "", name: "", arguments: "" };
      calls.push(call);
      if (part.index !== undefined) this.calls.set(part.index, call);
    }
    if (part.id) call.id = part.id;
    if (part.function?.name) call.name = part.function.name;
    call.arguments += part.function?.arguments ?? "";
  }

  private statistics({ usage, timings }: Chunk, now: number): void {
    const stats = (this.message.stats ??= {});
    if (this.firstTokenAt === now && this.tokens === 1) stats.firstTokenMs = now - this.startedAt;
    if (timings) {
      stats.promptTokens = (timings.prompt_n ?? 0) + (timings.cache_n ?? 0);
      stats.cachedTokens = timings.cache_n;
      stats.tokens = timings.predicted_n;
      stats.tokensPerSecond = timings.predicted_per_second;
      stats.promptPerSecond = timings.prompt_per_second;
    }
    if (usage) {
      stats.promptTokens = usage.prompt_tokens;
      stats.tokens = usage.completion_tokens;
      stats.cachedTokens = usage.prompt_tokens_details?.cached_tokens;
      stats.tokensPerSecond ??= this.rate() ?? undefined;
    }
  }
}

const scored = ({ token, logprob, top_logprobs = [] }: LogprobEntry): ScoredToken => ({
  token,
  logprob,
  top: top_logprobs.map(({ token, logprob }) => ({ token, logprob })),
});
