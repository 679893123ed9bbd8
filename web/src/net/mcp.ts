// A client of the Model Context Protocol over streamable HTTP: tools of other servers.
import { events } from "./sse";

const VERSION = "2025-06-18";
const USUAL_MS = 30_000;
const MOST_PAGES = 50;

/** A tool as its server describes it. */
export interface McpTool {
  name: string;
  title?: string;
  description?: string;
  inputSchema?: unknown;
}

export interface McpResult {
  text: string;
  isError: boolean;
}

interface Incoming {
  id?: number | string | null;
  method?: string;
  result?: unknown;
  error?: { code?: number; message?: string };
}

interface Content {
  type?: string;
  text?: string;
  uri?: string;
  mimeType?: string;
  resource?: { uri?: string; text?: string };
}

/** What went wrong, as a sentence. */
export class McpProblem extends Error {}

export class McpClient {
  private session: string | null = null;
  private version = VERSION;
  private lastId = 0;

  constructor(
    private readonly url: string,
    private readonly token: string,
  ) {}

  /** Opens a session and returns the name of the server. */
  async connect(): Promise<string> {
    this.session = null;
    this.version = VERSION;
    const result = (await this.once("initialize", {
      protocolVersion: VERSION,
      capabilities: {},
      clientInfo: { name: "rocmforge-page", version: "1" },
    })) as { protocolVersion?: string; serverInfo?: { name?: string; title?: string } };
    if (result.protocolVersion) this.version = result.protocolVersion;
    await this.post({ method: "notifications/initialized" });
    return result.serverInfo?.title ?? result.serverInfo?.name ?? new URL(this.url).host;
  }

  async tools(): Promise<McpTool[]> {
    const tools: McpTool[] = [];
    let cursor: string | undefined;
    for (let page = 0; page < MOST_PAGES; page++) {
      const result = (await this.request("tools/list", cursor ? { cursor } : {})) as {
        tools?: McpTool[];
        nextCursor?: string;
      };
      tools.push(...(result.tools ?? []));
      cursor = result.nextCursor;
      if (!cursor) break;
    }
    return tools.filter(({ name }) => typeof name === "string" && name);
  }

  async call(name: string, values: unknown, signal: AbortSignal): Promise<McpResult> {
    const result = (await this.request("tools/call", { name, arguments: values }, signal)) as {
      content?: Content[];
      structuredContent?: unknown;
      isError?: boolean;
    };
    const text = (result.content ?? []).map(contentText).join("\n");
    const structured = result.structuredContent === undefined ? "" : JSON.stringify(result.structuredContent);
    return { text: text || structured, isError: result.isError === true };
  }

  /** Ends the session, if there is one. */
  close(): void {
    if (!this.session) return;
    void fetch(this.url, { ...OPTIONS, method: "DELETE", headers: this.headers(), keepalive: true }).catch(() => {});
    this.session = null;
  }

  /** Sends a request. A server that has forgotten the session gets a new one. */
  private async request(method: string, params: unknown, signal?: AbortSignal): Promise<unknown> {
    const { session } = this;
    try {
      return await this.once(method, params, signal);
    } catch (error) {
      if (!session || !(error instanceof Gone)) throw error;
      await this.connect();
      return this.once(method, params, signal);
    }
  }

  private async once(method: string, params: unknown, signal?: AbortSignal): Promise<unknown> {
    const id = ++this.lastId;
    const response = await this.post({ id, method, params }, signal ?? AbortSignal.timeout(USUAL_MS));
    this.session = response.headers.get("mcp-session-id") ?? this.session;
    for await (const message of messagesOf(response)) {
      if (message.method !== undefined) {
        if (message.id !== undefined && message.id !== null) void this.reply(message).catch(() => {});
      } else if (message.id === id) {
        if (message.error) throw new McpProblem(sentence(message.error.message ?? `error ${message.error.code}`));
        return message.result ?? {};
      }
    }
    throw new McpProblem("The connection ended before the answer.");
  }

  /** Answers a request of the server: this client has nothing that servers ask for. */
  private reply({ id, method }: Incoming): Promise<Response> {
    if (method === "ping") return this.post({ id, result: {} });
    return this.post({ id, error: { code: -32601, message: "not supported" } });
  }

  private async post(message: object, signal?: AbortSignal): Promise<Response> {
    const body = JSON.stringify({ jsonrpc: "2.0", ...message });
    let response: Response;
    try {
      response = await fetch(this.url, { ...OPTIONS, method: "POST", headers: this.headers(), body, signal });
    } catch (error) {
      if (error instanceof DOMException && error.name === "TimeoutError") throw new McpProblem("It does not answer.");
      if (signal?.aborted) throw error;
      throw new McpProblem("It cannot be reached, or it does not allow web pages of this address (CORS).");
    }
    if (response.ok) return response;
    if (response.status === 404 && this.session) throw new Gone();
    if (response.status === 401) throw new McpProblem("It wants a token, or another one.");
    throw new McpProblem(`It answers with status ${response.status}.`);
  }

  private headers(): Record<string, string> {
    return {
      accept: "application/json, text/event-stream",
      "content-type": "application/json",
      "mcp-protocol-version": this.version,
      ...(this.session ? { "mcp-session-id": this.session } : {}),
      ...(this.token ? { authorization: `Bearer ${this.token}` } : {}),
    };
  }
}

/** The server has forgotten the session. */
class Gone extends McpProblem {
  constructor() {
    super("It has forgotten this page.");
  }
}

/** Nothing but the message goes out, and only to the address that was given. */
const OPTIONS = { credentials: "omit", redirect: "error", cache: "no-store" } as const;

async function* messagesOf(response: Response): AsyncGenerator<Incoming> {
  const isStream = response.headers.get("content-type")?.includes("text/event-stream");
  if (!isStream) {
    const value = read(await response.text());
    yield* Array.isArray(value) ? value : [value];
  } else if (response.body) {
    for await (const data of events(response.body)) yield read(data);
  }
}

function read(text: string): Incoming {
  try {
    return JSON.parse(text) as Incoming;
  } catch {
    throw new McpProblem("It sent an answer that is not JSON.");
  }
}

function contentText({ type, text, uri, mimeType, resource }: Content): string {
  if (typeof text === "string") return text;
  if (type === "resource") return resource?.text ?? `[resource ${resource?.uri ?? ""}]`;
  if (type === "resource_link") return `[resource ${uri ?? ""}]`;
  return `[${type ?? "content"}${mimeType ? ` of type ${mimeType}` : ""}]`;
}

const sentence = (text: string): string => (text[0]?.toUpperCase() ?? "") + text.slice(1);
