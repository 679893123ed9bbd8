// A server whose answers follow a script, for what the demo model does not do: reasoning, calls,
// broken streams, a busy server. The last message of a request chooses the answer.
import { createServer } from "node:http";

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export const MARKDOWN = `# Everything

A **bold** word, \`code\`, ~~gone~~, a [link](https://example.org/), and \\(a^2 + b^2 = c^2\\).

1. first
2. second
- [x] done
- [ ] open

| left | right |
|:-----|------:|
| a<br>b | 1.5 |
| c | 20 |

\`\`\`python
def merge(a, b):
    """Merge two sorted lists."""
    return sorted(a + b)  # short
\`\`\`

$$
\\int_0^1 x^2 \\, dx = \\frac{1}{3}
$$

> A quote of somebody.

The price is $5 and not $6.
`;

/** Starts the server; `requests` has the bodies that it got. */
export async function startScripted() {
  const state = {
    requests: [],
    busy: 0,
    models: new Map([
      ["scripted", "loaded"],
      ["second", "unloaded"],
    ]),
    vision: false,
    key: null,
    mcp: [],
    tokens: 0,
  };
  const server = createServer((request, response) => {
    void handle(state, request, response).catch(() => response.destroy());
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    ...access(state),
    server,
    url: `http://127.0.0.1:${server.address().port}`,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

const access = (state) => ({ state, requests: state.requests });

async function handle(state, request, response) {
  const json = (status, value, headers = {}) => {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(JSON.stringify(value));
  };
  const { pathname } = new URL(request.url, "http://localhost");
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = chunks.length ? JSON.parse(Buffer.concat(chunks).toString()) : null;
  if (state.key && request.headers.authorization !== `Bearer ${state.key}`) {
    return json(401, { error: { message: "a key is required" } });
  }
  switch (pathname) {
    case "/v1/models": {
      const data = [...state.models].map(([id, value]) => ({ id, max_model_len: 4096, status: { value } }));
      return json(200, { object: "list", data });
    }
    case "/props":
      return json(200, {
        modalities: { vision: state.vision, audio: state.vision },
        default_generation_settings: { n_ctx: 4096, params: { temperature: 0.8 } },
      });
    case "/mcp-servers":
      return json(200, { servers: state.mcp.map((url) => ({ url })) });
    case "/models/load":
    case "/models/unload": {
      const isLoad = pathname.endsWith("/load");
      state.models.set(body.model, isLoad ? "loading" : "unloaded");
      if (isLoad) setTimeout(() => state.models.set(body.model, "loaded"), 700);
      return json(200, { success: true });
    }
    case "/api/pull": {
      if (body.model === "missing") return json(404, { error: `there is no model '${body.model}'` });
      response.writeHead(200, { "content-type": "application/x-ndjson" });
      const line = (value) => response.write(`${JSON.stringify(value)}\n`);
      line({ status: "pulling manifest" });
      const total = 3 * 2 ** 30;
      for (const completed of [0, total / 3, total]) {
        line({ status: `pulling ${body.model}`, digest: body.model, total, completed });
        await sleep(500);
      }
      if (body.model === "broken") return response.end(`${JSON.stringify({ error: "the disk is full" })}\n`);
      state.models.set(body.model, "unloaded");
      return response.end(`${JSON.stringify({ status: "success" })}\n`);
    }
    case "/metrics":
      response.writeHead(200, { "content-type": "text/plain" });
      return response.end(
        `rocmforge:num_requests_running{model_name="scripted"} 2\nrocmforge:generation_tokens_total{model_name="scripted"} ${(state.tokens += 240)}\n` +
          'rocmforge:cache_config_info{model_name="scripted",num_gpu_blocks="256"} 1\nrocmforge:kv_cache_usage_perc{model_name="scripted"} 0.25\n',
      );
    case "/v1/chat/completions":
      state.requests.push(body);
      return chat(state, body, response, json);
    default:
      return json(404, { error: { message: `there is no ${pathname}` } });
  }
}

async function chat(state, body, response, json) {
  if (state.busy > 0) {
    state.busy -= 1;
    return json(429, { error: { message: "the queue is full" } }, { "retry-after": "1" });
  }
  const last = body.messages.at(-1);
  const text =
    typeof last.content === "string" ? last.content : (last.content?.find?.(({ type }) => type === "text")?.text ?? "");
  response.writeHead(200, { "content-type": "text/event-stream" });
  const send = (value) => response.write(`data: ${JSON.stringify(value)}\n\n`);
  const delta = (fields) => send({ choices: [{ index: 0, delta: fields, finish_reason: null }] });
  const words = async (whole, ms = 0) => {
    for (const word of whole.match(/\s*\S+\s*?/g) ?? []) {
      if (response.destroyed) return;
      delta({ content: word });
      if (ms) await sleep(ms);
    }
  };
  const end = (reason = "stop", tokens = 7) => {
    send({
      choices: [{ index: 0, delta: {}, finish_reason: reason }],
      timings: { prompt_n: 20, cache_n: 4, predicted_n: tokens, predicted_per_second: 50 },
    });
    response.end("data: [DONE]\n\n");
  };
  delta({ role: "assistant", content: "" });
  if (last.role === "assistant") {
    await words(" and it goes on to its end.");
  } else if (last.role === "tool") {
    await words(`The tool says ${last.content}.`);
  } else if (text.includes("reason")) {
    for (const part of ["The user ", "wants **reasons**."]) {
      delta({ reasoning_content: part });
      await sleep(150);
    }
    await words("Because of this.");
  } else if (text.includes("weather")) {
    const call = (fields) => delta({ tool_calls: [{ index: 0, ...fields }] });
    call({ id: "call_1", type: "function", function: { name: "get_weather", arguments: "" } });
    call({ function: { arguments: '{"city":' } });
    call({ function: { arguments: ' "Oslo"}' } });
    return end("tool_calls");
  } else if (text.includes("break")) {
    await words("This answer breaks");
    await sleep(100);
    return response.destroy();
  } else if (text.includes("prompt")) {
    for (const processed of [512, 1024, 2048]) {
      send({ prompt_progress: { total: 2048, processed, cache: 256 } });
      await sleep(400);
    }
    await words("A long prompt.");
  } else if (text.includes("slow")) {
    await words(
      "Slow words come one after the other so that somebody can watch them and leave and come back. ".repeat(5),
      20,
    );
  } else if (text.includes("quotes")) {
    await words(`${">".repeat(3000)}\n\nAfter the quotes.`);
  } else if (text.includes("megabyte")) {
    for (let i = 0; i < 64; i++) delta({ content: `${"Many words make a megabyte of text. ".repeat(450)}\n\n` });
  } else if (text.includes("paragraph")) {
    const sentence = "A **long** paragraph has `code` and *many* words, [links](https://example.org/) too. ";
    for (let sent = 0; sent < 100_000; sent += sentence.length) {
      delta({ content: sentence });
      if (sent % (sentence.length * 5) === 0) await sleep(10);
    }
  } else if (text.includes("markdown")) {
    await words(MARKDOWN);
  } else if (text.includes("arabic")) {
    await words("مرحبا بك في العالم.");
  } else {
    await words(`You wrote ${text.length} characters. This is the second sentence of the answer.`);
  }
  if (!response.destroyed) end();
}
