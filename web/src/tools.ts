// The tools of MCP servers. The server of the page names the servers that may be used; a person
// turns them on.
import { emit } from "./data/bus";
import { saveSettings, settings } from "./data/settings";
import { mcpServers } from "./net/api";
import { McpClient, type McpResult, type McpTool } from "./net/mcp";

export interface ToolServer {
  url: string;
  /** What the server calls itself, once it is connected. */
  name: string;
  state: "off" | "connecting" | "ready" | "failed";
  error?: string;
  tools: McpTool[];
}

interface Connection extends ToolServer {
  client: McpClient | null;
}

/** A tool under the name that the model knows it by. */
export interface KnownTool {
  function: string;
  server: string;
  tool: McpTool;
  call: (values: unknown, signal: AbortSignal) => Promise<McpResult>;
}

let connections: Connection[] = [];
let known = new Map<string, KnownTool>();

export const servers = (): readonly ToolServer[] => connections;
export const isOn = (): boolean => settings.tools?.isOn === true;
export const isServerOn = (url: string): boolean => isOn() && !settings.tools?.off?.includes(url);
export const tokenOf = (url: string): string => settings.tools?.tokens?.[url] ?? "";
export const toolOf = (name: string): KnownTool | undefined => known.get(name);
export const count = (): number => known.size;

/** The tools as the requests name them. */
export function functions(): unknown[] {
  return [...known.values()].map(({ function: name, tool }) => ({
    type: "function",
    function: {
      name,
      description: tool.description ?? tool.title ?? "",
      parameters: tool.inputSchema ?? { type: "object", properties: {} },
    },
  }));
}

/** Asks for the names of the servers, and connects those that are on. */
export async function start(): Promise<void> {
  if (!isOn()) return;
  await list();
  await Promise.all(connections.map(connect));
}

/** Reads which servers may be used. Nothing connects to them yet. */
export async function list(): Promise<void> {
  const urls = await mcpServers();
  const before = new Map(connections.map((connection) => [connection.url, connection]));
  connections = urls.map((url) => before.get(url) ?? { url, name: url, state: "off", tools: [], client: null });
  changed();
}

export function turnOn(isNowOn: boolean): void {
  saveSettings({ tools: { ...settings.tools, isOn: isNowOn } });
  if (isNowOn) void start();
  else connections.forEach(disconnect);
  changed();
}

export function turnServerOn(url: string, isNowOn: boolean): void {
  const off = (settings.tools?.off ?? []).filter((other) => other !== url);
  saveSettings({ tools: { ...settings.tools, off: isNowOn ? off : [...off, url] } });
  reconnect(url);
}

export function setToken(url: string, token: string): void {
  saveSettings({ tools: { ...settings.tools, tokens: { ...settings.tools?.tokens, [url]: token } } });
  reconnect(url);
}

function reconnect(url: string): void {
  const connection = connections.find((other) => other.url === url);
  if (!connection) return;
  disconnect(connection);
  void connect(connection);
}

function disconnect(connection: Connection): void {
  connection.client?.close();
  Object.assign(connection, { state: "off", tools: [], client: null, error: undefined });
  changed();
}

async function connect(connection: Connection): Promise<void> {
  const { url } = connection;
  if (!isServerOn(url) || connection.client) return;
  const client = new McpClient(url, tokenOf(url));
  Object.assign(connection, { client, state: "connecting", error: undefined });
  changed();
  try {
    const [name, tools] = [await client.connect(), await client.tools()];
    if (connection.client !== client) return;
    Object.assign(connection, { name, tools, state: "ready" });
  } catch (error) {
    if (connection.client !== client) return;
    const text = error instanceof Error ? error.message : String(error);
    Object.assign(connection, { state: "failed", error: text, client: null });
  }
  changed();
}

function changed(): void {
  known = new Map();
  for (const { client, name: server, tools } of connections) {
    for (const tool of client ? tools : []) {
      // Models know functions by names of these characters, and two servers may have the same.
      const plain = tool.name.replace(/[^\w-]/g, "_").slice(0, 60);
      let name = plain;
      for (let number = 2; known.has(name); number++) name = `${plain}_${number}`;
      const call = (values: unknown, signal: AbortSignal): Promise<McpResult> =>
        (client as McpClient).call(tool.name, values, signal);
      known.set(name, { function: name, server, tool, call });
    }
  }
  emit("tools");
}
