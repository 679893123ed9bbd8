// Codex: a task without a terminal, and a second one in the same conversation. Each takes three
// commands, which Codex runs. The history of the second has the reasoning, the calls, their results
// and the answer of the first.
import assert from "node:assert";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const home = mkdtempSync(join(tmpdir(), "codex-"));
mkdirSync(join(home, ".codex"));
writeFileSync(
  join(home, ".codex/config.toml"),
  `model = "fixed"
model_provider = "local"
[model_providers.local]
name = "local"
base_url = "${process.env.SERVER}/v1"
wire_api = "responses"
`,
);
const program = join(dirname(fileURLToPath(import.meta.url)), "node_modules/.bin/codex");
const options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];
for (const [command, prompt] of [
  [["exec"], "Write the weather into a file."],
  [["exec", "resume", "--last"], "Write it again."],
]) {
  const { stdout, stderr, status } = spawnSync(program, [...command, ...options, prompt], {
    cwd: home,
    encoding: "utf8",
    input: "",
    timeout: 180_000,
    env: { PATH: process.env.PATH, HOME: home },
  });
  console.log(stdout, stderr);
  assert.equal(status, 0);
  assert(stdout.includes("The file has one line: sunny."));
  assert.equal(readFileSync(join(home, "weather.txt"), "utf8"), "sunny\n");
  assert.equal(readFileSync(join(home, "lines.txt"), "utf8").trim(), "1");
  rmSync(join(home, "lines.txt"));
}
