// Claude Code: a task without a terminal, and a second one in the same conversation. Each takes
// three commands, which Claude Code runs. The history of the second has the thoughts, the calls,
// their results and the answer of the first.
import assert from "node:assert";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const home = mkdtempSync(join(tmpdir(), "claude-code-"));
const program = join(dirname(fileURLToPath(import.meta.url)), "node_modules/.bin/claude");
const options = ["--model", "fixed", "--output-format", "json", "--allowedTools", "Bash"];
for (const task of [
  ["-p", "Write the weather into a file."],
  ["--continue", "-p", "Write it again."],
]) {
  const { stdout, stderr, status } = spawnSync(program, [...task, ...options], {
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
  });
  console.log(stdout, stderr);
  assert.equal(status, 0);
  assert.equal(JSON.parse(stdout).result, "The file has one line: sunny.");
  assert.equal(readFileSync(join(home, "weather.txt"), "utf8"), "sunny\n");
  assert.equal(readFileSync(join(home, "lines.txt"), "utf8").trim(), "1");
  rmSync(join(home, "lines.txt"));
}
