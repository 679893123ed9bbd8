// @anthropic-ai/sdk: messages, streams, tools, counted tokens.
import assert from "node:assert";
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.env.SERVER, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "What is the weather in Oslo?" }];
const tools = [{ name: "weather", input_schema: { type: "object", properties: {} } }];

const message = await client.messages.create({ model: "fixed", max_tokens: 64, messages });
assert(message.content[0].text.startsWith("Every prompt"));
const stream = client.messages.stream({ model: "fixed", max_tokens: 64, messages });
assert.equal(await stream.finalText(), message.content[0].text);
const called = await client.messages.create({ model: "fixed", max_tokens: 256, messages, tools });
const use = called.content.find((block) => block.type === "tool_use");
assert.deepEqual(use.input, { city: "Oslo", days: 2 });
const counted = await client.messages.countTokens({ model: "demo", messages });
assert(counted.input_tokens > 0);
