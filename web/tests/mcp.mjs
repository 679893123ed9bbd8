// A server of tools, by MCP over streamable HTTP, whose faults a task chooses.
import { createServer } from "node:http";

const TOOLS = [
  {
    name: "get_weather",
    description: "The weather of a city.\nA second line.",
    inputSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
  { name: "notes/search", description: "Searches notes", inputSchema: { type: "object" } },
];

/** Starts the server; `state.calls` has the calls that it got. */
export async function startMcp() {
  const state = { ...usual(), calls: [], requests: 0, sessions: new Set() };
  const server = createServer((request, response) => {
    void handle(state, request, response).catch(() => response.destroy());
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    state,
    url: `http://127.0.0.1:${server.address().port}/mcp`,
    reset: () => Object.assign(state, usual(), { calls: [], requests: 0 }),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

const usual = () => ({ token: null, allowsPages: true, isSlow: false, isBroken: false });

async function handle(state, request, response) {
  state.requests += 1;
  if (state.allowsPages) {
    response.setHeader("access-control-allow-origin", "*");
    response.setHeader("access-control-allow-headers", request.headers["access-control-request-headers"] ?? "");
    response.setHeader("access-control-allow-methods", "POST, DELETE");
    response.setHeader("access-control-expose-headers", "mcp-session-id");
  }
  if (request.method === "OPTIONS") return response.writeHead(204).end();
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const session = request.headers["mcp-session-id"];
  if (state.token && request.headers.authorization !== `Bearer ${state.token}`) return response.writeHead(401).end();
  if (request.method === "DELETE") {
    state.sessions.delete(session);
    return response.writeHead(200).end();
  }
  const message = JSON.parse(Buffer.concat(chunks).toString());
  const answer = (result) => ({ jsonrpc: "2.0", id: message.id, result });
  const json = (result) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify(answer(result)));
  };
  if (message.method === "initialize") {
    const made = `session-${state.requests}`;
    state.sessions.add(made);
    response.setHeader("mcp-session-id", made);
    const { protocolVersion } = message.params;
    return json({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "Test tools", version: "1" } });
  }
  if (!state.sessions.has(session)) return response.writeHead(404).end();
  switch (message.method) {
    case "tools/list": {
      // One tool a page.
      const at = Number(message.params.cursor ?? 0);
      return json({ tools: [TOOLS[at]], ...(at + 1 < TOOLS.length ? { nextCursor: String(at + 1) } : {}) });
    }
    case "tools/call": {
      state.calls.push(message.params);
      if (state.isSlow) return;
      // As a stream, with what else servers send.
      response.writeHead(200, { "content-type": "text/event-stream" });
      const send = (value) =>
        response.write(`event: message\ndata: ${JSON.stringify({ jsonrpc: "2.0", ...value })}\n\n`);
      send({ method: "notifications/message", params: { level: "info", data: "at work" } });
      send({ id: "s1", method: "ping" });
      const text = state.isBroken ? "no such city" : `${message.params.arguments.city}: sun`;
      send(answer({ content: [{ type: "text", text }], isError: state.isBroken }));
      return response.end();
    }
    default:
      // Notifications, and answers to the server.
      return response.writeHead(202).end();
  }
}
