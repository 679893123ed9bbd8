// The server's API, relative to the page, which may be served under a path.
import { settings } from "../data/settings";
import type { ModelInfo } from "../conversation";

/** A request that the server refused. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly retryAfter: number | null,
  ) {
    super(message);
  }
}

/** No answer came from the server. */
export class Unreachable extends Error {
  constructor() {
    super("The server cannot be reached.");
  }
}

export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (settings.apiKey) headers.set("authorization", `Bearer ${settings.apiKey}`);
  if (init.body) headers.set("content-type", "application/json");
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Unreachable();
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

export const post = (path: string, body: unknown, signal?: AbortSignal): Promise<Response> =>
  request(path, { method: "POST", body: JSON.stringify(body), signal });

async function refusal(response: Response): Promise<Refusal> {
  const text = await response.text().catch(() => "");
  return new Refusal(
    response.status,
    refusalText(response.status, text),
    retrySeconds(response.headers.get("retry-after"), Date.now()),
  );
}

/** What a person reads of a refused request. Pages of proxies are left out. */
export function refusalText(status: number, body: string): string {
  let message = "";
  try {
    const { error } = JSON.parse(body) as { error?: { message?: string } | string };
    message = (typeof error === "string" ? error : error?.message) ?? "";
  } catch {
    message = /<\w/.test(body) ? "" : body.trim().slice(0, 300);
  }
  if (status === 401) return "The server wants an API key. Enter it in the settings.";
  if (message) return message[0]?.toUpperCase() + message.slice(1) + (/[.!?]$/.test(message) ? "" : ".");
  if (status === 502 || status === 504) return `The server behind this address does not answer (status ${status}).`;
  return `The server answered with status ${status}.`;
}

/** The seconds of a `Retry-After` header: a number or a date. */
export function retrySeconds(value: string | null, now: number): number | null {
  if (value === null) return null;
  const seconds = /^\d+$/.test(value.trim()) ? Number(value) : (Date.parse(value) - now) / 1000;
  return Number.isFinite(seconds) ? Math.min(Math.max(seconds, 0), 300) : null;
}

interface ListedModel {
  id: string;
  max_model_len?: number;
  status?: { value?: string; failed?: boolean; error?: string };
  meta?: { n_ctx?: number; size?: number } | null;
  capabilities?: string[];
  size?: number;
}

export async function listModels(): Promise<ModelInfo[]> {
  const response = await request("v1/models");
  const { data } = (await response.json()) as { data: ListedModel[] };
  return data.map((model) => ({
    id: model.id,
    state: model.status?.failed ? "failed" : (model.status?.value ?? "loaded"),
    context: model.max_model_len ?? model.meta?.n_ctx ?? 0,
    error: model.status?.error,
    sizeBytes: model.meta?.size ?? model.size,
    chats: !model.capabilities || model.capabilities.some((name) => name === "completion" || name === "chat"),
  }));
}

/** What a model takes besides text. */
export interface Modalities {
  vision: boolean;
  audio: boolean;
}

export interface Props extends Modalities {
  context: number;
  /** Defaults of the server, by the fields of requests. */
  defaults: Record<string, unknown>;
}

/** Properties of a model; null unless it is loaded. */
export async function modelProps(model: string): Promise<Props | null> {
  try {
    const response = await request(`props?model=${encodeURIComponent(model)}`);
    const props = (await response.json()) as {
      modalities?: Partial<Modalities>;
      default_generation_settings?: { n_ctx?: number; params?: Record<string, unknown> };
    };
    const generation = props.default_generation_settings;
    return {
      vision: props.modalities?.vision ?? false,
      audio: props.modalities?.audio ?? false,
      context: generation?.n_ctx ?? 0,
      defaults: generation?.params ?? {},
    };
  } catch {
    return null;
  }
}

/** The URLs of the servers of tools that the page may use. */
export async function mcpServers(): Promise<string[]> {
  try {
    const response = await request("mcp-servers");
    return ((await response.json()) as { servers: { url: string }[] }).servers.map(({ url }) => url);
  } catch {
    return [];
  }
}

export const setLoaded = (model: string, isLoaded: boolean): Promise<Response> =>
  post(isLoaded ? "models/load" : "models/unload", { model });

export async function metricsText(): Promise<string> {
  return (await request("metrics")).text();
}
