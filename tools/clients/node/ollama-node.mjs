// ollama: chat, streams, models, embeddings.
import assert from "node:assert";
import { Ollama } from "ollama";

const client = new Ollama({ host: process.env.SERVER });
const messages = [{ role: "user", content: "Hello" }];
assert.deepEqual((await client.list()).models.map((model) => model.name).sort(), ["demo", "fixed"]);
let text = "";
for await (const part of await client.chat({ model: "fixed", messages, stream: true })) {
  text += part.message.content;
}
assert(text.startsWith("Every prompt"));
const vectors = new Ollama({ host: process.env.EMBEDDINGS });
const made = await vectors.embed({ model: "demo", input: ["one", "two"] });
assert.equal(made.embeddings.length, 2);
