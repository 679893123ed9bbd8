import assert from "node:assert/strict";
import { test } from "node:test";

// The settings are read when the modules are loaded.
Object.assign(globalThis, { localStorage: { getItem: () => null, setItem: () => undefined } });
const { refusalText, retrySeconds } = await import("../../src/net/api");
const { chatRequest, requestMessages } = await import("../../src/net/body");
const { LineParser } = await import("../../src/net/pull");
const { EventParser } = await import("../../src/net/sse");
const { Running } = await import("../../src/net/stream");
import type { Message } from "../../src/conversation";

const message = (role: Message["role"], content: string, more: Partial<Message> = {}): Message => ({
  id: content,
  conversation: "c",
  parent: null,
  role,
  content,
  created: 0,
  ...more,
});

test("events are read from any pieces", () => {
  const text = 'data: {"a":1}\n\n: comment\r\ndata:b\r\ndata: c\r\n\r\nevent: x\n\ndata: [DONE]\n\n';
  for (const size of [1, 2, 3, 7, 1000]) {
    const parser = new EventParser();
    const found: string[] = [];
    for (let i = 0; i < text.length; i += size) found.push(...parser.push(text.slice(i, i + size)));
    assert.deepEqual(found, ['{"a":1}', "b\nc", "[DONE]"], String(size));
  }
});

test("lines are read from any pieces", () => {
  const text = '{"status":"pulling manifest"}\n\n{"total":9,"completed":3}\n{"status":"success"}\n';
  for (const size of [1, 5, 1000]) {
    const parser = new LineParser();
    const found = [];
    for (let i = 0; i < text.length; i += size) found.push(...parser.push(text.slice(i, i + size)));
    assert.deepEqual(
      found,
      [{ status: "pulling manifest" }, { total: 9, completed: 3 }, { status: "success" }],
      String(size),
    );
  }
});

test("a question whose answer failed is joined with the next one", () => {
  const made = requestMessages([
    message("user", "one"),
    message("assistant", "", { error: "gone" }),
    message("user", "two"),
    message("assistant", "yes"),
    message("user", "three"),
  ]);
  assert.deepEqual(
    made.map(({ role, content }) => [role, content]),
    [
      ["user", "one\n\ntwo"],
      ["assistant", "yes"],
      ["user", "three"],
    ],
  );
});

test("files and images become parts of the message", () => {
  const [text] = requestMessages([
    message("user", "Read", { attachments: [{ kind: "text", name: "a.md", data: "```x```\n" }] }),
  ]);
  assert.equal(text?.content, "a.md:\n````\n```x```\n````\n\nRead");
  const [image] = requestMessages([
    message("user", "See", { attachments: [{ kind: "image", name: "a.png", data: "data:image/png;base64,AA" }] }),
  ]);
  assert.deepEqual(image?.content, [
    { type: "image_url", image_url: { url: "data:image/png;base64,AA" } },
    { type: "text", text: "See" },
  ]);
});

test("calls and their results are replayed", () => {
  const calls = [{ id: "1", name: "f", arguments: "{}" }];
  const made = requestMessages([
    message("user", "x"),
    message("assistant", "", { calls }),
    message("tool", "42", { callId: "1" }),
  ]);
  assert.deepEqual(made.slice(1), [
    {
      role: "assistant",
      content: null,
      tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: "{}" } }],
    },
    { role: "tool", content: "42", tool_call_id: "1" },
  ]);
});

test("a call that nobody answered has a result", () => {
  const calls = ["1", "2"].map((id) => ({ id, name: "f", arguments: "{}" }));
  const made = requestMessages([
    message("user", "x"),
    message("assistant", "", { calls }),
    message("tool", "42", { callId: "1" }),
    message("user", "never mind"),
  ]);
  assert.deepEqual(made.slice(2), [
    { role: "tool", content: "42", tool_call_id: "1" },
    { role: "tool", content: "There is no result.", tool_call_id: "2" },
    { role: "user", content: "never mind" },
  ]);
});

test("tools are offered, unless the answer has a form", () => {
  const tool = (name: string) => ({ type: "function", function: { name, parameters: { type: "object" } } });
  const offered = (params: Record<string, string>) => {
    const conversation = { id: "c", title: "", created: 0, updated: 0, head: null, params };
    return chatRequest(conversation, [message("user", "x")], "m", false, [tool("b")]).tools;
  };
  assert.deepEqual(offered({}), [tool("b")]);
  assert.deepEqual(offered({ tools: JSON.stringify([tool("a")]) }), [tool("a"), tool("b")]);
  assert.equal(offered({ grammar: 'root ::= "x"' }), undefined);
  assert.equal(offered({ json_schema: "{}" }), undefined);
});

test("the request has the parameters of its conversation", () => {
  const params = {
    temperature: 0,
    top_k: 5,
    thinking: "off",
    mirostat: "2",
    logprobs: true,
    stop: "a\nb\n",
    samplers: "top_k; temperature",
    json_schema: '{"type":"object"}',
    logit_bias: '{"5":-1}',
    custom: '{"top_k":6}',
    ignore_eos: false,
  };
  const made = chatRequest(
    { id: "c", title: "", created: 0, updated: 0, head: null, system: "S", params },
    [message("user", "x")],
    "m",
    true,
    [],
  );
  assert.deepEqual(
    made.messages.map(({ role }) => role),
    ["system", "user"],
  );
  const { temperature, top_k, mirostat, logprobs, top_logprobs, stop, samplers, logit_bias, continue_final_message } =
    made;
  assert.deepEqual(
    { temperature, top_k, mirostat, logprobs, top_logprobs, stop, samplers, logit_bias, continue_final_message },
    {
      temperature: 0,
      top_k: 6,
      mirostat: 2,
      logprobs: true,
      top_logprobs: 5,
      stop: ["a", "b"],
      samplers: ["top_k", "temperature"],
      logit_bias: { 5: -1 },
      continue_final_message: true,
    },
  );
  assert.deepEqual(made.chat_template_kwargs, { enable_thinking: false });
  assert.deepEqual(made.response_format, {
    type: "json_schema",
    json_schema: { name: "answer", schema: { type: "object" } },
  });
  assert.ok(!("ignore_eos" in made) && !("custom" in made));
});

test("chunks make the message, its calls and its numbers", () => {
  const target = message("assistant", "");
  const running = new Running(target, 0);
  running.take({ prompt_progress: { total: 9, processed: 4, cache: 2 } }, 1);
  assert.deepEqual(running.progress, { total: 9, processed: 4, cached: 2 });
  running.take({ choices: [{ delta: { reasoning_content: "hm" } }] }, 100);
  running.take({ choices: [{ delta: { reasoning_content: "m" } }] }, 600);
  running.take(
    {
      choices: [
        {
          delta: { content: "Yes" },
          logprobs: { content: [{ token: "Yes", logprob: -1, top_logprobs: [{ token: "No", logprob: -2 }] }] },
        },
      ],
    },
    1100,
  );
  running.take(
    { choices: [{ delta: { tool_calls: [{ index: 1, id: "1", function: { name: "f", arguments: "" } }] } }] },
    1200,
  );
  running.take({ choices: [{ delta: { tool_calls: [{ index: 1, function: { arguments: '{"a":' } }] } }] }, 1300);
  running.take({ choices: [{ delta: { tool_calls: [{ index: 1, function: { arguments: "1}" } }] } }] }, 1400);
  assert.equal(running.hasEnded, false);
  running.take(
    {
      choices: [{ delta: {}, finish_reason: "tool_calls" }],
      timings: { cache_n: 2, prompt_n: 7, predicted_n: 6, predicted_per_second: 5 },
    },
    1500,
  );
  running.take(
    { choices: [], usage: { prompt_tokens: 9, completion_tokens: 6, prompt_tokens_details: { cached_tokens: 2 } } },
    1500,
  );
  assert.deepEqual(
    [target.reasoning, target.reasoningMs, target.content, running.hasEnded, running.state],
    ["hmm", 500, "Yes", true, "done"],
  );
  assert.deepEqual(target.calls, [{ id: "1", name: "f", arguments: '{"a":1}' }]);
  assert.deepEqual(target.stats, {
    firstTokenMs: 100,
    promptTokens: 9,
    cachedTokens: 2,
    tokens: 6,
    tokensPerSecond: 5,
    promptPerSecond: undefined,
  });
  assert.equal(target.logprobs?.[0]?.top[0]?.token, "No");
  assert.equal(running.rate()?.toFixed(2), (5 / 1.3).toFixed(2));
  assert.throws(() => running.take({ error: { message: "broken" } }, 0), /broken/);
});

test("errors are sentences, and waiting times are read", () => {
  assert.equal(refusalText(400, '{"error":{"message":"`top_k`: too large"}}'), "`top_k`: too large.");
  assert.equal(
    refusalText(502, "<html><h1>Bad Gateway</h1></html>"),
    "The server behind this address does not answer (status 502).",
  );
  assert.equal(refusalText(500, ""), "The server answered with status 500.");
  assert.match(refusalText(401, "{}"), /API key/);
  assert.equal(retrySeconds("7", 0), 7);
  assert.equal(retrySeconds("Thu, 01 Jan 1970 00:00:09 GMT", 4000), 5);
  assert.equal(retrySeconds("99999", 0), 300);
  assert.equal(retrySeconds(null, 0), null);
  assert.equal(retrySeconds("soon", 0), null);
});
