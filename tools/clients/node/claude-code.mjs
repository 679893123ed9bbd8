// Claude Code: one prompt without a terminal. The model calls a tool that Claude Code lacks, is told
// so, and answers.
import assert from "node:assert";
import { spawnSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const home = mkdtempSync(join(tmpdir(), "claude-code-"));
const program = join(dirname(fileURLToPath(import.meta.url)), "node_modules/.bin/claude");
const { stdout, stderr, status } = spawnSync(
  program,
  ["-p", "What is the weather in Oslo?", "--model", "fixed", "--output-format", "json"],
  {
    cwd: home,
    encoding: "utf8",
    timeout: 180_000,
    env: {
      PATH: process.env.PATH,
      HOME: home,
      ANTHROPIC_BASE_URL: process.env.SERVER,
      ANTHROPIC_AUTH_TOKEN: "none",
      ANTHROPIC_SMALL_FAST_MODEL: "fixed",
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    },
  },
);
console.log(stdout, stderr);
assert.equal(status, 0);
assert.equal(JSON.parse(stdout).result, "It will be sunny in Oslo.");
