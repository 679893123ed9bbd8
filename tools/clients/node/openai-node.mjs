// openai: chat, streams, tools, responses, embeddings.
import assert from "node:assert";
import OpenAI from "openai";

const { SERVER, EMBEDDINGS } = process.env;
const client = new OpenAI({ baseURL: `${SERVER}/v1`, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "What is the weather in Oslo?" }];
const tools = [
  { type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } },
];

const answer = await client.chat.completions.create({ model: "demo", messages, max_tokens: 8 });
assert(answer.choices[0].message.content);
let text = "";
const stream = await client.chat.completions.create({ model: "fixed", messages, stream: true });
for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
assert(text.startsWith("Every prompt"));
const called = await client.chat.completions.create({ model: "fixed", messages, tools });
assert.equal(called.choices[0].message.tool_calls[0].function.name, "weather");
const response = await client.responses.create({ model: "fixed", input: "Hello" });
assert.equal(response.output_text, text);
const events = await client.responses.stream({ model: "fixed", input: "Hello" }).finalResponse();
assert.equal(events.output_text, text);
const vectors = new OpenAI({ baseURL: `${EMBEDDINGS}/v1`, apiKey: "none" });
const made = await vectors.embeddings.create({ model: "demo", input: ["one", "two"] });
assert.equal(made.data.length, 2);
