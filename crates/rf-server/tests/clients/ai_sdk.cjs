// Runs the AI SDK against a server: `node ai_sdk.cjs PROVIDER URL MODEL`. The packages are found
// through NODE_PATH.

const assert = require("node:assert");

async function main() {
  const [, , name, base, model] = process.argv;
  const { generateText, streamText, jsonSchema, tool } = require("ai");
  let language;
  if (name === "anthropic") {
    const { createAnthropic } = require("@ai-sdk/anthropic");
    language = createAnthropic({ baseURL: `${base}/v1`, apiKey: "none" })(model);
  } else {
    const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
    const options = { name: "local", baseURL: `${base}/v1`, includeUsage: true };
    language = createOpenAICompatible(options)(model);
  }

  const plain = await generateText({ model: language, prompt: "Hello", maxOutputTokens: 100 });
  assert.match(plain.text, /^Every prompt gets this answer\./);
  assert.strictEqual(plain.finishReason, "stop");
  assert.ok(plain.usage.inputTokens > 0 && plain.usage.outputTokens > 0);

  const stream = streamText({ model: language, prompt: "Hello", maxOutputTokens: 100 });
  let text = "";
  for await (const piece of stream.textStream) text += piece;
  assert.strictEqual(text, plain.text);

  const schema = { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } } };
  const tools = { weather: tool({ description: "The weather", inputSchema: jsonSchema(schema) }) };
  const call = streamText({ model: language, prompt: "Weather?", tools, maxOutputTokens: 200 });
  const calls = await call.toolCalls;
  assert.strictEqual(calls.length, 1);
  assert.strictEqual(calls[0].toolName, "weather");
  assert.deepStrictEqual(calls[0].input, { city: "Oslo", days: 2 });
  assert.match(await call.reasoningText, /asks for the weather/);
  assert.strictEqual(await call.finishReason, "tool-calls");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
