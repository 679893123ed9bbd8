// OpenCode: one prompt without a terminal. The model calls a tool that OpenCode lacks, is told so,
// and answers.
import assert from "node:assert";
import { spawnSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const home = mkdtempSync(join(tmpdir(), "opencode-"));
const provider = {
  npm: "@ai-sdk/openai-compatible",
  options: { baseURL: `${process.env.SERVER}/v1` },
  models: { fixed: { name: "fixed" } },
};
writeFileSync(join(home, "opencode.json"), JSON.stringify({ provider: { local: provider } }));
const program = join(dirname(fileURLToPath(import.meta.url)), "node_modules/.bin/opencode");
const { stdout, stderr, status } = spawnSync(
  program,
  ["run", "--model", "local/fixed", "What is the weather in Oslo?"],
  { cwd: home, encoding: "utf8", input: "", timeout: 180_000, env: { PATH: process.env.PATH, HOME: home } },
);
console.log(stdout, stderr);
assert.equal(status, 0);
assert(stdout.includes("It will be sunny in Oslo."));
